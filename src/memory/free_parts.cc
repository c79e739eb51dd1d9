// SPDX-License-Identifier: Apache-2.0
#include "memory/free_parts.h"

#include <algorithm>

namespace kvern {

FreeParts::FreeParts(std::size_t size_bytes) {
    nodes_.resize(16);
    unused_.reserve(nodes_.size());
    for (Index node = 0; node < nodes_.size(); ++node) unused_.push_back(node);
    root_ = new_node(0, size_bytes);
}

std::optional<std::size_t> FreeParts::take(std::size_t size_bytes) {
    if (size_bytes == 0 || largest(root_) < size_bytes) return std::nullopt;
    if (handed_out_ + 3 > nodes_.size()) {  // all parts that can become free at once, and one more while they join
        const auto old = nodes_.size();
        unused_.reserve(old * 2);
        nodes_.resize(old * 2);
        for (auto node = static_cast<Index>(old); node < nodes_.size(); ++node) unused_.push_back(node);
    }
    std::size_t offset = 0;
    root_ = take_below(root_, size_bytes, offset);
    ++handed_out_;
    return offset;
}

void FreeParts::give_back(std::size_t offset, std::size_t size_bytes) noexcept {
    auto [lower, higher] = split(root_, offset);
    Index removed = none;
    if (const auto last = edge(lower, true); last != none && nodes_[last].offset + nodes_[last].size_bytes == offset) {
        offset = nodes_[last].offset;
        size_bytes += nodes_[last].size_bytes;
        lower = remove_edge(lower, true, removed);
        free_node(removed);
    }
    if (const auto first = edge(higher, false); first != none && nodes_[first].offset == offset + size_bytes) {
        size_bytes += nodes_[first].size_bytes;
        higher = remove_edge(higher, false, removed);
        free_node(removed);
    }
    root_ = merge(merge(lower, new_node(offset, size_bytes)), higher);
    --handed_out_;
}

void FreeParts::update(Index node) {
    auto& n = nodes_[node];
    n.largest_bytes = std::max({n.size_bytes, largest(n.left), largest(n.right)});
}

FreeParts::Index FreeParts::new_node(std::size_t offset, std::size_t size_bytes) {
    const auto node = unused_.back();
    unused_.pop_back();
    random_ ^= random_ << 13;  // xorshift: balance needs no better randomness
    random_ ^= random_ >> 17;
    random_ ^= random_ << 5;
    nodes_[node] = Node{offset, size_bytes, size_bytes, random_, none, none};
    return node;
}

void FreeParts::free_node(Index node) {
    unused_.push_back(node);
}  // within the reserved capacity

FreeParts::Index FreeParts::take_below(Index node, std::size_t size_bytes, std::size_t& offset) {
    auto& n = nodes_[node];
    if (largest(n.left) >= size_bytes) {
        n.left = take_below(n.left, size_bytes, offset);
    } else if (n.size_bytes >= size_bytes) {
        offset = n.offset;
        n.offset += size_bytes;
        n.size_bytes -= size_bytes;
        if (n.size_bytes == 0) {
            const auto rest = merge(n.left, n.right);
            free_node(node);
            return rest;
        }
    } else {
        n.right = take_below(n.right, size_bytes, offset);
    }
    update(node);
    return node;
}

FreeParts::Index FreeParts::merge(Index lower, Index higher) {
    if (lower == none) return higher;
    if (higher == none) return lower;
    if (nodes_[lower].priority > nodes_[higher].priority) {
        nodes_[lower].right = merge(nodes_[lower].right, higher);
        update(lower);
        return lower;
    }
    nodes_[higher].left = merge(lower, nodes_[higher].left);
    update(higher);
    return higher;
}

std::pair<FreeParts::Index, FreeParts::Index> FreeParts::split(Index node, std::size_t offset) {
    if (node == none) return {none, none};
    if (nodes_[node].offset < offset) {
        const auto [lower, higher] = split(nodes_[node].right, offset);
        nodes_[node].right = lower;
        update(node);
        return {node, higher};
    }
    const auto [lower, higher] = split(nodes_[node].left, offset);
    nodes_[node].left = higher;
    update(node);
    return {lower, node};
}

FreeParts::Index FreeParts::edge(Index node, bool last) const {
    if (node == none) return none;
    for (;;) {
        const auto next = last ? nodes_[node].right : nodes_[node].left;
        if (next == none) return node;
        node = next;
    }
}

FreeParts::Index FreeParts::remove_edge(Index node, bool last, Index& removed) {
    auto& n = nodes_[node];
    auto& next = last ? n.right : n.left;
    if (next == none) {
        removed = node;
        return last ? n.left : n.right;
    }
    next = remove_edge(next, last, removed);
    update(node);
    return node;
}

}  // namespace kvern
