// SPDX-License-Identifier: Apache-2.0
#include "engine/pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/crc32c.h"
#include "engine/step.h"

namespace kvern {

ObjectLayout GroupMemory::object_layout() const {
    return ObjectLayout::of(static_cast<std::uint32_t>(layers.size()), page_bytes * plan.pages());
}

std::uint64_t WorkerMemory::largest_object_bytes() const {
    std::uint64_t largest = 0;
    for (const GroupMemory& group : groups) largest = std::max(largest, group.object_layout().object_bytes);
    return largest;
}

Result<void> WorkerMemory::check() const {
    if (groups.empty()) return fail(ErrorCode::invalid_argument, "there is no KV memory");
    for (const GroupMemory& group : groups) {
        if (group.layers.empty() || group.layers.size() > limits::slices_max)
            return fail(ErrorCode::invalid_argument, fmt::format("{} layers can't be served", group.layers.size()));
        const GroupPlan& plan = group.plan;
        if (plan.block_tokens == 0 || plan.chunk_tokens == 0 || plan.chunk_tokens % plan.block_tokens != 0)
            return fail(ErrorCode::invalid_argument, fmt::format("a chunk of {} tokens is no multiple of a block of {}",
                                                                 plan.chunk_tokens, plan.block_tokens));
        if (group.shard.last_layer < group.shard.first_layer || group.shard.layers() != group.layers.size())
            return fail(ErrorCode::invalid_argument,
                        fmt::format("{} layers do not fit shard {}", group.layers.size(), group.shard.text()));
        if (group.replicas == 0 || group.replica >= group.replicas)
            return fail(ErrorCode::invalid_argument,
                        fmt::format("replica {} of {} can't be", group.replica, group.replicas));
        for (const LayerMemory& layer : group.layers)
            if ((layer.base == nullptr && !on_device) || group.page_bytes == 0 ||
                layer.block_stride_bytes < group.page_bytes)
                return fail(ErrorCode::invalid_argument,
                            fmt::format("layer {}: pages of {} bytes every {} bytes are no plain KV memory", layer.name,
                                        group.page_bytes, layer.block_stride_bytes));
    }
    return {};
}

bool WorkerMemory::knows(std::uint32_t group, std::span<const std::int32_t> blocks, bool holes_allowed) const {
    return group < groups.size() && blocks.size() == groups[group].plan.pages() &&
           std::all_of(blocks.begin(), blocks.end(), [&](std::int32_t block) {
               return block == no_block ? holes_allowed : block >= 0 && static_cast<std::uint32_t>(block) < num_blocks;
           });
}

void gather(const GroupMemory& memory, std::span<const std::int32_t> blocks, std::span<std::byte> object,
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

std::uint32_t scatter_and_verify(const GroupMemory& memory, std::span<const std::int32_t> blocks,
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

void sum_slices(const ObjectLayout& layout, std::span<std::byte> object, std::vector<std::uint32_t>& slice_crcs) {
    slice_crcs.clear();
    for (std::uint32_t i = 0; i < layout.slice_count; ++i) {
        std::byte* slice = object.data() + layout.slice_offset(i);
        std::memset(slice + layout.slice_bytes, 0, layout.slice_stride - layout.slice_bytes);
        slice_crcs.push_back(crc32c(0, slice, layout.slice_stride));
    }
}

std::uint32_t verify_slices(const ObjectLayout& layout, std::span<const std::byte> object,
                            std::span<const std::uint32_t> slice_crcs) {
    std::uint32_t mismatches = 0;
    for (std::uint32_t i = 0; i < layout.slice_count; ++i)
        mismatches += crc32c(0, object.data() + layout.slice_offset(i), layout.slice_stride) != slice_crcs[i];
    return mismatches;
}

}  // namespace kvern
