// SPDX-License-Identifier: Apache-2.0
// What the scheduler half answers, remembers and counts; scheduler_sequences_test.cc has the sequences of calls.
#include <gtest/gtest.h>

#include "engine/scheduler_fixture.h"

namespace kvern {
namespace {

using std::chrono::milliseconds;
using testing::any_op;
using testing::blocks;
using testing::failed_outcome;
using testing::Hashes;
using testing::SchedulerFixture;
using testing::test_options;

using Texts = std::vector<std::string>;

TEST(SchedulerMatch, TheEnginesOwnPrefixMayCoverAPartOfAChunk) {
    SchedulerFixture f;
    f.put_chunks("p", 3);
    const Hashes prompt("p", 6);
    f.add("a", prompt);
    EXPECT_EQ(f.tokens("a", prompt, 12), 12U);
    ASSERT_TRUE(f.half->allocated("a", {blocks(20, 6)}, 12));
    const Step step = f.step();
    ASSERT_EQ(step.loads[0].chunks.size(), 2U);
    EXPECT_EQ(step.loads[0].chunks[0].chunk.hash.bytes(), "p3");
    EXPECT_EQ(step.loads[0].chunks[0].blocks, (std::vector<std::int32_t>{no_block, 23}));
    EXPECT_EQ(step.loads[0].chunks[1].blocks, blocks(24, 2));
    f.half->loaded("a");
    EXPECT_EQ(f.half->counters().hit_tokens, 12U);
}

TEST(SchedulerMatch, AGapBeforeTheEnginesOwnPrefixDoesNotMatter) {
    SchedulerFixture f;
    f.put_chunks("p", 3);
    f.put("p", 0, false);
    const Hashes prompt("p", 6);
    f.add("a", prompt);
    EXPECT_EQ(f.tokens("a", prompt, 8), 16U);
    EXPECT_EQ(f.misses(), 0U);
}

TEST(SchedulerMatch, ThePrefixOfTheEngineMayShrinkWhileALookupIsUnderWay) {
    SchedulerFixture f;
    f.put_chunks("p", 4);
    f.put("p", 1, false);
    const Hashes prompt("p", 8);
    EXPECT_EQ(f.tokens("a", prompt, 0), 8U);
    f.clock.advance(limits::presence_positive_ttl);
    f.store->hold(any_op);
    EXPECT_TRUE(f.match("a", prompt, 16).pending) << "asks from chunk 2 on";
    EXPECT_TRUE(f.match("a", prompt, 0).pending);
    f.store->release();
    f.store->hold({});
    EXPECT_EQ(f.tokens("a", prompt, 0), 8U) << "chunk 1 is missing";
}

TEST(SchedulerMatch, HitsShorterThanMinTokensAreNotWorthwhile) {
    Options options = test_options();
    options.min_tokens = 17;
    SchedulerFixture f(options);
    f.put_chunks("p", 2);
    f.put_chunks("q", 3);
    EXPECT_EQ(f.tokens("a", Hashes("p", 6)), 0U);
    EXPECT_EQ(f.misses(Miss::short_hit), 1U);
    EXPECT_EQ(f.tokens("b", Hashes("q", 6)), 24U);
    SchedulerFixture standard;
    standard.put_chunks("p", 2);
    EXPECT_EQ(standard.tokens("a", Hashes("p", 4), 12), 0U) << "half a chunk";
    EXPECT_EQ(standard.misses(Miss::short_hit), 1U);
}

TEST(SchedulerMatch, PromptsWithoutAFullChunkAreNotAskedFor) {
    SchedulerFixture f;
    f.add("a", Hashes("p", 1));
    EXPECT_EQ(f.tokens("a", Hashes("p", 1)), 0U);
    EXPECT_EQ(f.tokens("b", Hashes("p", 4), 16), 0U) << "the engine has it all";
    EXPECT_EQ(f.store->count(OpKind::stat), 0U);
    EXPECT_EQ(f.misses(), 0U);
}

// I11: a slow store costs a request its deadline, and then gives what it has proven.
TEST(SchedulerDeadline, TheProvenPrefixIsTaken) {
    SchedulerFixture f;
    f.put_chunks("p", 3);
    f.store->hold(any_op);
    const Hashes prompt("p", 6);
    f.add("a", prompt);
    EXPECT_TRUE(f.match("a", prompt).pending);
    for (const std::string shard : {"l0-3.h0-0", "l0-3.h1-1"})
        f.store->release(
            [&](const Op& op) { return op.key == object_key(f.half->namespace_hex(), f.chunk_id("p", 0), 0, shard); });
    f.clock.advance(milliseconds(49));
    EXPECT_TRUE(f.match("a", prompt).pending);
    f.clock.advance(milliseconds(1));
    EXPECT_EQ(f.tokens("a", prompt), 8U);
    EXPECT_EQ(f.misses(Miss::deadline), 1U);
    f.store->release();
    EXPECT_EQ(f.tokens("a", prompt), 8U) << "decided";
}

TEST(SchedulerDeadline, IsMeasuredFromTheFirstAsk) {
    SchedulerFixture f;
    f.store->hold(any_op);
    f.add("a", Hashes("p", 2));
    f.clock.advance(milliseconds(500));
    EXPECT_TRUE(f.match("a", Hashes("p", 2)).pending);
}

TEST(SchedulerDeadline, GrowsWithWhatLookupsTakeUpToASecond) {
    SchedulerFixture f;
    const auto lookup_of = [&](const std::string& id, milliseconds time) {
        f.store->hold(any_op);
        f.add(id, Hashes(id, 2));
        EXPECT_TRUE(f.match(id, Hashes(id, 2)).pending);
        f.clock.advance(time);
        f.store->release();
        EXPECT_EQ(f.tokens(id, Hashes(id, 2)), 0U);
    };
    const auto deadline = [&](const std::string& id) {
        f.store->hold(any_op);
        f.add(id, Hashes(id, 2));
        int waited_ms = 0;
        for (; f.match(id, Hashes(id, 2)).pending; waited_ms += 10) f.clock.advance(milliseconds(10));
        return waited_ms;
    };
    lookup_of("a", milliseconds(40));
    EXPECT_EQ(deadline("b"), 160);
    for (int i = 0; i < 20; ++i) lookup_of("c" + std::to_string(i), milliseconds(900));
    EXPECT_EQ(deadline("d"), 1000);
}

TEST(SchedulerDeadline, DoesNotGrowWithTheTimeThatARequestWaitsForItsTurn) {
    SchedulerFixture f;
    f.add("a", Hashes("a", 2));
    f.clock.advance(std::chrono::seconds(10));
    EXPECT_EQ(f.tokens("a", Hashes("a", 2)), 0U);
    f.store->hold(any_op);
    f.add("b", Hashes("b", 2));
    EXPECT_TRUE(f.match("b", Hashes("b", 2)).pending);
    f.clock.advance(milliseconds(50));
    EXPECT_FALSE(f.match("b", Hashes("b", 2)).pending);
}

TEST(SchedulerBreaker, ThreeDeadlinesLeaveTheStoreAloneForAWhile) {
    SchedulerFixture f;
    f.store->hold(any_op);
    for (const std::string id : {"a", "b", "c"}) {
        f.add(id, Hashes(id, 2));
        EXPECT_TRUE(f.match(id, Hashes(id, 2)).pending);
        f.clock.advance(milliseconds(50));
        EXPECT_EQ(f.tokens(id, Hashes(id, 2)), 0U);
    }
    EXPECT_EQ(f.misses(Miss::deadline), 3U);
    const std::size_t asked = f.store->count(OpKind::stat);
    f.add("d", Hashes("d", 2));
    EXPECT_EQ(f.tokens("d", Hashes("d", 2)), 0U) << "at once";
    EXPECT_EQ(f.misses(Miss::breaker), 1U);
    EXPECT_EQ(f.store->count(OpKind::stat), asked);
    f.store->hold({});
    f.clock.advance(limits::breaker_open);
    f.put_chunks("e", 1);
    f.add("e", Hashes("e", 2));
    EXPECT_EQ(f.tokens("e", Hashes("e", 2)), 8U);
    f.put_chunks("f", 1);
    f.add("f", Hashes("f", 2));
    EXPECT_EQ(f.tokens("f", Hashes("f", 2)), 8U) << "closed again";
}

TEST(SchedulerBreaker, ErrorsOfTheStoreOpenIt) {
    SchedulerFixture f;
    f.store->script([](const Op&) { return failed_outcome(ErrorCode::unavailable, "gone", Status::busy); });
    for (const std::string id : {"a", "b", "c", "d"}) EXPECT_EQ(f.tokens(id, Hashes(id, 2)), 0U);
    EXPECT_EQ(f.misses(Miss::store_error), 3U);
    EXPECT_EQ(f.misses(Miss::breaker), 1U);
}

// Stats that work do not make up for loads that fail.
TEST(SchedulerBreaker, TroubledLoadsOpenItThoughLookupsWork) {
    SchedulerFixture f;
    const auto load = [&](const std::string& id, bool troubled) {
        f.put_chunks(id, 1);
        EXPECT_EQ(f.tokens(id, Hashes(id, 2)), 8U);
        EXPECT_TRUE(f.half->allocated(id, {blocks(0, 2)}, 8));
        f.step();
        if (troubled) {
            f.half->bad_blocks(blocks(0, 2));
            f.half->troubled(id);
        }
        f.half->loaded(id);
        f.half->finish(id);
    };
    load("a", true);
    load("b", true);
    load("c", false);
    load("d", true);
    load("e", true);
    load("f", true);
    f.put_chunks("g", 1);
    EXPECT_EQ(f.tokens("g", Hashes("g", 2)), 0U);
    EXPECT_EQ(f.misses(Miss::breaker), 1U);
}

// I4: a chunk that failed is offered for loading again only once it was stored anew, or its time is over.
TEST(SchedulerMemory, AFailedChunkIsLoadedAgainWhenItWasStoredAnew) {
    SchedulerFixture f;
    f.put_chunks("p", 1);
    const Hashes prompt("p", 2);
    const auto fail_load = [&](const std::string& id) {
        ASSERT_EQ(f.tokens(id, prompt), 8U);
        ASSERT_TRUE(f.half->allocated(id, {blocks(0, 2)}, 8));
        f.step();
        f.half->bad_blocks(blocks(0, 2));
        f.half->loaded(id);
    };
    fail_load("a");
    EXPECT_EQ(f.tokens("b", prompt), 0U) << "though it is there";
    EXPECT_EQ(f.misses(Miss::failed), 1U);
    f.run("a", prompt, true, blocks(0, 2), 0, 8);
    EXPECT_EQ(f.stored(f.step()), Texts{"p1"});
    EXPECT_EQ(f.tokens("c", prompt), 8U) << "asked for again";
    fail_load("d");
    f.half->finish("d");
    f.clock.advance(limits::presence_failed_ttl - milliseconds(1));
    EXPECT_EQ(f.tokens("e", prompt), 0U);
    f.clock.advance(milliseconds(1));
    EXPECT_EQ(f.tokens("f", prompt), 8U);
}

TEST(SchedulerMemory, ASettledAnswerIsLookedAtAgainAfterAFailedLoad) {
    SchedulerFixture f;
    f.put_chunks("p", 2);
    const Hashes prompt("p", 4);
    ASSERT_EQ(f.tokens("a", prompt), 16U);
    ASSERT_EQ(f.tokens("b", prompt), 16U);
    ASSERT_TRUE(f.half->allocated("a", {blocks(0, 4)}, 16));
    f.step();
    f.half->bad_blocks(blocks(2, 2));
    f.half->loaded("a");
    EXPECT_EQ(f.tokens("b", prompt), 8U);
}

TEST(SchedulerMemory, AMissIsAskedAgainAfterTwoSeconds) {
    SchedulerFixture f;
    const Hashes prompt("p", 2);
    EXPECT_EQ(f.tokens("a", prompt), 0U);
    f.put_chunks("p", 1);
    f.clock.advance(milliseconds(1900));
    EXPECT_EQ(f.tokens("a", prompt), 0U);
    f.clock.advance(milliseconds(200));
    EXPECT_EQ(f.tokens("a", prompt), 8U);
    EXPECT_EQ(f.misses(), 1U);
}

// What the engine has itself was offered when it was computed; only a known gap is offered again, with all behind it.
TEST(SchedulerStores, HolesAreFilledFromWhatTheEngineHas) {
    SchedulerFixture f;
    f.put_chunks("p", 4);
    f.put("p", 1, false);
    const Hashes prompt("p", 8);
    EXPECT_EQ(f.tokens("a", prompt, 0), 8U);
    f.run("a", prompt, true, blocks(0, 8), 24, 8);
    EXPECT_EQ(f.stored(f.step()), Texts{"p3"}) << "the others are known to be there";
    SchedulerFixture g;
    g.run("a", prompt, true, blocks(0, 8), 24, 8);
    EXPECT_EQ(g.stored(g.step()), Texts{"p7"}) << "nothing is known: only what is computed";
}

TEST(SchedulerStores, ReadOnlyStoresNothingAndWriteOnlyLoadsNothing) {
    Options options = test_options();
    options.mode = Mode::read_only;
    SchedulerFixture reader(options);
    reader.put_chunks("p", 1);
    EXPECT_EQ(reader.tokens("a", Hashes("p", 4)), 8U);
    reader.run("a", Hashes("p", 4), true, blocks(0, 4), 8, 8);
    EXPECT_EQ(reader.half->build_step(), "");
    options.mode = Mode::write_only;
    SchedulerFixture writer(options);
    writer.put_chunks("p", 2);
    writer.add("a", Hashes("p", 4));
    EXPECT_EQ(writer.tokens("a", Hashes("p", 4)), 0U);
    EXPECT_EQ(writer.store->count(OpKind::stat), 0U);
    EXPECT_EQ(writer.misses(Miss::disabled), 1U);
    writer.run("a", Hashes("p", 4), true, blocks(0, 4), 0, 16);
    EXPECT_EQ(writer.stored(writer.step()), (Texts{"p1", "p3"}));
}

TEST(SchedulerCounters, AMissIsCountedOnceARequest) {
    SchedulerFixture f;
    f.put_chunks("p", 1);
    const Hashes prompt("p", 4);
    for (int i = 0; i < 5; ++i) {
        EXPECT_EQ(f.tokens("a", prompt), 8U);
        f.clock.advance(std::chrono::seconds(40));
    }
    EXPECT_EQ(f.misses(Miss::absent), 1U);
    EXPECT_EQ(f.half->counters().asked_tokens, 16U);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(f.match("b", prompt, 0, true).tokens, 0U);
    EXPECT_EQ(f.misses(Miss::skipped), 1U);
    EXPECT_EQ(f.misses(), 2U);
}

TEST(SchedulerCounters, WhatARequestAskedForIsCountedOnceThoughItIsAnsweredTwice) {
    SchedulerFixture f;
    f.put_chunks("p", 2);
    const Hashes prompt("p", 4);
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(f.tokens("a", prompt), 16U);
        f.clock.advance(std::chrono::seconds(40));
    }
    EXPECT_EQ(f.half->counters().asked_tokens, 16U);
}

// I6, I3: a load that can't be named is refused as a whole, and still handed to the workers to be reported.
TEST(SchedulerLoads, ABrokenContractIsRefusedAndReported) {
    SchedulerFixture f;
    f.put_chunks("p", 2);
    const Hashes prompt("p", 4);
    ASSERT_EQ(f.tokens("a", prompt), 16U);
    EXPECT_FALSE(f.half->allocated("a", {}, 16)) << "nothing could be reported for no blocks";
    EXPECT_EQ(f.half->build_step(), "");
    ASSERT_TRUE(f.half->allocated("a", {blocks(0, 3)}, 16));
    ASSERT_TRUE(f.half->allocated("stranger", {blocks(5, 4)}, 16));
    const Step step = f.step();
    ASSERT_EQ(step.loads.size(), 2U);
    EXPECT_TRUE(step.loads[0].refused);
    EXPECT_EQ(step.loads[0].chunks[0].blocks, blocks(0, 3));
    EXPECT_TRUE(step.loads[1].refused);
    EXPECT_EQ(step.loads[1].chunks[0].blocks, blocks(5, 4));
}

TEST(SchedulerLoads, ARefusedLoadIsNotAskedForAgainAtOnce) {
    SchedulerFixture f;
    f.put_chunks("p", 2);
    const Hashes prompt("p", 4);
    ASSERT_EQ(f.tokens("a", prompt), 16U);
    ASSERT_TRUE(f.half->allocated("a", {blocks(0, 3)}, 16));
    f.step();
    f.half->bad_blocks(blocks(0, 3));
    f.half->loaded("a");
    EXPECT_EQ(f.tokens("a", prompt), 0U);
}

TEST(SchedulerLoads, StepsAreNumbered) {
    SchedulerFixture f;
    f.run("a", Hashes("p", 2), true, blocks(0, 2), 0, 8);
    const auto first = f.step().sequence;
    EXPECT_EQ(f.half->build_step(), "");
    f.half->finish("a");
    EXPECT_EQ(f.step().sequence, first + 1);
}

TEST(SchedulerExplain, OneLineForPeople) {
    SchedulerFixture f;
    f.put_chunks("p", 1);
    f.tokens("a", Hashes("p", 5));
    EXPECT_EQ(
        f.half->explain("a"),
        "request a: 2 full chunks of 8 tokens, engine had 0 tokens, found 8, loaded 0, offered 0 chunks; not more "
        "because: absent");
    EXPECT_EQ(f.half->explain("b"), "");
    EXPECT_EQ(f.half->describe_store(), "scripted");
}

}  // namespace
}  // namespace kvern
