// SPDX-License-Identifier: Apache-2.0
#include "keep/forest.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace kvern {
namespace {

// The chunk with this tag. Chunks lie in the order of their hashes, and so of their tags.
std::uint32_t find_tag(const Catalogue& catalogue, const StoredNamespace& space, std::uint64_t tag) {
    const auto begin = catalogue.chunks.begin() + space.first_chunk;
    const auto end = begin + space.chunks;
    const auto tag_of = [&](const StoredChunk& chunk) { return catalogue.hash_of(chunk).tag(); };
    const auto found =
        std::lower_bound(begin, end, tag, [&](const StoredChunk& chunk, std::uint64_t t) { return tag_of(chunk) < t; });
    if (found == end || tag_of(*found) != tag) return no_chunk;
    return static_cast<std::uint32_t>(found - catalogue.chunks.begin());
}

void find_parents(const Catalogue& catalogue, Forest& forest) {
    for (std::uint32_t i = 0; i < catalogue.chunks.size(); ++i) {
        const auto& chunk = catalogue.chunks[i];
        if (chunk.parent == 0) continue;
        forest.parent[i] = find_tag(catalogue, catalogue.namespaces[chunk.name_space], chunk.parent);
        forest.unreachable[i] = forest.parent[i] == no_chunk;
    }
}

// Leaves first: a chunk stands behind all of its descendants. Chunks whose parents run in a circle lose their parent.
std::vector<std::uint32_t> leaves_first(Forest& forest) {
    std::vector<std::uint32_t> children(forest.parent.size());
    for (const auto parent : forest.parent) {
        if (parent != no_chunk) ++children[parent];
    }
    std::vector<std::uint32_t> order;
    order.reserve(forest.parent.size());
    for (std::uint32_t i = 0; i < children.size(); ++i) {
        if (children[i] == 0) order.push_back(i);
    }
    for (std::size_t next = 0; next < order.size(); ++next) {
        const auto parent = forest.parent[order[next]];
        if (parent != no_chunk && --children[parent] == 0) order.push_back(parent);
    }
    for (std::uint32_t i = 0; i < children.size() && order.size() < children.size(); ++i) {
        if (children[i] == 0) continue;
        forest.parent[i] = no_chunk;
        forest.unreachable[i] = true;
        order.push_back(i);
    }
    return order;
}

}  // namespace

Forest grow_forest(const Catalogue& catalogue) {
    const auto count = catalogue.chunks.size();
    Forest forest{std::vector<std::uint32_t>(count, no_chunk), std::vector<std::uint32_t>(count),
                  std::vector<std::int64_t>(count), std::vector<bool>(count)};
    find_parents(catalogue, forest);
    const auto order = leaves_first(forest);
    for (std::uint32_t i = 0; i < count; ++i) forest.use_ns[i] = catalogue.use_of(catalogue.chunks[i]);
    for (const auto i : order) {
        const auto parent = forest.parent[i];
        if (parent != no_chunk) forest.use_ns[parent] = std::max(forest.use_ns[parent], forest.use_ns[i]);
    }
    for (auto next = order.rbegin(); next != order.rend(); ++next) {
        const auto parent = forest.parent[*next];
        if (parent == no_chunk) continue;
        forest.depth[*next] = forest.depth[parent] + 1;
        if (forest.unreachable[parent]) forest.unreachable[*next] = true;
    }
    return forest;
}

std::vector<std::uint32_t> eviction_order(const Forest& forest) {
    std::vector<std::uint32_t> order(forest.parent.size());
    std::iota(order.begin(), order.end(), 0U);
    const auto rank = [&](std::uint32_t i) {
        return std::tuple(forest.use_ns[i], !forest.unreachable[i], ~forest.depth[i], i);
    };
    std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return rank(a) < rank(b); });
    return order;
}

}  // namespace kvern
