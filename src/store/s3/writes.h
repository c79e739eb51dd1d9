// SPDX-License-Identifier: Apache-2.0
// Operations that change something: put and remove, each as a coroutine over one endpoint.
//
// The endpoint's loop. An operation outlives its coroutine; it was checked by check_op() before. A remove looks first,
// since S3 does not tell whether there was anything; what another writer does between the look and the removal is lost
// unless the condition is an etag and the server honours it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "store/s3/endpoint.h"

namespace kvern {

http::Task<Outcome> s3_put(S3Endpoint& endpoint, const Op& op);
http::Task<Outcome> s3_remove(S3Endpoint& endpoint, const Op& op);
// The outcomes of many removes without conditions, in order: looks, then one DeleteObjects for what is there.
http::Task<std::vector<Outcome>> s3_removes(S3Endpoint& endpoint, std::span<const Op* const> ops);

// Metadata as it goes into a header, or not_supported where it is too long. Empty: none.
Result<std::string> s3_metadata_text(const std::string& metadata);
std::size_t s3_metadata_bytes_max();

// How a write under a condition ends that a look decides: nothing if the condition holds, as far as the look knows.
http::Task<std::optional<Outcome>> s3_condition_fails(S3Endpoint& endpoint, const std::string& s3_key,
                                                      Condition condition, const std::string& etag);
// The header of a condition, if there is one.
void add_condition(S3Request& request, Condition condition, const std::string& etag);

// What the server said to a write. `known`: how to know again what was written, if an earlier attempt was not answered.
struct S3Written {
    std::uint64_t size_bytes = 0;
    std::string checksum;                        // of the endpoint's algorithm, base64; empty: none was sent
    const std::vector<Buffer>* bytes = nullptr;  // null: not at hand any more
};
http::Task<Outcome> s3_write_outcome(S3Endpoint& endpoint, const std::string& s3_key, S3Answer answer,
                                     Condition condition, const S3Written& known);

}  // namespace kvern
