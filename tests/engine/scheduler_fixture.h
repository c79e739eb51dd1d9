// SPDX-License-Identifier: Apache-2.0
// A SchedulerHalf of two ranks over a scripted store, driven as an engine drives it.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/text.h"
#include "cache/scripted_store.h"
#include "engine/scheduler_half.h"
#include "engine/worker_half.h"

namespace kvern::testing {

// The engine's block hashes as plain texts.
class Hashes final : public BlockHashes {
  public:
    explicit Hashes(std::vector<std::string> hashes) : hashes_(std::move(hashes)) {}
    // `blocks` blocks of one prompt: "p0", "p1", ...
    Hashes(const std::string& prompt, std::size_t blocks) {
        for (std::size_t i = 0; i < blocks; ++i) hashes_.push_back(prompt + std::to_string(i));
    }
    std::size_t size() const override { return hashes_.size(); }
    std::string_view at(std::size_t block) const override { return hashes_.at(block); }

  private:
    std::vector<std::string> hashes_;
};

inline std::vector<std::int32_t> blocks(std::int32_t from, std::size_t count) {
    std::vector<std::int32_t> list;
    for (std::size_t i = 0; i < count; ++i) list.push_back(from + static_cast<std::int32_t>(i));
    return list;
}

inline Identity test_identity() {
    Identity identity;
    identity.engine = "test";
    identity.groups = {{"full", "0-3", "bf16", "NHD", "test", 4, 2, 16, 16, 4, 0}};
    identity.chunk_tokens = 8;
    return identity;
}

inline Options test_options() {
    Options options;
    options.store = "scripted:";
    options.lookup_wait_us = 0;
    return options;
}

// Blocks of 4 tokens, chunks of 8: two blocks. Two ranks share the layers.
class SchedulerFixture {
  public:
    static constexpr std::uint32_t block = 4, chunk = 8;

    explicit SchedulerFixture(const Options& options = test_options(), bool cheap_stat = true, bool opened = true) {
        auto owned = std::make_unique<ScriptedStore>(cheap_stat);
        store = owned.get();
        half = std::make_unique<SchedulerHalf>(options, std::move(owned), clock);
        if (!opened) return;
        EXPECT_TRUE(half->announce("engine"));
        const auto configured = half->configure(geometries());
        EXPECT_TRUE(configured) << configured.error().message;
        EXPECT_TRUE(half->open("model", "label", "seed", block));
        half->build_step();
    }

    std::string nonce() { return store->values()[nonce_key("engine")]; }
    std::vector<Geometry> geometries() {
        std::vector<Geometry> ranks(2);
        for (std::uint32_t i = 0; i < 2; ++i) {
            ranks[i].rank = "tp " + std::to_string(i);
            ranks[i].groups = {{{GroupKind::full, block, chunk, 0}, {0, 3, i, i}}};
            ranks[i].num_blocks = 100;
            ranks[i].identity = test_identity().to_json();
            ranks[i].nonce = nonce();
        }
        return ranks;
    }

    // Puts chunk `number` of a prompt (or takes it away), on both ranks.
    void put(const std::string& prompt, std::size_t number, bool there = true) {
        for (const char* shard : {"l0-3.h0-0", "l0-3.h1-1"}) {
            const auto key = object_key(half->namespace_hex(), chunk_id(prompt, number), 0, shard);
            there ? store->set_value(key, "object") : store->erase_value(key);
        }
    }
    void put_chunks(const std::string& prompt, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) put(prompt, i);
    }
    static ChunkHash chunk_hash(const std::string& prompt, std::size_t number) {
        return ChunkHash(prompt + std::to_string(2 * number + 1));
    }
    static ChunkId chunk_id(const std::string& prompt, std::size_t number) {
        return {chunk_hash(prompt, number), number == 0 ? 0 : chunk_hash(prompt, number - 1).tag()};
    }

    // A few tokens more than the full blocks have.
    static std::uint64_t tokens_of(const Hashes& hashes) { return hashes.size() * block + 1; }
    void add(const std::string& id, const Hashes& hashes) {
        half->learn(id, hashes, tokens_of(hashes));
        half->add(id);
    }
    Match match(const std::string& id, const Hashes& hashes, std::uint64_t local = 0, bool skip = false) {
        half->learn(id, hashes, tokens_of(hashes));
        return half->match(id, local, skip);
    }
    // As match(), asked again until there is an answer, as the engine does: a lookup may take two rounds.
    std::uint32_t tokens(const std::string& id, const Hashes& hashes, std::uint64_t local = 0) {
        Match answer = match(id, hashes, local);
        for (int i = 0; answer.pending && i < 4; ++i) answer = match(id, hashes, local);
        EXPECT_FALSE(answer.pending);
        return answer.tokens;
    }
    void run(const std::string& id, const Hashes& hashes, bool restarted, const std::vector<std::int32_t>& list,
             std::uint64_t computed, std::uint64_t scheduled, std::uint64_t drafts = 0) {
        half->learn(id, hashes, tokens_of(hashes));
        half->scheduled(id, {restarted, {list}, computed, scheduled, drafts});
    }
    // The step as the workers see it; empty where nothing is said.
    Step step() {
        const std::string bytes = half->build_step();
        if (bytes.empty()) return {};
        auto decoded = Step::decode(bytes);
        EXPECT_TRUE(decoded);
        return *decoded;
    }
    // The hashes of the chunks that this step stores.
    std::vector<std::string> stored(const Step& what) {
        std::vector<std::string> list;
        for (const StoreJob& job : what.stores) list.emplace_back(job.object.chunk.hash.bytes());
        return list;
    }
    std::uint64_t misses(Miss why) const { return half->counters().misses[static_cast<std::size_t>(why)]; }
    std::uint64_t misses() const {
        std::uint64_t sum = 0;
        for (const auto count : half->counters().misses) sum += count;
        return sum;
    }

    FakeClock clock;
    ScriptedStore* store = nullptr;  // the half's
    std::unique_ptr<SchedulerHalf> half;
};

}  // namespace kvern::testing
