// SPDX-License-Identifier: Apache-2.0
#include "store/s3/answers.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <nlohmann/json.hpp>
#include <pugixml.hpp>

#include "base/clock.h"
#include "base/text.h"
#include "http/date.h"
#include "http/percent.h"
#include "kvern/limits.h"

namespace kvern {
namespace {

constexpr unsigned xml_options = pugi::parse_default | pugi::parse_ws_pcdata_single;

tl::unexpected<Error> odd(const std::string& what) {
    return fail(ErrorCode::io, "the answer " + what);
}

std::optional<std::uint64_t> number(std::string_view text) {
    std::uint64_t value = 0;
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || error != std::errc{} || rest != text.data() + text.size()) return std::nullopt;
    return value;
}

template <class Time>
std::int64_t whole_seconds_ns(Time time) {
    return unix_ns(std::chrono::floor<std::chrono::seconds>(time.time_since_epoch()));
}

// The root element, or an error where the document is none or another one.
Result<pugi::xml_node> parse_root(pugi::xml_document& document, std::string_view xml, const char* name) {
    const auto parsed = document.load_buffer(xml.data(), xml.size(), xml_options, pugi::encoding_utf8);
    if (!parsed) return odd(std::string("is no XML: ") + parsed.description());
    const auto root = document.document_element();
    if (std::string_view(root.name()) != name) {
        return odd("is a <" + shown_text(root.name()) + ">, expected was <" + name + ">");
    }
    return root;
}

std::string_view text_of(const pugi::xml_node& node, const char* name) {
    return node.child_value(name);
}

S3ErrorText error_of(const pugi::xml_node& node) {
    return {shown_text(text_of(node, "Code")), shown_text(text_of(node, "Message")),
            shown_text(text_of(node, "Region"))};
}

}  // namespace

std::string shown_text(std::string_view text) {
    std::string shown;
    for (const char c : text.substr(0, limits::s3_answer_shown_bytes_max)) {
        const auto byte = static_cast<unsigned char>(c);
        shown += byte < 0x20 || byte == 0x7f ? ' ' : c;
    }
    if (text.size() > limits::s3_answer_shown_bytes_max) shown += "…";
    return shown;
}

std::string xml_escaped(std::string_view text) {
    std::string escaped;
    for (const char c : text) {
        if (c == '&') {
            escaped += "&amp;";
        } else if (c == '<') {
            escaped += "&lt;";
        } else if (c == '>') {
            escaped += "&gt;";
        } else if (c == '"') {
            escaped += "&quot;";
        } else if (static_cast<unsigned char>(c) < 0x20) {
            escaped += "&#" + std::to_string(static_cast<unsigned>(c)) + ";";
        } else {
            escaped += c;
        }
    }
    return escaped;
}

std::string without_quotes(std::string_view etag) {
    if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"') etag = etag.substr(1, etag.size() - 2);
    return std::string(etag);
}

S3ErrorText parse_error_document(std::string_view xml) {
    pugi::xml_document document;
    const auto root = parse_root(document, xml, "Error");
    return root ? error_of(*root) : S3ErrorText{};
}

S3ErrorText error_text(const http::Head& head, std::string_view body) {
    S3ErrorText text;
    if (!body.empty()) {
        text = parse_error_document(body);
        if (text.code.empty()) text.message = shown_text(body);
    } else if (const auto code = head.find("x-kvern-error")) {
        text.code = shown_text(*code);
    }
    if (const auto region = head.find("x-amz-bucket-region"); region && text.region.empty()) {
        text.region = shown_text(*region);
    }
    return text;
}

