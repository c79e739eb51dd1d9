// SPDX-License-Identifier: Apache-2.0
// The query of a request's target: raw text to decoded pairs, and pairs to the canonical text of SigV4.
//
// Pure functions, any thread. They do not know which names mean something.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvern/result.h"

namespace kvern::http {

struct QueryPair {
    std::string name;   // decoded
    std::string value;  // decoded; empty in both "?acl" and "?acl="
    bool operator==(const QueryPair&) const = default;
};

// Of what follows the '?', in order; empty parts ("a&&b") are skipped. '+' is a space, as S3 reads it. Fails with
// invalid_argument at a broken escape and beyond limits::query_pairs_max.
Result<std::vector<QueryPair>> parse_query(std::string_view raw);

// "name=value&..." encoded, then sorted by name and value: what SigV4 signs, and a good text for the wire as well.
std::string canonical_query(std::span<const QueryPair> pairs);

// The first pair of that name, or null.
const QueryPair* find_query(std::span<const QueryPair> pairs, std::string_view name);

}  // namespace kvern::http
