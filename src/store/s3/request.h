// SPDX-License-Identifier: Apache-2.0
// One request to S3 as an operation wants it, and its signed head as it goes over the wire.
//
// Values of one thread. Nothing is sent here.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "http/query.h"
#include "http/sigv4.h"
#include "kvern/store.h"
#include "store/s3/options.h"

namespace kvern {

struct S3Request {
    std::string_view method = "GET";
    std::string key;  // with the prefix; empty: the bucket
    std::vector<http::QueryPair> query;
    std::vector<std::pair<std::string_view, std::string>> headers;  // names in lower case; all are signed

    std::vector<Buffer> body;  // the caller's memory, which is not hashed: a checksum header does that
    std::string text;          // a small body of our own instead, which is
    std::vector<Buffer> into;  // where the body of a good answer goes; else it becomes text
    bool text_answer = true;
    std::optional<http::ChecksumAlgorithm> sum_answer;  // sums what goes into `into`
    bool once = false;        // not sent again unless it was answered: what it began may still be going on
    bool body_aside = false;  // the body of a PUT is where a token says: none is sent, and none is hashed

    std::uint64_t body_bytes() const;
    bool has_body() const { return method == "PUT" || method == "POST"; }
};

// The sum of some buffers as a header: x-amz-checksum-crc64nvme and its base64.
std::pair<std::string_view, std::string> checksum_header(http::ChecksumAlgorithm algorithm,
                                                         const std::vector<Buffer>& buffers);
std::string checksum_text(http::ChecksumAlgorithm algorithm, const std::vector<Buffer>& buffers);

// The part [offset, offset + length) of a list of buffers. REQUIRES: it lies within.
std::vector<Buffer> part_of(const std::vector<Buffer>& buffers, std::uint64_t offset, std::uint64_t length);

// Request line and headers, to the empty line. `signer` null: not signed.
std::string request_head(const S3Request& request, const S3Place& place, http::Signer* signer, http::sys_seconds now);

}  // namespace kvern