S3Verdict judge(unsigned status, std::string_view code) {
    struct Known {
        std::string_view code;
        S3Verdict verdict;
    };
    static constexpr std::array known{
        Known{"SlowDown", S3Verdict::throttled},
        Known{"SlowDownRead", S3Verdict::throttled},
        Known{"SlowDownWrite", S3Verdict::throttled},
        Known{"ServiceUnavailable", S3Verdict::throttled},
        Known{"TooManyRequests", S3Verdict::throttled},
        Known{"ThrottlingException", S3Verdict::throttled},
        Known{"RequestTimeout", S3Verdict::trouble},
        Known{"InternalError", S3Verdict::trouble},
        Known{"IncompleteBody", S3Verdict::trouble},
        Known{"RequestTimeTooSkewed", S3Verdict::skewed},
        Known{"AuthorizationHeaderMalformed", S3Verdict::other_region},
        Known{"PermanentRedirect", S3Verdict::other_region},
        Known{"TemporaryRedirect", S3Verdict::other_region},
        Known{"IllegalLocationConstraintException", S3Verdict::other_region},
        Known{"ExpiredToken", S3Verdict::keys_refused},
        Known{"ExpiredTokenException", S3Verdict::keys_refused},
        Known{"InvalidToken", S3Verdict::keys_refused},
        Known{"InvalidAccessKeyId", S3Verdict::keys_refused},
        Known{"NoSuchBucket", S3Verdict::no_bucket},
        Known{"InsufficientStorage", S3Verdict::no_space},
        Known{"QuotaExceeded", S3Verdict::no_space},
        Known{"XMinioStorageFull", S3Verdict::no_space},
        Known{"XMinioAdminBucketQuotaExceeded", S3Verdict::no_space},
        Known{"ObjectDamaged", S3Verdict::damaged},
        Known{"NotImplemented", S3Verdict::not_supported},
    };
    if (status >= 200 && status < 300) return S3Verdict::ok;
    for (const auto& one : known) {
        if (one.code == code) return one.verdict;
    }
    switch (status) {
        case 304:
        case 404:
        case 409:
        case 412:
        case 416:
            return S3Verdict::told;
        case 301:
        case 302:
        case 307:
        case 308:
            return S3Verdict::other_region;
        case 429:
        case 503:
            return S3Verdict::throttled;
        case 401:
        case 403:
            return S3Verdict::denied;
        case 501:
            return S3Verdict::not_supported;
        case 507:
            return S3Verdict::no_space;
        default:
            return status >= 500 || status == 408 ? S3Verdict::trouble : S3Verdict::refused;
    }
}

Stat stat_of(const http::Head& head, bool with_metadata) {
    Stat stat;
    stat.size_bytes = head.content_length.value_or(0);
    if (const auto etag = head.find("etag")) stat.etag = without_quotes(*etag);
    // A PUT is answered without the time of what it wrote: then it is the server's time of the answer.
    auto time = head.find("last-modified");
    if (!time) time = head.find("date");
    if (const auto parsed = time ? http::parse_http_date(*time) : std::nullopt) {
        stat.mtime_ns = whole_seconds_ns(*parsed);
    }
    if (!with_metadata) return stat;
    if (const auto text = head.find("x-amz-meta-kvern")) stat.metadata = from_base64(*text).value_or(std::string());
    return stat;
}

std::optional<ContentRange> parse_content_range(std::string_view text) {
    constexpr std::string_view unit = "bytes ";
    if (!text.starts_with(unit)) return std::nullopt;
    text.remove_prefix(unit.size());
    const auto dash = text.find('-'), slash = text.find('/');
    if (dash == std::string_view::npos || slash == std::string_view::npos || dash > slash) return std::nullopt;
    const auto first = number(text.substr(0, dash));
    const auto last = number(text.substr(dash + 1, slash - dash - 1));
    const auto total = number(text.substr(slash + 1));
    if (!first || !last || !total || *first > *last || *last >= *total) return std::nullopt;
    return ContentRange{*first, *last, *total};
}

Result<S3Listing> parse_listing(std::string_view xml) {
    pugi::xml_document document;
    const auto root = parse_root(document, xml, "ListBucketResult");
    if (!root) return tl::unexpected(root.error());
    const bool encoded = text_of(*root, "EncodingType") == "url";
    S3Listing listing;
    listing.more = text_of(*root, "IsTruncated") == "true";
    for (const auto node : root->children("Contents")) {
        Entry entry;
        const auto key = text_of(node, "Key");
        if (encoded) {
            auto decoded = http::percent_decode(key, http::Plus::space);
            if (!decoded) return odd("lists a key with a broken escape: " + decoded.error().message);
            entry.key = std::move(*decoded);
        } else {
            entry.key = key;
        }
        const auto size = number(text_of(node, "Size"));
        if (!size) return odd("lists a key without its size");
        entry.size_bytes = *size;
        const auto time = http::parse_iso_date(text_of(node, "LastModified"));
        if (!time) return odd("lists a key without its time");
        entry.mtime_ns = whole_seconds_ns(*time);
        entry.etag = without_quotes(text_of(node, "ETag"));
        listing.entries.push_back(std::move(entry));
        if (listing.entries.size() > limits::list_entries_max) return odd("lists more keys than were asked for");
    }
    return listing;
}

Result<std::string> parse_upload_id(std::string_view xml) {
    pugi::xml_document document;
    const auto root = parse_root(document, xml, "InitiateMultipartUploadResult");
    if (!root) return tl::unexpected(root.error());
    std::string id(text_of(*root, "UploadId"));
    if (id.empty()) return odd("has no UploadId");
    return id;
}

