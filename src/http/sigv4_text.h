// SPDX-License-Identifier: Apache-2.0
// The texts that SigV4 hashes and signs, put together in memory that is used again. Inside http/ only. Pure functions,
// any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/sha256.h"
#include "http/header_view.h"

namespace kvern::http::sigv4 {

inline constexpr std::string_view algorithm = "AWS4-HMAC-SHA256";
inline constexpr std::string_view service = "s3";
inline constexpr std::string_view terminator = "aws4_request";
inline constexpr std::size_t day_bytes = 8;  // of a date like 20130524T000000Z

// The SHA-256 of no bytes.
inline constexpr std::string_view empty_hash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

std::string_view trimmed(std::string_view text);  // without spaces and tabs at both ends
bool equal_in_constant_time(std::string_view a, std::string_view b);

void append_hex(std::string& to, const Digest& digest);

// "20130524/us-east-1/s3/aws4_request"
void append_scope(std::string& to, std::string_view day, std::string_view region);

struct CanonicalRequest {
    std::string_view method;
    std::string_view path;                // encoded
    std::string_view query;               // canonical
    std::span<const HeaderView> headers;  // all signed ones, sorted; several of one name become one line
    std::string_view signed_names;
    std::string_view payload_hash;
};

// The signature of a request as hex digits; `scratch` is overwritten.
void append_signature(std::string& to, const CanonicalRequest& request, const HmacSha256& key,
                      std::string_view amz_date, std::string_view scope, std::string& scratch);

}  // namespace kvern::http::sigv4
