// SPDX-License-Identifier: Apache-2.0
#include "engine/pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/crc32c.h"
#include "engine/step.h"

namespace kvern {

ObjectLayout WorkerMemory::object_layout() const {
    return ObjectLayout::of(static_cast<std::uint32_t>(layers.size()), page_bytes * blocks_per_chunk());
}

Result<void> WorkerMemory::check() const {
    if (layers.empty() || layers.size() > limits::slices_max)
        return fail(ErrorCode::invalid_argument, fmt::format("{} layers can't be served", layers.size()));
    if (block_tokens == 0 || chunk_tokens == 0 || chunk_tokens % block_tokens != 0)
        return fail(ErrorCode::invalid_argument,
                    fmt::format("a chunk of {} tokens is no multiple of a block of {}", chunk_tokens, block_tokens));
    if (shard.last_layer < shard.first_layer || shard.layers() != layers.size())
        return fail(ErrorCode::invalid_argument,
                    fmt::format("{} layers do not fit shard {}", layers.size(), shard.text()));
    for (const LayerMemory& layer : layers)
        if (layer.base == nullptr || page_bytes == 0 || layer.block_stride_bytes < page_bytes)
            return fail(ErrorCode::invalid_argument,
                        fmt::format("layer {}: pages of {} bytes every {} bytes are no plain KV memory", layer.name,
                                    page_bytes, layer.block_stride_bytes));
    return {};
}

bool WorkerMemory::knows(std::span<const std::int32_t> blocks, bool holes_allowed) const {
    return blocks.size() == blocks_per_chunk() && std::all_of(blocks.begin(), blocks.end(), [&](std::int32_t block) {
               return block == no_block ? holes_allowed : block >= 0 && static_cast<std::uint32_t>(block) < num_blocks;
           });
}

void gather(const WorkerMemory& memory, std::span<const std::int32_t> blocks, std::span<std::byte> object,
            std::vector<std::uint32_t>& slice_crcs) {
    const ObjectLayout layout = memory.object_layout();
    const std::size_t gap_bytes = layout.slice_stride - layout.slice_bytes;
    slice_crcs.clear();
    for (std::uint32_t i = 0; i < layout.slice_count; ++i) {
        const LayerMemory& layer = memory.layers[i];
        std::byte* to = object.data() + layout.slice_offset(i);
        std::uint32_t crc = 0;
        for (const std::int32_t block : blocks) {
            const std::byte* page = layer.base + static_cast<std::uint64_t>(block) * layer.block_stride_bytes;
            crc = copy_crc32c(crc, to, page, memory.page_bytes);
            to += memory.page_bytes;
        }
        std::memset(to, 0, gap_bytes);
        slice_crcs.push_back(crc32c(crc, to, gap_bytes));
    }
}

std::uint32_t scatter_and_verify(const WorkerMemory& memory, std::span<const std::int32_t> blocks,
                                 std::span<const std::byte> object, std::span<const std::uint32_t> slice_crcs) {
    const ObjectLayout layout = memory.object_layout();
    std::uint32_t mismatches = 0;
    for (std::uint32_t i = 0; i < layout.slice_count; ++i) {
        const LayerMemory& layer = memory.layers[i];
        const std::byte* from = object.data() + layout.slice_offset(i);
        std::uint32_t crc = 0;
        for (const std::int32_t block : blocks) {
            if (block == no_block) {
                crc = crc32c(crc, from, memory.page_bytes);
            } else {
                std::byte* page = layer.base + static_cast<std::uint64_t>(block) * layer.block_stride_bytes;
                crc = copy_crc32c(crc, page, from, memory.page_bytes);
            }
            from += memory.page_bytes;
        }
        crc = crc32c(crc, from, layout.slice_stride - layout.slice_bytes);
        mismatches += crc != slice_crcs[i];
    }
    return mismatches;
}

}  // namespace kvern
