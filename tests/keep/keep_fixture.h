// SPDX-License-Identifier: Apache-2.0
// What the tests of keep share: a store in memory whose time stands still, prompts of chunks in it, and a store that
// lets a test act between two operations of somebody else.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/sha256.h"
#include "base/text.h"
#include "cache/identity.h"
#include "cache/object.h"
#include "keep/collect.h"
#include "store/mem_store.h"

namespace kvern::testing {

inline constexpr std::uint64_t page = limits::page_bytes;
inline constexpr Shard whole_shard{0, 1, 0, 0};

inline ChunkHash hash_of(const std::string& name) {
    const auto digest = sha256(name);
    return ChunkHash(std::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()));
}
inline std::uint64_t tag_of(const std::string& name) {
    return name.empty() ? 0 : hash_of(name).tag();
}

// Passes everything on, after `before` has seen it; `refuse` may answer an operation itself.
class HookedStore final : public Store {
  public:
    explicit HookedStore(std::unique_ptr<Store> inner) : inner_(std::move(inner)) {}
    std::function<void(const Op&)> before;
    std::function<bool(const Op&)> refuse;
    Store& inner() { return *inner_; }

    void submit(std::span<Op> ops, CompletionQueue& queue) override {
        for (auto& op : ops) {
            if (before) before(op);
            if (refuse && refuse(op)) {
                Outcome outcome;
                outcome.error = {ErrorCode::permission, "refused by the test"};
                queue.push({op.tag, std::move(outcome)});
            } else {
                inner_->submit({&op, 1}, queue);
            }
        }
    }
    Capabilities capabilities() const override { return inner_->capabilities(); }
    std::string describe() const override { return inner_->describe(); }
    void attach(std::shared_ptr<Region> region) override { inner_->attach(std::move(region)); }
    bool close(std::chrono::milliseconds wait) override { return inner_->close(wait); }

  private:
    std::unique_ptr<Store> inner_;
};

// Values are put into and read from the inner store, as by another process.
class KeepTest : public ::testing::Test {
  protected:
    static constexpr std::uint64_t capacity = std::uint64_t{64} << 20;

    KeepTest() {
        auto hooked = std::make_unique<HookedStore>(make_mem_store(capacity, clock_));
        hooks_ = hooked.get();
        client_ = std::make_unique<Client>(std::move(hooked), [this] { return stop_; });
    }

    void put_bytes(const std::string& key, std::string bytes) {
        Op op;
        op.kind = OpKind::put;
        op.key = key;
        op.buffers = {{reinterpret_cast<std::byte*>(bytes.data()), bytes.size()}};
        const auto outcome = run(hooks_->inner(), op);
        ASSERT_EQ(outcome.status, Status::ok) << explain(op, outcome);
    }
    void put_chunk(const std::string& name, const std::string& parent, std::uint64_t size_bytes = page) {
        put_bytes(key_of(name, parent), std::string(size_bytes, 'x'));
    }
    std::string key_of(const std::string& name, const std::string& parent, std::uint32_t group = 0,
                       const Shard& shard = whole_shard) const {
        return object_key(space_, {hash_of(name), tag_of(parent)}, group, shard.text());
    }
    // "a b c": a prompt of three chunks, all used now.
    void put_prompt(const std::string& names) {
        std::string parent;
        for (std::size_t at = 0; at < names.size(); at += 2) {
            const auto name = names.substr(at, 1);
            put_chunk(name, parent);
            parent = name;
        }
    }
    bool exists(const std::string& key) {
        Op op;
        op.kind = OpKind::stat;
        op.key = key;
        return run(hooks_->inner(), op).status == Status::ok;
    }
    // The one-letter chunks that are there, whatever their parent.
    std::string left() {
        std::string names;
        Op op;
        op.kind = OpKind::list;
        const auto page_of_keys = run(hooks_->inner(), op);
        for (char c = 'a'; c <= 'z'; ++c) {
            const auto hex = to_hex(hash_of(std::string(1, c)).bytes());
            for (const auto& entry : page_of_keys.entries) {
                if (entry.key.find("/" + hex + ".") == std::string::npos) continue;
                names += c;
                break;
            }
        }
        return names;
    }
    void remove(const std::string& key) {
        Op op;
        op.kind = OpKind::remove;
        op.key = key;
        EXPECT_EQ(run(hooks_->inner(), op).status, Status::ok);
    }
    // As an engine that reads the chunk.
    void use(const std::string& key) {
        Op op;
        op.kind = OpKind::get;
        op.key = key;
        op.mark_used = true;
        std::string bytes(page, 0);
        op.buffers = {{reinterpret_cast<std::byte*>(bytes.data()), bytes.size()}};
        EXPECT_EQ(run(hooks_->inner(), op).status, Status::ok);
    }
    CollectReport collected(CollectPlan plan) {
        plan.clock = &clock_;
        const auto report = collect(*client_, plan);
        if (report) return *report;
        ADD_FAILURE() << report.error().message;
        return {};
    }
    CollectReport collect_to(std::uint64_t pages) {
        CollectPlan plan;
        plan.limits.bytes_max = pages * page;
        return collected(plan);
    }

    FakeWallClock clock_;
    bool stop_ = false;
    std::string space_ = std::string(64, 'a');
    HookedStore* hooks_ = nullptr;
    std::unique_ptr<Client> client_;
};

// An object as an engine stores it, with pages that depend on `seed`.
inline std::string whole_object(const ObjectFacts& facts, std::uint64_t slice_bytes, std::uint64_t seed) {
    const auto layout = ObjectLayout::of(facts.shard.layers(), slice_bytes);
    std::string bytes(layout.object_bytes, 0);
    std::mt19937_64 random(seed);
    std::vector<std::uint32_t> crcs;
    for (std::uint32_t i = 0; i < layout.slice_count; ++i) {
        auto* const slice = bytes.data() + layout.slice_offset(i);
        for (std::uint64_t at = 0; at + 8 <= slice_bytes; at += 8) {
            const auto word = random();
            std::memcpy(slice + at, &word, 8);
        }
        crcs.push_back(crc32c(0, slice, layout.slice_stride));
    }
    encode_header({reinterpret_cast<std::byte*>(bytes.data()), bytes.size()}, facts, layout, crcs);
    return bytes;
}

}  // namespace kvern::testing
