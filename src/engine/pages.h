// SPDX-License-Identifier: Apache-2.0
// The engine's KV memory as one worker sees it, and the two copies: gather (blocks to an object) and scatter + verify.
//
// Pure functions over memory that the engine owns; the caller makes sure that nobody else writes the blocks meanwhile.
// Host memory only; where the KV memory is a device's, only the sums are taken here (see copies.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cache/group.h"
#include "cache/object.h"
#include "kvern/result.h"

namespace kvern {

// One layer's pages: page b starts at base + b * block_stride_bytes. On a device there is no base.
struct LayerMemory {
    std::string name;
    std::byte* base = nullptr;
    std::uint64_t block_stride_bytes = 0;
};

// The layers of one group. Several groups may lie in the same memory: a block belongs to one of them at a time.
struct GroupMemory {
    std::vector<LayerMemory> layers;  // in the model's order; the same blocks in each
    std::uint64_t page_bytes = 0;     // content of one block of one layer; the stride may be longer
    GroupPlan plan;
    Shard shard;
    // Ranks that hold the same bytes store each chunk once: the rank with this index takes every replicas-th one.
    std::uint32_t replica = 0, replicas = 1;

    ObjectLayout object_layout() const;
};

struct WorkerMemory {
    std::vector<GroupMemory> groups;
    std::uint32_t num_blocks = 0;
    bool on_device = false;  // the engine's runtime copies to and from staging

    std::uint64_t largest_object_bytes() const;
    // Errors name the layer: overlapping pages, no memory, a chunk that is no multiple of the block.
    Result<void> check() const;
    // True if there is one block for each page of an object of the group and every one exists (or is no_block, where
    // allowed).
    bool knows(std::uint32_t group, std::span<const std::int32_t> blocks, bool holes_allowed) const;
};

// Copies the blocks' pages into the slices of `object` (object_layout().object_bytes, header left alone) and sums them.
// REQUIRES: as many blocks as an object has pages, and all of them exist.
void gather(const GroupMemory& memory, std::span<const std::int32_t> blocks, std::span<std::byte> object,
            std::vector<std::uint32_t>& slice_crcs);

// Sums the slices of an object whose pages are in place already; clears the gaps between them.
void sum_slices(const ObjectLayout& layout, std::span<std::byte> object, std::vector<std::uint32_t>& slice_crcs);

// Copies the slices of `object` into the blocks, skipping no_block, and sums what it stores. Returns the number of
// slices whose sum is not the given one; then the blocks hold bytes that must not be used. REQUIRES: as for gather(),
// but for no_block.
std::uint32_t scatter_and_verify(const GroupMemory& memory, std::span<const std::int32_t> blocks,
                                 std::span<const std::byte> object, std::span<const std::uint32_t> slice_crcs);

// The number of slices of `object` whose sum is not the given one.
std::uint32_t verify_slices(const ObjectLayout& layout, std::span<const std::byte> object,
                            std::span<const std::uint32_t> slice_crcs);

}  // namespace kvern
