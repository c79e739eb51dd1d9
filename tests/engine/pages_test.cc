// SPDX-License-Identifier: Apache-2.0
#include "engine/pages.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <numeric>

#include "base/crc32c.h"
#include "engine/kv_memory.h"

namespace kvern {
namespace {

using testing::KvMemory;

KvMemory::Shape random_shape() {
    KvMemory::Shape shape;
    shape.layers = *rc::gen::inRange(1u, 5u);
    shape.blocks = *rc::gen::inRange(4u, 20u);
    shape.blocks_per_chunk = *rc::gen::inRange(1u, 5u);
    shape.page_bytes = *rc::gen::inRange<std::size_t>(1, 9000);
    shape.stride_bytes = shape.page_bytes + *rc::gen::inRange<std::size_t>(0, 100);
    shape.shard = {0, shape.layers - 1, 0, 0};
    return shape;
}

// `count` different blocks in random order.
std::vector<std::int32_t> random_blocks(std::uint32_t blocks, std::uint32_t count) {
    std::vector<std::int32_t> all(blocks);
    std::iota(all.begin(), all.end(), 0);
    std::shuffle(all.begin(), all.end(), std::mt19937(*rc::gen::arbitrary<unsigned>()));
    all.resize(count);
    return all;
}

TEST(Pages, WhatIsGatheredIsScatteredIntoOtherBlocks) {
    EXPECT_TRUE(rc::check("scatter(gather(x)) == x, and nothing else is written", [] {
        const auto shape = random_shape();
        const KvMemory from(shape), to(shape);
        const GroupMemory& worker = from.group();
        const auto source = random_blocks(shape.blocks, shape.blocks_per_chunk);
        auto target = random_blocks(shape.blocks, shape.blocks_per_chunk);
        for (auto& block : target)
            if (*rc::gen::inRange(0, 4) == 0) block = no_block;
        const ObjectLayout layout = worker.object_layout();
        std::vector<std::byte> object(layout.object_bytes, std::byte{0x77});
        std::vector<std::uint32_t> crcs;
        gather(worker, source, object, crcs);
        for (std::uint32_t i = 0; i < layout.slice_count; ++i) {
            const std::byte* slice = object.data() + layout.slice_offset(i);
            RC_ASSERT(crc32c(0, slice, layout.slice_stride) == crcs[i]);
            RC_ASSERT(std::all_of(slice + layout.slice_bytes, slice + layout.slice_stride,
                                  [](std::byte byte) { return byte == std::byte{0}; }));
        }
        RC_ASSERT(std::all_of(object.begin(), object.begin() + static_cast<std::ptrdiff_t>(layout.header_bytes),
                              [](std::byte byte) { return byte == std::byte{0x77}; }));
        RC_ASSERT(scatter_and_verify(to.group(), target, object, crcs) == 0u);
        for (std::uint32_t block = 0; block < shape.blocks; ++block) {
            const auto found = std::find(target.begin(), target.end(), static_cast<std::int32_t>(block));
            const auto content =
                found == target.end() ? block : static_cast<std::uint32_t>(source[found - target.begin()]);
            RC_ASSERT(to.holds(block, content));
        }
    }));
}

// I10: a slice is summed with its gap, and whole even where a part of it is copied nowhere.
TEST(Pages, EveryDamagedSliceIsCounted) {
    EXPECT_TRUE(rc::check("scatter counts the slices that were damaged", [] {
        const auto shape = random_shape();
        const KvMemory memory(shape);
        const ObjectLayout layout = memory.group().object_layout();
        std::vector<std::byte> object(layout.object_bytes);
        std::vector<std::uint32_t> crcs;
        const auto blocks = random_blocks(shape.blocks, shape.blocks_per_chunk);
        gather(memory.group(), blocks, object, crcs);
        std::uint32_t damaged = 0;
        for (std::uint32_t i = 0; i < layout.slice_count; ++i) {
            if (*rc::gen::arbitrary<bool>()) continue;
            ++damaged;
            object[layout.slice_offset(i) + *rc::gen::inRange<std::size_t>(0, layout.slice_stride)] ^= std::byte{0x10};
        }
        auto target = blocks;
        if (*rc::gen::arbitrary<bool>()) std::fill(target.begin(), target.end(), no_block);
        RC_ASSERT(scatter_and_verify(memory.group(), target, object, crcs) == damaged);
    }));
}

TEST(Pages, KnowsWhichBlocksExist) {
    const KvMemory memory;  // 32 blocks, two a chunk
    const WorkerMemory& worker = memory.worker();
    EXPECT_TRUE(worker.knows(0, std::vector<std::int32_t>{0, 31}, false));
    EXPECT_FALSE(worker.knows(0, std::vector<std::int32_t>{0, 32}, true));
    EXPECT_FALSE(worker.knows(0, std::vector<std::int32_t>{0, -2}, true));
    EXPECT_FALSE(worker.knows(0, std::vector<std::int32_t>{0, no_block}, false));
    EXPECT_TRUE(worker.knows(0, std::vector<std::int32_t>{0, no_block}, true));
    EXPECT_FALSE(worker.knows(0, std::vector<std::int32_t>{0}, true));
    EXPECT_FALSE(worker.knows(0, std::vector<std::int32_t>{0, 1, 2}, true));
    EXPECT_FALSE(worker.knows(0, {}, true));
    EXPECT_FALSE(worker.knows(1, std::vector<std::int32_t>{0, 31}, false)) << "there is one group";
}

TEST(Pages, MemoryThatCantBeServedIsNamed) {
    const KvMemory memory;
    const auto error_with = [&](auto change) {
        WorkerMemory worker = memory.worker();
        change(worker);
        const auto checked = worker.check();
        return checked ? "accepted" : checked.error().message;
    };
    EXPECT_EQ(error_with([](WorkerMemory&) {}), "accepted");
    EXPECT_EQ(error_with([](WorkerMemory& w) { w.groups.clear(); }), "there is no KV memory");
    EXPECT_EQ(error_with([](WorkerMemory& w) { w.groups[0].replicas = 0; }), "replica 0 of 0 can't be");
    EXPECT_EQ(error_with([](WorkerMemory& w) { w.groups[0].layers.clear(); }), "0 layers can't be served");
    EXPECT_EQ(error_with([](WorkerMemory& w) { w.groups[0].plan.block_tokens = 0; }),
              "a chunk of 8 tokens is no multiple of a block of 0");
    EXPECT_EQ(error_with([](WorkerMemory& w) { w.groups[0].plan.block_tokens = 3; }),
              "a chunk of 8 tokens is no multiple of a block of 3");
    EXPECT_EQ(error_with([](WorkerMemory& w) { w.groups[0].plan.chunk_tokens = 0; }),
              "a chunk of 0 tokens is no multiple of a block of 4");
    EXPECT_EQ(error_with([](WorkerMemory& w) { w.groups[0].shard.last_layer = 2; }),
              "2 layers do not fit shard l0-2.h0-0");
    EXPECT_EQ(error_with([](WorkerMemory& w) { w.groups[0].shard.first_layer = 3; }),
              "2 layers do not fit shard l3-1.h0-0");
    EXPECT_EQ(error_with([](WorkerMemory& w) { w.groups[0].layers[1].base = nullptr; }),
              "layer layer.1: pages of 600 bytes every 600 bytes are no plain KV memory");
    EXPECT_EQ(error_with([](WorkerMemory& w) { w.groups[0].layers[1].block_stride_bytes = 599; }),
              "layer layer.1: pages of 600 bytes every 599 bytes are no plain KV memory");
    EXPECT_EQ(error_with([](WorkerMemory& w) { w.groups[0].page_bytes = 0; }),
              "layer layer.0: pages of 0 bytes every 600 bytes are no plain KV memory");
}

}  // namespace
}  // namespace kvern
