// SPDX-License-Identifier: Apache-2.0
// FreeParts: which parts of a region are free. Finds the lowest part that fits, and joins neighbours on return.
//
// Not thread-safe: Region calls it under its lock. Knows offsets only, touches no memory of the region.
//
// A treap ordered by offset in which every node also knows the largest part below it, so that the *lowest* fit is found
// by one walk down, O(log n). Nodes are taken from an array that reserve() has grown beforehand: the number of free
// parts is at most the number of parts handed out plus one, so give_back() never allocates and cannot fail.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace kvern {

class FreeParts {
  public:
    // One free part [0, size_bytes).
    explicit FreeParts(std::size_t size_bytes);

    // The offset of the lowest part with room for `size_bytes` (> 0), which is no longer free; nothing if none fits.
    std::optional<std::size_t> take(std::size_t size_bytes);
    // REQUIRES: [offset, offset + size_bytes) came from take() calls and was not given back since.
    void give_back(std::size_t offset, std::size_t size_bytes) noexcept;
    std::size_t largest_bytes() const { return largest(root_); }

  private:
    using Index = std::uint32_t;
    static constexpr Index none = ~Index{0};
    struct Node {
        std::size_t offset = 0;
        std::size_t size_bytes = 0;
        std::size_t largest_bytes = 0;  // of this node and all below it
        std::uint32_t priority = 0;
        Index left = none;
        Index right = none;
    };

    std::size_t largest(Index node) const { return node == none ? 0 : nodes_[node].largest_bytes; }
    void update(Index node);
    Index new_node(std::size_t offset, std::size_t size_bytes);
    void free_node(Index node);
    Index take_below(Index node, std::size_t size_bytes, std::size_t& offset);
    Index merge(Index lower, Index higher);
    std::pair<Index, Index> split(Index node, std::size_t offset);  // below `offset`, and from it on
    Index remove_edge(Index node, bool last, Index& removed);
    Index edge(Index node, bool last) const;

    std::vector<Node> nodes_;
    std::vector<Index> unused_;
    Index root_ = none;
    std::size_t handed_out_ = 0;  // parts
    std::uint32_t random_ = 2463534242U;
};

}  // namespace kvern
