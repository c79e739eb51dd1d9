// SPDX-License-Identifier: Apache-2.0
// The client's half of SigV4, and the key that both halves keep.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "http/sigv4.h"
#include "http/sigv4_text.h"

namespace kvern::http {
namespace {

std::string_view as_text(const Digest& digest) {
    return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace

const HmacSha256& SigningKey::of(std::string_view secret_key, std::string_view day, std::string_view region) {
    // day_ is empty until the first call, and no day is.
    if (day == day_ && region == region_ && secret_key == secret_key_) return key_;
    std::string start = "AWS4";
    start += secret_key;
    const Digest by_day = HmacSha256(start).sign(day);
    const Digest by_region = HmacSha256(as_text(by_day)).sign(region);
    const Digest by_service = HmacSha256(as_text(by_region)).sign(sigv4::service);
    key_ = HmacSha256(as_text(HmacSha256(as_text(by_service)).sign(sigv4::terminator)));
    secret_key_ = secret_key;
    day_ = day;
    region_ = region;
    return key_;
}

Signer::Signer(Credentials credentials, std::string region)
    : credentials_(std::move(credentials)), region_(std::move(region)) {}

SignedHeaders Signer::sign(const RequestHead& request, std::string_view payload_hash, sys_seconds now) {
    const std::string_view amz_date = dates_.basic(now);
    headers_.assign(request.headers.begin(), request.headers.end());
    headers_.push_back({"x-amz-content-sha256", payload_hash});
    headers_.push_back({"x-amz-date", amz_date});
    if (!credentials_.session_token.empty()) {
        headers_.push_back({"x-amz-security-token", credentials_.session_token});
    }
    sort_headers();

    authorization_.assign(sigv4::algorithm);
    authorization_ += " Credential=";
    authorization_ += credentials_.access_key;
    authorization_ += '/';
    authorization_ += scope(amz_date.substr(0, sigv4::day_bytes));
    authorization_ += ", SignedHeaders=";
    authorization_ += signed_names_;
    authorization_ += ", Signature=";
    const std::string query = canonical_query(request.query);
    append_signature(authorization_, request, query, payload_hash, amz_date);
    return {authorization_, amz_date, payload_hash, credentials_.session_token};
}

std::string Signer::presign(const RequestHead& request, std::chrono::seconds life, sys_seconds now) {
    const std::string_view amz_date = dates_.basic(now);
    headers_.assign(request.headers.begin(), request.headers.end());
    sort_headers();
    const auto today = scope(amz_date.substr(0, sigv4::day_bytes));

    std::vector<QueryPair> pairs(request.query.begin(), request.query.end());
    pairs.push_back({"X-Amz-Algorithm", std::string(sigv4::algorithm)});
    pairs.push_back({"X-Amz-Credential", fmt::format("{}/{}", credentials_.access_key, today)});
    pairs.push_back({"X-Amz-Date", std::string(amz_date)});
    pairs.push_back({"X-Amz-Expires", fmt::format("{}", life.count())});
    pairs.push_back({"X-Amz-SignedHeaders", signed_names_});
    if (!credentials_.session_token.empty()) pairs.push_back({"X-Amz-Security-Token", credentials_.session_token});

    std::string query = canonical_query(pairs);
    std::string signature;
    append_signature(signature, request, query, unsigned_payload, amz_date);
    query += "&X-Amz-Signature=";
    query += signature;
    return query;
}

std::string_view Signer::scope(std::string_view day) {
    if (!scope_.starts_with(day)) {
        scope_.clear();
        sigv4::append_scope(scope_, day, region_);
    }
    return scope_;
}

void Signer::sort_headers() {
    // Few: an insertion sort, which leaves those of one name as they are and takes no memory.
    for (auto next = headers_.begin(); next != headers_.end(); ++next) {
        const auto place = std::upper_bound(headers_.begin(), next, *next,
                                            [](const HeaderView& a, const HeaderView& b) { return a.name < b.name; });
        std::rotate(place, next, next + 1);
    }
    signed_names_.clear();
    for (std::size_t i = 0; i < headers_.size(); ++i) {
        if (i > 0 && headers_[i].name == headers_[i - 1].name) continue;
        if (i > 0) signed_names_ += ';';
        signed_names_ += headers_[i].name;
    }
}

void Signer::append_signature(std::string& to, const RequestHead& request, std::string_view query,
                              std::string_view payload_hash, std::string_view amz_date) {
    const HmacSha256& key = key_.of(credentials_.secret_key, amz_date.substr(0, sigv4::day_bytes), region_);
    const sigv4::CanonicalRequest canonical{request.method, request.path, query, headers_, signed_names_, payload_hash};
    sigv4::append_signature(to, canonical, key, amz_date, scope_, text_);
}

}  // namespace kvern::http
