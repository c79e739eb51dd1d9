// SPDX-License-Identifier: Apache-2.0
// Queries and percent-encoding: what is read is written and read again as the same.
#include "http/query.h"

#include <algorithm>
#include <tuple>

#include "fuzz.h"
#include "http/percent.h"
#include "kvern/limits.h"

namespace kvern::fuzz {

using namespace http;

void check(std::string_view input) {
    for (const Plus plus : {Plus::literal, Plus::space}) {
        const auto decoded = percent_decode(input, plus);
        FUZZ_REQUIRE(decoded || !decoded.error().message.empty());
        FUZZ_REQUIRE(!decoded || decoded->size() <= input.size());
        for (const Slash slash : {Slash::keep, Slash::encode}) {
            const auto back = percent_decode(percent_encode(input, slash), plus);
            FUZZ_REQUIRE(back && *back == input);
        }
    }
    auto pairs = parse_query(input);
    if (!pairs) return;
    FUZZ_REQUIRE(pairs->size() <= limits::query_pairs_max);
    const std::string canonical = canonical_query(*pairs);
    auto again = parse_query(canonical);
    FUZZ_REQUIRE(again && canonical_query(*again) == canonical);
    const auto less = [](const QueryPair& a, const QueryPair& b) {
        return std::tie(a.name, a.value) < std::tie(b.name, b.value);
    };
    std::sort(pairs->begin(), pairs->end(), less);
    std::sort(again->begin(), again->end(), less);
    FUZZ_REQUIRE(*pairs == *again);
}

std::vector<std::string> seeds() {
    return {"list-type=2&prefix=a%2Fb+c&delimiter=/&max-keys=1000", "uploads", "a=%zz", "&&=&a=&=b&a==b", "%25%32%35"};
}

}  // namespace kvern::fuzz
