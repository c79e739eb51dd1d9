// SPDX-License-Identifier: Apache-2.0
#include "keep/forest.h"

#include <rapidcheck.h>

#include <algorithm>
#include <map>

#include "keep/keep_fixture.h"

namespace kvern::testing {
namespace {

struct Chunk {
    std::string name, parent;
    std::int64_t use_ns = 0;
};

Catalogue catalogue_of(const std::vector<Chunk>& chunks) {
    std::vector<Entry> entries;
    for (const auto& one : chunks) {
        const auto key =
            object_key(std::string(64, 'b'), {hash_of(one.name), tag_of(one.parent)}, 0, whole_shard.text());
        entries.push_back({key, 100, one.use_ns, "etag"});
    }
    std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.key < b.key; });
    Catalogue catalogue;
    for (const auto& entry : entries) catalogue.add(entry);
    return catalogue;
}

std::uint32_t find(const Catalogue& catalogue, const std::string& name) {
    for (std::uint32_t i = 0; i < catalogue.chunks.size(); ++i) {
        if (catalogue.hash_of(catalogue.chunks[i]) == hash_of(name)) return i;
    }
    return no_chunk;
}

TEST(Forest, FindsParentsDepthsAndTheNewestUseBelow) {
    const auto catalogue = catalogue_of({{"a", "", 10}, {"b", "a", 20}, {"c", "b", 5}, {"d", "a", 50}, {"e", "", 1}});
    const auto forest = grow_forest(catalogue);
    const auto at = [&](const char* name) { return find(catalogue, name); };
    EXPECT_EQ(forest.parent[at("a")], no_chunk);
    EXPECT_EQ(forest.parent[at("b")], at("a"));
    EXPECT_EQ(forest.parent[at("c")], at("b"));
    EXPECT_EQ(forest.parent[at("d")], at("a"));
    EXPECT_EQ(forest.depth[at("c")], 2U);
    EXPECT_EQ(forest.depth[at("e")], 0U);
    EXPECT_EQ(forest.use_ns[at("a")], 50);
    EXPECT_EQ(forest.use_ns[at("b")], 20);
    EXPECT_EQ(forest.use_ns[at("c")], 5);
    EXPECT_EQ(std::count(forest.unreachable.begin(), forest.unreachable.end(), true), 0);
}

TEST(Forest, WhatHasNoAncestorIsUnreachableWithAllBelow) {
    const auto catalogue = catalogue_of({{"a", "", 1}, {"c", "missing", 1}, {"d", "c", 1}});
    const auto forest = grow_forest(catalogue);
    EXPECT_FALSE(forest.unreachable[find(catalogue, "a")]);
    EXPECT_TRUE(forest.unreachable[find(catalogue, "c")]);
    EXPECT_TRUE(forest.unreachable[find(catalogue, "d")]);
    const auto order = eviction_order(forest);
    EXPECT_EQ(order, (std::vector{find(catalogue, "d"), find(catalogue, "c"), find(catalogue, "a")}));
}

TEST(Forest, ACircleOfParentsIsUnreachableAndStillOrdered) {
    const auto catalogue = catalogue_of({{"a", "b", 1}, {"b", "a", 1}, {"c", "b", 9}, {"s", "s", 1}});
    const auto forest = grow_forest(catalogue);
    for (const bool unreachable : forest.unreachable) EXPECT_TRUE(unreachable);
    EXPECT_EQ(eviction_order(forest).size(), 4U);
}

TEST(Forest, AChunkNeverGoesBeforeItsDescendants) {
    EXPECT_TRUE(rc::check([] {
        const auto count = *rc::gen::inRange(1, 40);
        std::vector<Chunk> chunks;
        for (int i = 0; i < count; ++i) {
            const auto parent = *rc::gen::inRange(-2, i);  // -2: none, -1: one that is missing
            const auto use = *rc::gen::inRange(0, 5);
            chunks.push_back({std::to_string(i), parent == -2 ? "" : std::to_string(parent), use});
        }
        const auto catalogue = catalogue_of(chunks);
        const auto forest = grow_forest(catalogue);
        const auto order = eviction_order(forest);
        std::vector<std::size_t> place(order.size());
        for (std::size_t i = 0; i < order.size(); ++i) place[order[i]] = i;
        for (std::uint32_t i = 0; i < order.size(); ++i) {
            if (i > 0) RC_ASSERT(forest.use_ns[order[i - 1]] <= forest.use_ns[order[i]]);
            if (forest.parent[i] != no_chunk) RC_ASSERT(place[i] < place[forest.parent[i]]);
        }
    }));
}

}  // namespace
}  // namespace kvern::testing
