// SPDX-License-Identifier: Apache-2.0
// KV cache groups: layers whose blocks come and go together, and what a hit needs of them.
//
// A hit ends at a *boundary*, a number of whole chunks. Full attention needs every block before it, a sliding window
// the last ones, a recurrent state only the block that ends exactly there. Pure values, any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace kvern {

enum class GroupKind : std::uint8_t { full, window, state };
std::string_view to_string(GroupKind kind);
std::optional<GroupKind> group_kind(std::string_view name);

struct GroupPlan {
    GroupKind kind = GroupKind::full;
    std::uint32_t block_tokens = 0;
    std::uint32_t chunk_tokens = 0;   // a multiple of block_tokens; the same for all groups of a model
    std::uint32_t window_tokens = 0;  // window: a token sees so many, itself included
    bool operator==(const GroupPlan&) const = default;

    std::uint32_t blocks_per_chunk() const { return chunk_tokens / block_tokens; }
    // Blocks that must be there before a boundary; 0: all of them.
    std::uint32_t trailing_blocks() const {
        if (kind == GroupKind::full) return 0;
        if (kind == GroupKind::state) return 1;
        return std::max(1u, (window_tokens + block_tokens - 2) / block_tokens);  // ceil((window - 1) / block)
    }
    // Blocks of a chunk that its object holds: the last ones, since no boundary needs the others.
    std::uint32_t pages() const {
        return kind == GroupKind::full ? blocks_per_chunk() : std::min(blocks_per_chunk(), trailing_blocks());
    }
    // Chunks before a boundary whose objects a hit needs; 0: all of them.
    std::uint32_t trailing_chunks() const { return (trailing_blocks() + blocks_per_chunk() - 1) / blocks_per_chunk(); }
};

}  // namespace kvern