Result<S3Completed> parse_completed(std::string_view xml) {
    S3Completed completed;
    completed.error = parse_error_document(xml);
    if (!completed.error.code.empty()) return completed;
    pugi::xml_document document;
    const auto root = parse_root(document, xml, "CompleteMultipartUploadResult");
    if (!root) return tl::unexpected(root.error());
    completed.etag = without_quotes(text_of(*root, "ETag"));
    return completed;
}

Result<std::vector<S3NotDeleted>> parse_deleted(std::string_view xml) {
    pugi::xml_document document;
    const auto root = parse_root(document, xml, "DeleteResult");
    if (!root) return tl::unexpected(root.error());
    std::vector<S3NotDeleted> errors;
    for (const auto node : root->children("Error")) {
        if (errors.size() == limits::delete_objects_max) return odd("has more errors than keys were asked for");
        errors.push_back({std::string(text_of(node, "Key")), error_of(node)});
    }
    return errors;
}

namespace {

Result<std::optional<Stat>> parse_exists_line(std::string_view line) {
    if (line == "-") return std::nullopt;
    const auto first = line.find(' ');
    const auto second = first == std::string_view::npos ? first : line.find(' ', first + 1);
    if (second == std::string_view::npos) return odd("to exists has a line without size, time and etag");
    const auto size = number(line.substr(0, first));
    const auto time = number(line.substr(first + 1, second - first - 1));
    const auto etag = line.substr(second + 1);
    const bool quoted = etag.size() > 2 && etag.front() == '"' && etag.back() == '"';
    if (!size || !time || *time > std::uint64_t{INT64_MAX} || !quoted) return odd("to exists has a broken line");
    constexpr std::uint64_t second_ns = 1'000'000'000;
    return std::optional<Stat>(
        Stat{*size, static_cast<std::int64_t>(*time - *time % second_ns), without_quotes(etag), {}});
}

}  // namespace

Result<std::vector<std::optional<Stat>>> parse_exists(std::string_view text, std::size_t keys) {
    std::vector<std::optional<Stat>> stats;
    stats.reserve(keys);
    while (!text.empty()) {
        const auto end = std::min(text.find('\n'), text.size());
        auto line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (line.ends_with('\r')) line.remove_suffix(1);
        if (stats.size() == keys) return odd("to exists has more lines than keys were asked about");
        auto stat = parse_exists_line(line);
        if (!stat) return tl::unexpected(stat.error());
        stats.push_back(std::move(*stat));
    }
    if (stats.size() != keys) return odd("to exists has fewer lines than keys were asked about");
    return stats;
}

Result<Space> parse_space(std::string_view json) {
    if (json_deeper_than(json, limits::json_depth_max)) return odd("about space is nested too deep");
    const auto document = nlohmann::json::parse(json, nullptr, false);
    if (!document.is_object()) return odd("about space is no JSON object");
    const auto value = [&document](const char* name) -> std::optional<std::uint64_t> {
        const auto found = document.find(name);
        if (found == document.end() || !found->is_number_unsigned()) return std::nullopt;
        return found->get<std::uint64_t>();
    };
    const auto capacity = value("capacity_bytes"), free = value("free_bytes");
    if (!capacity || !free) return odd("about space has no capacity_bytes and free_bytes");
    return Space{*capacity, *free, value("quota_bytes").value_or(0)};
}

Result<S3Ways> parse_ways(std::string_view json) {
    if (json_deeper_than(json, limits::json_depth_max)) return odd("about the fabric is nested too deep");
    const auto document = nlohmann::json::parse(json, nullptr, false);
    if (!document.is_object()) return odd("about the fabric is no JSON object");
    S3Ways ways;
    if (const auto local = document.find("local"); local != document.end()) {
        if (!local->is_object()) return odd("about the fabric is not as expected");
        const auto text = [&local](const char* name) {
            const auto found = local->find(name);
            return found != local->end() && found->is_string() ? found->get<std::string>() : std::string();
        };
        ways.socket = text("socket");
        ways.host = text("host");
    }
    const auto ofi = document.find("ofi");
    if (ofi == document.end()) return ways;
    const auto providers = ofi->is_object() ? ofi->find("providers") : ofi->end();
    if (!ofi->is_object() || providers == ofi->end() || !providers->is_array()) {
        return odd("about the fabric is not as expected");
    }
    for (const auto& one : *providers) {
        if (one.is_string()) ways.ofi_providers.push_back(one.get<std::string>());
    }
    return ways;
}

}  // namespace kvern
