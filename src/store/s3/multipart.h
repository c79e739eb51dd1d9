// SPDX-License-Identifier: Apache-2.0
// A value that goes to S3 in parts: created, uploaded, completed; or aborted, so that nothing of it is left.
//
// The endpoint's loop. Parts are numbered by the caller from 1, and may be uploaded side by side.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "store/s3/endpoint.h"

namespace kvern {

class S3Multipart {
  public:
    // `metadata`: as s3_metadata_text() gives it.
    S3Multipart(S3Endpoint& endpoint, std::string s3_key, std::string metadata)
        : endpoint_(endpoint), key_(std::move(s3_key)), metadata_(std::move(metadata)) {}

    bool created() const { return !id_.empty(); }
    // Nothing: done. Else why not. The buffers are the caller's until then.
    http::Task<std::optional<Outcome>> create();
    http::Task<std::optional<Outcome>> upload(unsigned number, std::vector<Buffer> bytes);
    // All parts as one value, under a condition if the endpoint honours it. REQUIRES: no part under way.
    http::Task<Outcome> complete(Condition condition, const std::string& etag);
    // Best effort: what is left is for the bucket's own rules for unfinished uploads.
    http::Task<void> abort();

    std::uint64_t size_bytes() const { return size_bytes_; }

  private:
    struct Part {
        std::string etag;
        std::uint64_t size_bytes = 0;
        std::optional<http::ChecksumValue> sum;
    };
    S3Request request(std::string_view method) const;
    std::string document() const;
    std::string whole_checksum() const;

    S3Endpoint& endpoint_;
    const std::string key_, metadata_;
    std::string id_;
    std::vector<Part> parts_;
    std::uint64_t size_bytes_ = 0;
};

// How large the parts of a value of this size are: as many as keep some connections busy, never too many.
std::uint64_t s3_part_bytes(std::uint64_t size_bytes, std::uint64_t multipart_bytes);

// A put whose value is larger than multipart=. The condition was looked up before.
http::Task<Outcome> s3_put_parts(S3Endpoint& endpoint, const Op& op);

}  // namespace kvern
