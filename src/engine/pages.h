// SPDX-License-Identifier: Apache-2.0
// The engine's KV memory as one worker sees it, and the two copies: gather (blocks to an object) and scatter + verify.
//
// Pure functions over memory that the engine owns; the caller makes sure that nobody else writes the blocks meanwhile.
// Host memory only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cache/object.h"
#include "kvern/result.h"

namespace kvern {

// One layer's pages: page b starts at base + b * block_stride_bytes.
struct LayerMemory {
    std::string name;
    std::byte* base = nullptr;
    std::uint64_t block_stride_bytes = 0;
};

struct WorkerMemory {
    std::vector<LayerMemory> layers;  // in the model's order; the same blocks in each
    std::uint32_t num_blocks = 0;
    std::uint64_t page_bytes = 0;  // one block of one layer
    std::uint32_t block_tokens = 0, chunk_tokens = 0;
    Shard shard;

    std::uint32_t blocks_per_chunk() const { return chunk_tokens / block_tokens; }
    ObjectLayout object_layout() const;
    // Errors name the layer: overlapping pages, no memory, a chunk that is no multiple of the block.
    Result<void> check() const;
    // True if there is one block for each page of a chunk and every one exists (or is no_block, where allowed).
    bool knows(std::span<const std::int32_t> blocks, bool holes_allowed) const;
};

// Copies the chunk's pages into the slices of `object` (object_layout().object_bytes, header left alone) and sums them.
// REQUIRES: memory.knows(blocks, false).
void gather(const WorkerMemory& memory, std::span<const std::int32_t> blocks, std::span<std::byte> object,
            std::vector<std::uint32_t>& slice_crcs);

// Copies the slices of `object` into the blocks, skipping no_block, and sums what it stores. Returns the number of
// slices whose sum is not the given one; then the blocks hold bytes that must not be used. REQUIRES:
// memory.knows(blocks, true).
std::uint32_t scatter_and_verify(const WorkerMemory& memory, std::span<const std::int32_t> blocks,
                                 std::span<const std::byte> object, std::span<const std::uint32_t> slice_crcs);

}  // namespace kvern
