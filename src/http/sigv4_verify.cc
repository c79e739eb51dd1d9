// SPDX-License-Identifier: Apache-2.0
// The server's half of SigV4.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "http/percent.h"
#include "http/sigv4.h"
#include "http/sigv4_text.h"
#include "kvern/limits.h"

namespace kvern::http {
namespace {

using sigv4::equal_in_constant_time;
using sigv4::trimmed;

constexpr std::size_t sha256_hex_bytes = 2 * sizeof(Digest);
constexpr std::string_view amz_prefix = "x-amz-";

bool is_lower_hex(std::string_view text) {
    return std::all_of(text.begin(), text.end(),
                       [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

S3Code malformed(AuthForm form) {
    return form == AuthForm::query ? S3Code::authorization_query_parameters_error
                                   : S3Code::authorization_header_malformed;
}

// Takes "/part" off the end of `text`.
std::string_view take_last_part(std::string_view& text) {
    const std::size_t slash = text.rfind('/');
    if (slash == text.npos) return {};
    const std::string_view part = text.substr(slash + 1);
    text = text.substr(0, slash);
    return part;
}

// "ACCESS_KEY/20130524/us-east-1/s3/aws4_request". From the right, since an access key may have slashes.
S3Result<> parse_credential(std::string_view text, Authorization& found) {
    std::string_view rest = text;
    const std::string_view terminator = take_last_part(rest);
    const std::string_view service = take_last_part(rest);
    found.region = take_last_part(rest);
    found.day = take_last_part(rest);
    found.access_key = rest;
    if (terminator != sigv4::terminator || service != sigv4::service || found.region.empty() ||
        found.day.size() != sigv4::day_bytes || found.access_key.empty()) {
        return refuse(malformed(found.form),
                      fmt::format("Credential '{}' must be ACCESS_KEY/YYYYMMDD/REGION/s3/aws4_request", text));
    }
    return {};
}

// Names in lower case, sorted, none twice, with host among them.
S3Result<> check_signed_headers(const Authorization& found) {
    std::string_view rest = found.signed_headers;
    std::string_view before;
    std::size_t count = 0;
    bool has_host = false;
    while (!rest.empty()) {
        const std::string_view name = rest.substr(0, rest.find(';'));
        rest.remove_prefix(std::min(rest.size(), name.size() + 1));
        const bool upper = std::any_of(name.begin(), name.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
        if (name <= before || upper || ++count > limits::signed_headers_max) {
            return refuse(
                malformed(found.form),
                fmt::format("SignedHeaders must be at most {} names in lower case, sorted, none twice, with ';' "
                            "between them: '{}' breaks that",
                            limits::signed_headers_max, name));
        }
        has_host = has_host || name == "host";
        before = name;
    }
    if (!has_host || found.signed_headers.back() == ';') {
        return refuse(malformed(found.form), "SignedHeaders must be names with ';' between them, and hold 'host'");
    }
    return {};
}

// From a text like 20130524T000000Z, which is signed as it is.
bool set_time(Authorization& found, std::string_view text) {
    const auto time = parse_basic_date(text);
    if (!time) return false;
    found.time = *time;
    std::copy(text.begin(), text.end(), found.amz_date.begin());
    return true;
}

// From the header date, whose text may have any of HTTP's forms.
bool set_time_of_http(Authorization& found, std::string_view text) {
    const auto time = parse_http_date(text);
    if (!time) return set_time(found, text);
    found.time = *time;
    found.amz_date = basic_date(*time);
    return true;
}

S3Result<> check_day(const Authorization& found) {
    if (found.amz_date_text().substr(0, sigv4::day_bytes) == found.day) return {};
    return refuse(malformed(found.form),
                  fmt::format("the day '{}' in Credential is not that of the request's date '{}'", found.day,
                              found.amz_date_text()));
}

S3Result<> set_payload(Authorization& found, std::string_view text) {
    struct Word {
        std::string_view text;
        PayloadForm form;
    };
    static constexpr std::array<Word, 4> words{
        {{unsigned_payload, PayloadForm::not_signed},
         {"STREAMING-AWS4-HMAC-SHA256-PAYLOAD", PayloadForm::streaming_signed},
         {"STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER", PayloadForm::streaming_signed_trailer},
         {"STREAMING-UNSIGNED-PAYLOAD-TRAILER", PayloadForm::streaming_unsigned_trailer}}};
    found.payload_hash = text;
    const auto word = std::find_if(words.begin(), words.end(), [&](const Word& known) { return known.text == text; });
    if (word != words.end()) {
        found.payload = word->form;
        return {};
    }
    if (text.size() == sha256_hex_bytes && is_lower_hex(text)) {
        found.payload = PayloadForm::hash;
        return {};
    }
    return refuse(
        S3Code::invalid_argument,
        fmt::format("x-amz-content-sha256 is '{}': it must be a SHA-256 as 64 lower-case hex digits, "
                    "UNSIGNED-PAYLOAD, STREAMING-UNSIGNED-PAYLOAD-TRAILER, STREAMING-AWS4-HMAC-SHA256-PAYLOAD "
                    "or STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
                    text));
}

// ------------------------------------------------------------------------------------------------- Authorization
// header

S3Result<> parse_fields(std::string_view fields, Authorization& found) {
    std::string_view credential;
    const std::array<std::pair<std::string_view, std::string_view*>, 3> known{
        {{"Credential=", &credential}, {"SignedHeaders=", &found.signed_headers}, {"Signature=", &found.signature}}};
    while (!fields.empty()) {
        const std::string_view part = fields.substr(0, fields.find(','));
        fields.remove_prefix(std::min(fields.size(), part.size() + 1));
        const std::string_view field = trimmed(part);
        const auto match =
            std::find_if(known.begin(), known.end(), [&](const auto& pair) { return field.starts_with(pair.first); });
        if (match == known.end() || !match->second->empty()) {
            return refuse(S3Code::authorization_header_malformed,
                          fmt::format("'{}' is unknown or there twice; the fields are Credential, SignedHeaders and "
                                      "Signature",
                                      field));
        }
        *match->second = field.substr(match->first.size());
    }
    for (const auto& [name, value] : known) {
        if (value->empty()) {
            return refuse(S3Code::authorization_header_malformed,
                          fmt::format("the field {} is missing", name.substr(0, name.size() - 1)));
        }
    }
    return parse_credential(credential, found);
}

S3Result<> parse_header_time(const RequestHead& head, Authorization& found) {
    if (const auto text = find_header(head.headers, "x-amz-date"); text.data() != nullptr) {
        if (set_time(found, trimmed(text))) return {};
        return refuse(S3Code::access_denied, fmt::format("x-amz-date '{}' is no date like 20130524T000000Z", text));
    }
    const auto text = find_header(head.headers, "date");
    if (text.data() == nullptr) {
        return refuse(S3Code::access_denied, "a signed request needs the header x-amz-date or date");
    }
    if (!set_time_of_http(found, trimmed(text))) {
        return refuse(S3Code::access_denied, fmt::format("the header date '{}' is no date of HTTP", text));
    }
    return {};
}

S3Result<> parse_header_form(const RequestHead& head, std::string_view value, Authorization& found) {
    value = trimmed(value);
    if (!value.starts_with(sigv4::algorithm)) {
        return refuse(S3Code::invalid_request, "this kind of authorization is not supported: use AWS4-HMAC-SHA256");
    }
    value.remove_prefix(sigv4::algorithm.size());
    if (trimmed(value).size() == value.size()) {
        return refuse(S3Code::authorization_header_malformed, "the word AWS4-HMAC-SHA256 is followed by no space");
    }
    if (auto parsed = parse_fields(value, found); !parsed) return parsed;
    if (auto parsed = check_signed_headers(found); !parsed) return parsed;
    if (auto parsed = parse_header_time(head, found); !parsed) return parsed;
    if (auto parsed = check_day(found); !parsed) return parsed;
    found.session_token = trimmed(find_header(head.headers, "x-amz-security-token"));
    const auto payload = find_header(head.headers, "x-amz-content-sha256");
    if (payload.data() == nullptr) {
        return refuse(S3Code::invalid_request, "a signed request needs the header x-amz-content-sha256");
    }
    return set_payload(found, trimmed(payload));
}

// -------------------------------------------------------------------------------------------------------- presigned
// URL

constexpr std::string_view signature_parameter = "X-Amz-Signature";

bool is_presigned(std::span<const QueryPair> query) {
    return find_query(query, "X-Amz-Algorithm") != nullptr || find_query(query, "X-Amz-Credential") != nullptr ||
           find_query(query, signature_parameter) != nullptr;
}

// The value of a parameter that is there exactly once.
S3Result<std::string_view> only(std::span<const QueryPair> query, std::string_view name) {
    const auto has_name = [&](const QueryPair& pair) { return pair.name == name; };
    if (std::count_if(query.begin(), query.end(), has_name) != 1) {
        return refuse(
            S3Code::authorization_query_parameters_error,
            fmt::format("a presigned URL needs {} exactly once, as well as X-Amz-Algorithm, X-Amz-Credential, "
                        "X-Amz-Date, X-Amz-Expires, X-Amz-SignedHeaders and X-Amz-Signature",
                        name));
    }
    return std::string_view(std::find_if(query.begin(), query.end(), has_name)->value);
}

S3Result<> set_life(Authorization& found, std::string_view text) {
    constexpr auto life_max = std::chrono::duration_cast<std::chrono::seconds>(limits::presigned_age_max);
    std::int64_t value = 0;
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc::invalid_argument || rest != text.data() + text.size()) {
        return refuse(S3Code::authorization_query_parameters_error,
                      fmt::format("X-Amz-Expires '{}' is not a whole number of seconds", text));
    }
    if (error != std::errc{} || value < 1 || value > life_max.count()) {
        return refuse(S3Code::access_denied, fmt::format("Request has expired: X-Amz-Expires '{}' is not from 1 to {}",
                                                         text, life_max.count()));
    }
    found.life = std::chrono::seconds(value);
    return {};
}

S3Result<> parse_query_form(const RequestHead& head, Authorization& found) {
    std::string_view algorithm;
    std::string_view credential;
    std::string_view date;
    std::string_view life;
    const std::array<std::pair<std::string_view, std::string_view*>, 6> needed{
        {{"X-Amz-Algorithm", &algorithm},
         {"X-Amz-Credential", &credential},
         {"X-Amz-Date", &date},
         {"X-Amz-Expires", &life},
         {"X-Amz-SignedHeaders", &found.signed_headers},
         {signature_parameter, &found.signature}}};
    for (const auto& [name, value] : needed) {
        const auto text = only(head.query, name);
        if (!text) return tl::unexpected(text.error());
        *value = *text;
    }
    if (algorithm != sigv4::algorithm) {
        return refuse(S3Code::authorization_query_parameters_error,
                      fmt::format("X-Amz-Algorithm '{}' is not supported: use AWS4-HMAC-SHA256", algorithm));
    }
    if (auto parsed = parse_credential(credential, found); !parsed) return parsed;
    if (auto parsed = check_signed_headers(found); !parsed) return parsed;
    if (!set_time(found, date)) {
        return refuse(S3Code::authorization_query_parameters_error,
                      fmt::format("X-Amz-Date '{}' is no date like 20130524T000000Z", date));
    }
    if (auto parsed = check_day(found); !parsed) return parsed;
    if (auto parsed = set_life(found, life); !parsed) return parsed;
    if (const auto* token = find_query(head.query, "X-Amz-Security-Token")) found.session_token = token->value;
    // A URL signs no body, unless its maker says so.
    if (const auto* hash = find_query(head.query, "X-Amz-Content-Sha256")) return set_payload(found, hash->value);
    const auto hash = find_header(head.headers, "x-amz-content-sha256");
    return set_payload(found, hash.data() == nullptr ? unsigned_payload : trimmed(hash));
}

// ---------------------------------------------------------------------------------------------------------
// verification

S3Result<> check_time(const Authorization& authorization, sys_seconds now) {
    if (authorization.form == AuthForm::header) {
        if (std::chrono::abs(now - authorization.time) <= limits::signature_skew_max) return {};
        return refuse(
            S3Code::request_time_too_skewed,
            fmt::format("the request was signed at {}, and here it is {}: more than 15 minutes apart; check the "
                        "clocks",
                        http_date(authorization.time), http_date(now)));
    }
    if (now + limits::signature_skew_max < authorization.time) {
        return refuse(S3Code::access_denied,
                      fmt::format("Request is not yet valid: its time begins at {}", http_date(authorization.time)));
    }
    const auto end = authorization.time + authorization.life;
    if (now > end) {
        return refuse(S3Code::access_denied, fmt::format("Request has expired: its time ended at {}", http_date(end)));
    }
    return {};
}

S3Result<> check_token(const Authorization& authorization, const Credentials& credentials) {
    if (equal_in_constant_time(authorization.session_token, credentials.session_token)) return {};
    return refuse(S3Code::invalid_token, credentials.session_token.empty()
                                             ? "this access key has no session token, and the request sends one"
                                             : "the session token is not that of this access key");
}

// "%7E" and "~" are the same path: what is signed is the one way to encode it.
bool encode_path_again(std::string& to, std::string_view path, std::string& scratch) {
    scratch.clear();
    to.clear();
    if (!append_percent_decoded(scratch, path, Plus::literal)) return false;
    append_percent_encoded(to, scratch, Slash::keep);
    return true;
}

}  // namespace

S3Result<Authorization> parse_authorization(const RequestHead& head) {
    Authorization found;
    const auto count = std::count_if(head.headers.begin(), head.headers.end(),
                                     [](const HeaderView& header) { return header.name == "authorization"; });
    const bool presigned = is_presigned(head.query);
    if (count > 1 || (count == 1 && presigned)) {
        return refuse(S3Code::invalid_argument,
                      "a request is authorized once: by one Authorization header or by the parameters of its URL");
    }
    S3Result<> parsed;
    if (count == 1) {
        found.form = AuthForm::header;
        parsed = parse_header_form(head, find_header(head.headers, "authorization"), found);
    } else if (presigned) {
        found.form = AuthForm::query;
        parsed = parse_query_form(head, found);
    } else if (find_query(head.query, "AWSAccessKeyId") != nullptr) {
        parsed = refuse(S3Code::invalid_request, "URLs signed with version 2 are not supported: use AWS4-HMAC-SHA256");
    } else if (const auto hash = find_header(head.headers, "x-amz-content-sha256"); hash.data() != nullptr) {
        parsed = set_payload(found, trimmed(hash));
        const bool needs_key =
            found.payload == PayloadForm::streaming_signed || found.payload == PayloadForm::streaming_signed_trailer;
        if (parsed && needs_key) parsed = refuse(S3Code::invalid_request, "chunks are signed, but the request is not");
    }
    if (!parsed) return tl::unexpected(std::move(parsed.error()));
    return found;
}

S3Result<> Verifier::verify(const Authorization& authorization, const RequestHead& head, const Credentials& credentials,
                            sys_seconds now) {
    if (authorization.form == AuthForm::anonymous) return refuse(S3Code::access_denied, "the request is not signed");
    if (authorization.access_key != credentials.access_key) {
        return refuse(S3Code::invalid_access_key_id, "the request is signed with another access key");
    }
    if (auto checked = check_scope(authorization); !checked) return checked;
    if (auto checked = check_time(authorization, now); !checked) return checked;
    if (auto checked = check_token(authorization, credentials); !checked) return checked;
    if (auto checked = sort_signed_headers(authorization, head.headers); !checked) return checked;
    if (!encode_path_again(path_, head.path, text_)) {
        return refuse(S3Code::invalid_uri, "the path has a '%' that is not followed by two hex digits");
    }
    std::string query;
    if (authorization.form == AuthForm::query) {
        query_.assign(head.query.begin(), head.query.end());
        std::erase_if(query_, [](const QueryPair& pair) { return pair.name == signature_parameter; });
        query = canonical_query(query_);
    } else {
        query = canonical_query(head.query);
    }
    std::string scope;
    sigv4::append_scope(scope, authorization.day, authorization.region);
    const HmacSha256& key = key_of(credentials).of(credentials.secret_key, authorization.day, authorization.region);
    std::string expected;
    sigv4::append_signature(
        expected, {head.method, path_, query, headers_, authorization.signed_headers, authorization.payload_hash}, key,
        authorization.amz_date_text(), scope, text_);
    if (equal_in_constant_time(expected, authorization.signature)) return {};
    return refuse(S3Code::signature_does_not_match,
                  "the signature is not the one that the secret key gives: check the secret key, and that nothing "
                  "between client and server changes the path, the query or the signed headers");
}

ChunkSeed Verifier::chunk_seed(const Authorization& authorization, const Credentials& credentials) {
    ChunkSeed seed;
    seed.key = key_of(credentials).of(credentials.secret_key, authorization.day, authorization.region);
    seed.amz_date = authorization.amz_date_text();
    sigv4::append_scope(seed.scope, authorization.day, authorization.region);
    seed.signature = authorization.signature;
    return seed;
}

S3Result<> Verifier::check_scope(const Authorization& authorization) const {
    if (region_.empty() || authorization.region == region_) return {};
    return refuse(malformed(authorization.form),
                  fmt::format("the region '{}' is wrong; expecting '{}'", authorization.region, region_));
}

// Fills headers_ with the signed ones. Fails where one of them is not there, or one that must be is not signed.
S3Result<> Verifier::sort_signed_headers(const Authorization& authorization, std::span<const HeaderView> headers) {
    sorted_.clear();
    for (const HeaderView& header : headers) sorted_.push_back(&header);
    std::sort(sorted_.begin(), sorted_.end(), [](const HeaderView* a, const HeaderView* b) {
        return a->name != b->name ? a->name < b->name : a < b;  // of one name: in the order received
    });
    headers_.clear();
    std::string_view rest = authorization.signed_headers;
    const auto missing = [](std::string_view name) {
        return refuse(S3Code::signature_does_not_match,
                      fmt::format("the signed header '{}' is not in the request", name));
    };
    const auto next_name = [&] { return rest.substr(0, rest.find(';')); };
    const auto skip_name = [&] { rest.remove_prefix(std::min(rest.size(), next_name().size() + 1)); };
    for (const HeaderView* const header : sorted_) {
        while (!rest.empty() && next_name() < header->name) {
            if (headers_.empty() || headers_.back().name != next_name()) return missing(next_name());
            skip_name();
        }
        if (!rest.empty() && next_name() == header->name) {
            headers_.push_back(*header);
        } else if (header->name.starts_with(amz_prefix)) {
            return refuse(
                S3Code::access_denied,
                fmt::format("There were headers present in the request which were not signed: {}", header->name));
        }
    }
    while (!rest.empty()) {
        if (headers_.empty() || headers_.back().name != next_name()) return missing(next_name());
        skip_name();
    }
    return {};
}

SigningKey& Verifier::key_of(const Credentials& credentials) {
    const auto known = std::find_if(keys_.begin(), keys_.end(),
                                    [&](const Key& entry) { return entry.access_key == credentials.access_key; });
    if (known != keys_.end()) return known->key;
    return keys_.emplace_back(Key{credentials.access_key, {}}).key;
}

}  // namespace kvern::http
