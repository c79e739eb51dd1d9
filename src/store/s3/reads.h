// SPDX-License-Identifier: Apache-2.0
// Operations that change nothing: get, stat, list and space, each as a coroutine over one endpoint or all of them.
//
// The endpoints' loop. An operation outlives its coroutine; it was checked by check_op() before.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "store/s3/endpoint.h"

namespace kvern {

http::Task<Outcome> s3_get(S3Endpoint& endpoint, const Op& op);
http::Task<Outcome> s3_stat(S3Endpoint& endpoint, const Op& op);
// The outcomes of many stats, in order: one question to a kvern server (which tells no metadata), else many at a time.
http::Task<std::vector<Outcome>> s3_stats(S3Endpoint& endpoint, std::span<const Op* const> ops);

// Which endpoint keeps a key: the index of one of them.
using S3Owner = std::function<std::size_t(std::string_view key)>;
// Of all endpoints together. With several, an entry counts only where its key belongs: a list shows what a get can get.
http::Task<Outcome> s3_list(std::span<S3Endpoint* const> endpoints, const S3Owner& owner, const Op& op);
http::Task<Outcome> s3_space(std::span<S3Endpoint* const> endpoints);

// HEAD, with the checksum that the object was stored with, if the server tells it.
struct S3Look {
    Outcome outcome;       // as of a stat
    std::string checksum;  // base64 of the endpoint's algorithm; empty: not told
};
http::Task<S3Look> s3_look(S3Endpoint& endpoint, const std::string& s3_key, bool with_metadata);

}  // namespace kvern
