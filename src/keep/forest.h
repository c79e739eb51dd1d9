// SPDX-License-Identifier: Apache-2.0
// Forest: which chunk is of no use without which other, and so the order in which chunks may go.
//
// Pure functions of a catalogue; any thread. A prompt is read from its first chunk on, so a chunk counts as used when
// any of its descendants is: prefixes are cut from their tails, and nothing is left that can't be reached.
#pragma once

#include <cstdint>
#include <vector>

#include "keep/catalogue.h"

namespace kvern {

inline constexpr std::uint32_t no_chunk = ~std::uint32_t{0};

// One element a chunk of the catalogue, in its order.
struct Forest {
    std::vector<std::uint32_t> parent;  // no_chunk: it has none here
    std::vector<std::uint32_t> depth;   // 0: it has no parent here
    std::vector<std::int64_t> use_ns;   // the newest among it and its descendants
    std::vector<bool> unreachable;      // an ancestor is missing, or the parents run in a circle
};
Forest grow_forest(const Catalogue& catalogue);

// All chunks, the first to go first: longest unused; among equals unreachable ones, then the deepest. A chunk never
// stands before one of its descendants.
std::vector<std::uint32_t> eviction_order(const Forest& forest);

}  // namespace kvern
