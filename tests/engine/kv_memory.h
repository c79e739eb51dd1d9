// SPDX-License-Identifier: Apache-2.0
// What the engine tests share: a worker's KV memory with a known pattern, objects made of it, waits with a limit.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/sha256.h"
#include "cache/identity.h"
#include "cache/scripted_store.h"
#include "engine/pages.h"
#include "engine/step.h"

namespace kvern::testing {

// Polls `condition` until it holds; false if it does not within `patience`.
inline bool eventually(const std::function<bool()>& condition) {
    const auto until = std::chrono::steady_clock::now() + patience;
    while (!condition()) {
        if (std::chrono::steady_clock::now() > until) return false;
        std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    return true;
}

inline ChunkHash hash_of(std::size_t number) {
    return ChunkHash("hash-" + std::to_string(number));
}

// The memory of a worker: `layers` layers of `blocks` pages, every page filled with what its layer and block say.
class KvMemory {
  public:
    struct Shape {
        std::uint32_t layers = 2, blocks = 32, blocks_per_chunk = 2, block_tokens = 4;
        std::size_t page_bytes = 600, stride_bytes = 600;
        Shard shard{0, 1, 0, 0};
    };
    explicit KvMemory(const Shape& shape) : shape_(shape) {
        GroupMemory& group = worker_.groups.emplace_back();
        for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
            bytes_.push_back(std::make_unique<std::byte[]>(shape.blocks * shape.stride_bytes));
            group.layers.push_back({"layer." + std::to_string(layer), bytes_.back().get(), shape.stride_bytes});
        }
        worker_.num_blocks = shape.blocks;
        group.page_bytes = shape.page_bytes;
        group.plan = {GroupKind::full, shape.block_tokens, shape.block_tokens * shape.blocks_per_chunk, 0};
        group.shard = shape.shard;
        for (std::uint32_t block = 0; block < shape.blocks; ++block) fill(block, block);
    }
    KvMemory() : KvMemory(Shape()) {}

    const WorkerMemory& worker() const { return worker_; }
    const GroupMemory& group() const { return worker_.groups[0]; }
    std::byte* page(std::uint32_t layer, std::uint32_t block) const {
        return bytes_[layer].get() + block * shape_.stride_bytes;
    }
    void fill(std::uint32_t block, std::uint64_t content) {
        for (std::uint32_t layer = 0; layer < shape_.layers; ++layer) {
            const std::string bytes = golden(layer, content);
            std::memcpy(page(layer, block), bytes.data(), bytes.size());
        }
    }
    bool holds(std::uint32_t block, std::uint64_t content) const {
        for (std::uint32_t layer = 0; layer < shape_.layers; ++layer)
            if (std::memcmp(page(layer, block), golden(layer, content).data(), shape_.page_bytes) != 0) return false;
        return true;
    }

    // The object of the chunk in these blocks.
    std::string object(const ChunkHash& hash, const std::vector<std::int32_t>& blocks, const Digest& name_space) const {
        const ObjectLayout layout = group().object_layout();
        std::string bytes(layout.object_bytes, '\x55');
        const std::span object(reinterpret_cast<std::byte*>(bytes.data()), bytes.size());
        std::vector<std::uint32_t> crcs;
        gather(group(), blocks, object, crcs);
        const GroupPlan& plan = group().plan;
        encode_header(object,
                      {name_space, {hash, 0}, 0, group().shard, plan.chunk_tokens, plan.block_tokens, plan.pages()},
                      layout, crcs);
        return bytes;
    }

  private:
    std::string golden(std::uint32_t layer, std::uint64_t content) const {
        std::mt19937_64 random(content * 1009 + layer + shape_.shard.first_layer * 31 + shape_.shard.first_head * 7);
        std::string bytes(shape_.page_bytes, '\0');
        for (std::size_t at = 0; at < bytes.size(); at += 8) {
            const std::uint64_t word = random();
            std::memcpy(bytes.data() + at, &word, std::min<std::size_t>(8, bytes.size() - at));
        }
        return bytes;
    }
    Shape shape_;
    std::vector<std::unique_ptr<std::byte[]>> bytes_;
    WorkerMemory worker_;
};

}  // namespace kvern::testing
