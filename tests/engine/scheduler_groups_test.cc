// SPDX-License-Identifier: Apache-2.0
// The scheduler half for models with several KV cache groups: what is stored, which boundary is taken, what is loaded.
#include <gtest/gtest.h>

#include <numeric>

#include "engine/scheduler_fixture.h"

namespace kvern {
namespace {

using testing::Hashes;
using testing::ScriptedStore;

constexpr std::int32_t gone = 0;  // the engine's block that is not there

// Blocks of 4 tokens, chunks of 8. Group 0: a window of 8 tokens, so the last two blocks before a boundary. Group 1:
// full attention. Group 2, where asked for: states, in blocks of 8 tokens. One rank.
class GroupsFixture {
  public:
    enum : std::uint32_t { window, full, state };
    static constexpr std::uint32_t block = 4, chunk = 8;

    explicit GroupsFixture(bool with_state = false) {
        auto owned = std::make_unique<ScriptedStore>(true);
        store = owned.get();
        Options options = testing::test_options();
        options.min_tokens = 1;
        half = std::make_unique<SchedulerHalf>(options, std::move(owned), clock);
        EXPECT_TRUE(half->announce("engine"));
        Geometry rank;
        rank.rank = "tp 0";
        rank.groups = {{{GroupKind::window, block, chunk, 8}, {0, 1, 0, 0}},
                       {{GroupKind::full, block, chunk, 0}, {0, 0, 0, 0}}};
        if (with_state) rank.groups.push_back({{GroupKind::state, chunk, chunk, 0}, {0, 2, 0, 0}});
        rank.num_blocks = 100;
        rank.identity = testing::test_identity().to_json();
        rank.nonce = store->values()[nonce_key("engine")];
        const auto configured = half->configure({&rank, 1});
        EXPECT_TRUE(configured) << configured.error().message;
        EXPECT_TRUE(half->open("model", "label", "seed", block));
        half->build_step();
        shards = {"l0-1.h0-0", "l0-0.h0-0", "l0-2.h0-0"};
    }
    void put(std::size_t number, std::uint32_t group) {
        store->set_value(
            object_key(half->namespace_hex(), testing::SchedulerFixture::chunk_id("p", number), group, shards[group]),
            "object");
    }
    void learn(const std::string& id, std::size_t blocks, std::uint64_t tokens) {
        half->learn(id, Hashes("p", blocks), tokens);
    }
    std::uint32_t match(const std::string& id, std::size_t blocks, std::uint64_t tokens, std::uint64_t local = 0) {
        learn(id, blocks, tokens);
        Match answer = half->match(id, local, false);
        for (int i = 0; answer.pending && i < 6; ++i) answer = half->match(id, local, false);
        EXPECT_FALSE(answer.pending);
        return answer.tokens;
    }
    Step step() {
        const std::string bytes = half->build_step();
        return bytes.empty() ? Step{} : Step::decode(bytes).value();
    }
    // "group/chunk" of each object that the step stores.
    std::vector<std::string> stored() {
        std::vector<std::string> list;
        for (const StoreJob& job : step().stores)
            list.push_back(std::to_string(job.object.group) + "/" + std::string(job.object.chunk.hash.bytes()));
        return list;
    }
    FakeClock clock;
    ScriptedStore* store = nullptr;
    std::unique_ptr<SchedulerHalf> half;
    std::vector<std::string> shards;
};
using F = GroupsFixture;

TEST(SchedulerGroups, EveryGroupIsStoredOutOfItsOwnTable) {
    F f;
    f.learn("a", 4, 17);
    f.half->scheduled("a", {true, {{11, 12, 13, 14}, {21, 22, 23, 24}}, 0, 17, 0});
    const Step step = f.step();
    ASSERT_EQ(step.stores.size(), 4U);
    EXPECT_EQ(step.stores[0].object.group, F::window);
    EXPECT_EQ(step.stores[0].object.blocks, (std::vector<std::int32_t>{11, 12}));
    EXPECT_TRUE(step.stores[0].fleeting) << "the engine gives window blocks up while the request runs";
    EXPECT_EQ(step.stores[1].object.group, F::full);
    EXPECT_EQ(step.stores[1].object.blocks, (std::vector<std::int32_t>{21, 22}));
    EXPECT_FALSE(step.stores[1].fleeting);
    EXPECT_EQ(step.stores[3].object.chunk, testing::SchedulerFixture::chunk_id("p", 1)) << "with its parent";
    EXPECT_EQ(f.half->counters().offered_chunks, 2U) << "chunks, not objects";
}

TEST(SchedulerGroups, AWindowBlockThatIsGoneIsNotStored) {
    F f;
    f.learn("a", 4, 17);
    f.half->scheduled("a", {true, {{gone, 12, 13, 14}, {21, 22, 23, 24}}, 0, 17, 0});
    EXPECT_EQ(f.stored(), (std::vector<std::string>{"1/p1", "0/p3", "1/p3"}));
}

TEST(SchedulerGroups, WhatWasLoadedOrLocalIsNotStoredAgainOutsideFullAttention) {
    F f;
    f.learn("a", 4, 17);
    f.half->scheduled("a", {true, {{gone, gone, 13, 14, 15}, {21, 22, 23, 24, 25}}, 16, 1, 0});
    EXPECT_TRUE(f.stored().empty());
}

TEST(SchedulerGroups, TheLongestBoundaryThatEveryGroupServes) {
    F f;
    for (std::size_t i = 0; i < 4; ++i) f.put(i, F::full);
    EXPECT_EQ(f.match("none", 8, 33), 0U);
    EXPECT_EQ(f.half->counters().misses[static_cast<std::size_t>(Miss::boundary)], 1U);
    f.clock.advance(std::chrono::minutes(1));
    f.put(1, F::window);
    f.put(2, F::window);
    EXPECT_EQ(f.match("some", 8, 33), 24U) << "one chunk is enough for a window of two blocks";
    f.clock.advance(std::chrono::minutes(1));
    f.put(3, F::window);
    EXPECT_EQ(f.match("all", 8, 33), 32U);
}

TEST(SchedulerGroups, AHitLoadsWhatTheBoundaryNeedsAndNothingElse) {
    F f;
    for (std::size_t i = 0; i < 3; ++i) {
        f.put(i, F::full);
        f.put(i, F::window);
    }
    ASSERT_EQ(f.match("a", 6, 25), 24U);
    ASSERT_TRUE(f.half->allocated("a", {{gone, gone, gone, gone, 15, 16}, {21, 22, 23, 24, 25, 26}}, 24));
    const Step step = f.step();
    ASSERT_EQ(step.loads.size(), 1U);
    EXPECT_TRUE(step.loads[0].whole);
    EXPECT_FALSE(step.loads[0].refused);
    ASSERT_EQ(step.loads[0].chunks.size(), 4U);
    EXPECT_EQ(step.loads[0].chunks[0].group, F::full);
    EXPECT_EQ(step.loads[0].chunks[2].group, F::window);
    EXPECT_EQ(step.loads[0].chunks[2].blocks, (std::vector<std::int32_t>{15, 16}));
    EXPECT_EQ(step.loads[0].chunks[3].blocks, (std::vector<std::int32_t>{25, 26}));
}

TEST(SchedulerGroups, TheEnginesOwnWindowBlocksAreNotTouched) {
    F f;
    for (std::size_t i = 0; i < 3; ++i) {
        f.put(i, F::full);
        f.put(i, F::window);
    }
    ASSERT_EQ(f.match("a", 6, 25, 20), 4U);
    // Blocks 4 and 5 of the window are needed at 24; block 4 ends at 20, which the engine has.
    ASSERT_TRUE(f.half->allocated("a", {{gone, gone, gone, gone, 15, 16}, {21, 22, 23, 24, 25, 26}}, 4));
    const Step step = f.step();
    ASSERT_EQ(step.loads.size(), 1U);
    ASSERT_EQ(step.loads[0].chunks.size(), 2U);
    EXPECT_EQ(step.loads[0].chunks[0].blocks, (std::vector<std::int32_t>{no_block, 16}));
    EXPECT_EQ(step.loads[0].chunks[1].blocks, (std::vector<std::int32_t>{no_block, 26}));
}

TEST(SchedulerGroups, ATableWithoutANeededBlockIsRefused) {
    F f;
    for (std::size_t i = 0; i < 2; ++i) {
        f.put(i, F::full);
        f.put(i, F::window);
    }
    ASSERT_EQ(f.match("a", 4, 17), 16U);
    ASSERT_TRUE(f.half->allocated("a", {{gone, gone, gone, 14}, {21, 22, 23, 24}}, 16));
    const Step step = f.step();
    ASSERT_EQ(step.loads.size(), 1U);
    EXPECT_TRUE(step.loads[0].refused);
    EXPECT_EQ(step.loads[0].chunks[0].blocks, (std::vector<std::int32_t>{14, 21, 22, 23, 24}));
    f.half->bad_blocks(step.loads[0].chunks[0].blocks);
    f.half->loaded("a");
    EXPECT_EQ(f.half->counters().hit_tokens, 0U);
}

TEST(SchedulerGroups, AfterAFailedLoadTheRequestStepsAsideAndIsComputed) {
    F f;
    for (std::size_t i = 0; i < 2; ++i) {
        f.put(i, F::full);
        f.put(i, F::window);
    }
    ASSERT_EQ(f.match("a", 4, 17), 16U);
    ASSERT_TRUE(f.half->allocated("a", {{gone, gone, 13, 14}, {21, 22, 23, 24}}, 16));
    f.step();
    f.half->bad_blocks(std::vector<std::int32_t>{13, 14});
    f.half->loaded("a");
    EXPECT_TRUE(f.half->match("a", 0, false).pending) << "once, so that those behind it get their turn";
    EXPECT_EQ(f.match("a", 4, 17), 0U);
    EXPECT_EQ(f.match("a", 4, 17), 0U) << "as often as the engine asks before it runs";
    EXPECT_EQ(f.half->counters().misses[static_cast<std::size_t>(Miss::failed)], 1U);
    EXPECT_EQ(f.half->counters().hit_tokens, 0U);
    f.learn("b", 4, 17);
    EXPECT_TRUE(f.half->match("b", 0, false).pending) << "the engine still reserves blocks for a";
    f.half->scheduled("a", {true, {{1, 2, 3, 4, 5}, {21, 22, 23, 24, 25}}, 0, 17, 0});
    EXPECT_EQ(f.match("b", 4, 17), 8U) << "another request gets the boundary before the part that failed";
    f.half->preempted("a");
    EXPECT_GT(f.match("a", 4, 17), 0U) << "it has run since: asked afresh";
}

TEST(SchedulerGroups, ARequestWhoseLoadsKeepFailingIsComputed) {
    F f;
    for (std::size_t i = 0; i < 8; ++i) {
        f.put(i, F::full);
        f.put(i, F::window);
    }
    std::uint32_t tokens = 64;
    for (unsigned attempt = 0; attempt < limits::load_attempts_max; ++attempt) {
        ASSERT_EQ(f.match("a", 16, 65), tokens);
        std::vector<std::int32_t> windows(tokens / 4, gone), fulls(tokens / 4);
        windows[tokens / 4 - 2] = 91;
        windows[tokens / 4 - 1] = 92;
        std::iota(fulls.begin(), fulls.end(), 20);
        ASSERT_TRUE(f.half->allocated("a", {windows, fulls}, tokens));
        f.step();
        f.half->bad_blocks(std::vector<std::int32_t>{91, 92});
        f.half->loaded("a");
        f.half->scheduled("a", {true, {{1}, {21}}, 0, 1, 0});
        f.half->preempted("a");
        tokens -= 8;
    }
    EXPECT_EQ(f.match("a", 16, 65), 0U);
    EXPECT_EQ(f.match("b", 16, 65), tokens);
}

TEST(SchedulerGroups, AWholeLoadCountsItsTokensOnce) {
    F f;
    for (std::size_t i = 0; i < 2; ++i) {
        f.put(i, F::full);
        f.put(i, F::window);
    }
    ASSERT_EQ(f.match("a", 4, 17), 16U);
    ASSERT_TRUE(f.half->allocated("a", {{gone, gone, 13, 14}, {21, 22, 23, 24}}, 16));
    f.step();
    f.half->loaded("a");
    EXPECT_EQ(f.half->counters().hit_tokens, 16U);
}

TEST(SchedulerGroups, LoadsTakeTurnsWhereTheyWouldFillTheMemory) {
    F f;  // 100 blocks; a prompt of 65 tokens may need 17 in each group
    for (std::size_t i = 0; i < 8; ++i) {
        f.put(i, F::full);
        f.put(i, F::window);
    }
    const auto load = [&](const std::string& id) {
        EXPECT_EQ(f.match(id, 16, 65), 64U);
        std::vector<std::int32_t> windows(16, gone), fulls(16);
        windows[14] = 91;
        windows[15] = 92;
        std::iota(fulls.begin(), fulls.end(), 20);
        EXPECT_TRUE(f.half->allocated(id, {windows, fulls}, 64));
    };
    load("a");
    f.half->loaded("a");
    f.learn("b", 16, 65);
    EXPECT_TRUE(f.half->match("b", 0, false).pending)
        << "a has its load and has not run: together they may need 68 of 50";
    f.half->scheduled("a", {true, {{1}, {21}}, 64, 1, 0});
    load("b");
    f.half->finish("b");
    load("c");
    f.learn("d", 16, 65);
    EXPECT_TRUE(f.half->match("d", 0, false).pending);
    f.clock.advance(limits::load_turn_wait);
    EXPECT_EQ(f.match("d", 16, 65), 0U) << "it is computed rather than kept waiting";
    EXPECT_EQ(f.half->counters().misses[static_cast<std::size_t>(Miss::memory)], 1U);
    f.learn("small", 4, 17);
    EXPECT_EQ(f.match("small", 4, 17), 16U) << "34 and 10 fit into half of the memory";
}

// --- States

TEST(SchedulerStates, AreStoredWhereAStepEndsOnTheBoundaryOrLeftOneBehind) {
    F f(true);
    f.learn("a", 8, 33);
    // 0..16: ends on a boundary; the state of chunk 0 was not kept.
    f.half->scheduled("a", {true, {{1, 2, 3, 4}, {21, 22, 23, 24}, {gone, 31}}, 0, 16, 0});
    EXPECT_EQ(f.stored(), (std::vector<std::string>{"0/p1", "1/p1", "0/p3", "1/p3", "2/p3"}));
    // 16..28: does not end on one, but block 2 came with the step and holds the state at 24; block 3 is the running
    // one.
    f.half->scheduled("a", {false, {{5, 6, 7}, {25, 26, 27}, {32, 33}}, 16, 12, 0});
    EXPECT_EQ(f.stored(), (std::vector<std::string>{"0/p5", "1/p5", "2/p5"}));
    // 28..33: block 3 came before this step, so it is of 28 and not of 32.
    f.half->scheduled("a", {false, {{8, 9}, {28, 29}, {34}}, 28, 5, 0});
    EXPECT_EQ(f.stored(), (std::vector<std::string>{"0/p7", "1/p7"}));
}

TEST(SchedulerStates, ARunningStateIsStoredInTheStepThatEndsOnItsBoundary) {
    F f(true);
    f.learn("a", 2, 9);
    f.half->scheduled("a", {true, {{1, 2}, {21, 22}, {31}}, 0, 7, 0});
    EXPECT_TRUE(f.stored().empty());
    f.half->scheduled("a", {false, {}, 7, 1, 0});
    EXPECT_EQ(f.stored(), (std::vector<std::string>{"0/p1", "1/p1", "2/p1"}));
}

TEST(SchedulerStates, AHitNeverCoversTheLastToken) {
    F f(true);
    for (std::size_t i = 0; i < 2; ++i)
        for (std::uint32_t group = 0; group < 3; ++group) f.put(i, group);
    EXPECT_EQ(f.match("exact", 4, 16), 8U) << "the engine computes token 15 again, and the state at 16 has seen it";
    EXPECT_EQ(f.match("more", 4, 17), 16U);
}

TEST(SchedulerStates, OnlyTheStateAtTheBoundaryIsLoaded) {
    F f(true);
    for (std::size_t i = 0; i < 3; ++i)
        for (std::uint32_t group = 0; group < 3; ++group)
            if (group != F::state || i == 1) f.put(i, group);
    ASSERT_EQ(f.match("a", 6, 25), 16U) << "no state at 24";
    ASSERT_TRUE(f.half->allocated("a", {{gone, gone, 13, 14}, {21, 22, 23, 24}, {gone, 32}}, 16));
    const Step step = f.step();
    std::vector<std::string> loaded;
    for (const ChunkBlocks& object : step.loads.at(0).chunks)
        loaded.push_back(std::to_string(object.group) + "/" + std::string(object.chunk.hash.bytes()));
    EXPECT_EQ(loaded, (std::vector<std::string>{"1/p1", "0/p3", "1/p3", "2/p3"}));
    EXPECT_EQ(step.loads[0].chunks.back().blocks, (std::vector<std::int32_t>{32}));
}

// --- Adapters

TEST(SchedulerAdapters, TheDigestOfTheWeightsIsPartOfTheHash) {
    F f;
    const auto first_chunk = [&](const std::string& id, std::string_view adapter) {
        f.half->learn(id, Hashes("p", 2), 9, adapter);
        f.half->scheduled(id, {true, {{1, 2}, {21, 22}}, 0, 9, 0});
        return f.step().stores.at(0).object.chunk.hash;
    };
    const ChunkHash base = first_chunk("base", ""), one = first_chunk("one", "1111"), two = first_chunk("two", "2222");
    EXPECT_EQ(base, ChunkHash("p1"));
    EXPECT_FALSE(one == base || two == base || one == two);
    EXPECT_EQ(one.bytes().size(), 32U);
    EXPECT_TRUE(first_chunk("again", "1111") == one);
}

}  // namespace
}  // namespace kvern
