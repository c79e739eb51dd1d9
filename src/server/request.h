// SPDX-License-Identifier: Apache-2.0
// Request: what an exchange asks for in S3's terms, and who asks. Loop's thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "http/query.h"
#include "http/s3_error.h"
#include "http/server.h"
#include "http/sigv4.h"
#include "server/keys.h"
#include "server/window.h"

namespace kvern::server {

struct Request {
    explicit Request(http::Exchange& of) : exchange(of) {}

    http::Exchange& exchange;
    std::string id;             // x-amz-request-id
    std::string bucket, key;    // decoded; empty where there is none
    std::string_view raw_path;  // as on the wire
    std::vector<http::QueryPair> query;
    http::Authorization authorization;
    const AccessKey* who = nullptr;  // null: nobody, which --anonymous lets do everything
    std::optional<http::ChunkSeed> chunk_seed;
    std::string operation;         // "GetObject", for logs and metrics
    std::string error;             // S3's code, for the log
    std::optional<Window> window;  // the client's memory, where a token names one that can be reached
    std::uint64_t window_bytes_in = 0, window_bytes_out = 0;  // moved from and to it
    // Of an error of its range: the object's size, and that as a Content-Range.
    std::optional<std::uint64_t> error_size_bytes;
    std::string error_range;

    std::string_view method() const { return exchange.request().method; }
    std::optional<std::string_view> header(std::string_view name) const { return exchange.request().find(name); }
    // The value of a query parameter, or nothing.
    std::optional<std::string_view> param(std::string_view name) const;
    bool has(std::string_view name) const { return param(name).has_value(); }
};

// Splits the target into bucket, key and query. `domains`: hosts whose subdomains are buckets.
http::S3Result<> parse_target(Request& request, const std::vector<std::string>& domains);

// S3's rules for new buckets: 3 to 63 of a-z 0-9 . -, beginning and ending with a letter or digit, no "..", no IP
// address.
bool valid_bucket_name(std::string_view name);

// x-amz-copy-source: "bucket/key", encoded, with an optional slash in front. invalid_argument where it is neither.
struct CopySource {
    std::string bucket, key;
};
http::S3Result<CopySource> parse_copy_source(std::string_view value);

// A number in a query or header, such as max-keys; nothing where it is none or beyond `max`.
std::optional<std::uint64_t> parse_number(std::string_view text, std::uint64_t max);

}  // namespace kvern::server
