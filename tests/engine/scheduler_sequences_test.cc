// SPDX-License-Identifier: Apache-2.0
// The sequences of calls that vLLM's scheduler makes, one event each.
#include <gtest/gtest.h>

#include "engine/scheduler_fixture.h"

namespace kvern {
namespace {

using testing::any_op;
using testing::blocks;
using testing::Hashes;
using testing::of_kind;
using testing::SchedulerFixture;

using Texts = std::vector<std::string>;

TEST(VllmSequence, Miss) {
    SchedulerFixture f;
    const Hashes prompt("p", 5);
    f.add("a", prompt);
    EXPECT_EQ(f.tokens("a", prompt), 0U);
    ASSERT_TRUE(f.half->allocated("a", {blocks(0, 5)}, 0));
    f.run("a", prompt, true, blocks(10, 5), 0, 20);
    const Step step = f.step();
    EXPECT_TRUE(step.loads.empty());
    ASSERT_EQ(f.stored(step), (Texts{"p1", "p3"}));
    EXPECT_EQ(step.stores[0].object.blocks, blocks(10, 2));
    EXPECT_EQ(step.stores[1].object.blocks, blocks(12, 2));
    EXPECT_EQ(to_hex(step.name_space), f.half->namespace_hex());
    f.run("a", Hashes("p", 6), false, blocks(15, 1), 20, 4);
    EXPECT_EQ(f.stored(f.step()), Texts{"p5"});
    f.half->finish("a");
    EXPECT_EQ(f.step().ended, std::vector<std::uint64_t>{step.stores[0].incarnation});
    EXPECT_EQ(f.half->build_step(), "") << "nothing to say is an empty step";
    EXPECT_EQ(f.misses(Miss::absent), 1U);
    EXPECT_EQ(f.misses(), 1U);
}

TEST(VllmSequence, NoFreeBlocksAfterTheLookup) {
    SchedulerFixture f;
    f.put_chunks("p", 2);
    const Hashes prompt("p", 4);
    f.add("a", prompt);
    EXPECT_EQ(f.tokens("a", prompt), 16U);
    const std::size_t asked = f.store->count(OpKind::stat);
    for (int i = 0; i < 5; ++i) EXPECT_EQ(f.tokens("a", prompt), 16U);
    EXPECT_EQ(f.store->count(OpKind::stat), asked) << "the answer is kept";
    EXPECT_EQ(f.tokens("a", prompt, 8), 8U) << "meanwhile the engine has a part itself";
    EXPECT_EQ(f.half->build_step(), "");
    EXPECT_EQ(f.half->counters().asked_tokens, 16U);
}

TEST(VllmSequence, AsyncHit) {
    SchedulerFixture f;
    f.put_chunks("p", 2);
    const Hashes prompt("p", 5);
    f.add("a", prompt);
    ASSERT_EQ(f.tokens("a", prompt), 16U);
    ASSERT_TRUE(f.half->allocated("a", {blocks(20, 5)}, 16));
    const Step step = f.step();
    ASSERT_EQ(step.loads.size(), 1U);
    EXPECT_EQ(step.loads[0].request, "a");
    EXPECT_FALSE(step.loads[0].refused);
    ASSERT_EQ(step.loads[0].chunks.size(), 2U);
    EXPECT_EQ(step.loads[0].chunks[1].chunk.hash.bytes(), "p3");
    EXPECT_EQ(step.loads[0].chunks[1].blocks, blocks(22, 2));
    EXPECT_EQ(f.half->build_step(), "") << "a load is told once";
    f.half->loaded("a");
    EXPECT_EQ(f.half->counters().hit_tokens, 16U);
    ASSERT_TRUE(f.half->allocated("a", {blocks(20, 5)}, 0));
    f.run("a", prompt, true, blocks(20, 5), 16, 4);
    f.run("a", Hashes("p", 6), false, blocks(25, 1), 20, 4);
    EXPECT_EQ(f.stored(f.step()), Texts{"p5"}) << "what was loaded is not stored again";
    EXPECT_EQ(f.misses(), 0U);
}

// I2: an aborted request's blocks are not stored; its load is still to be reported.
TEST(VllmSequence, AbortWhileLoading) {
    SchedulerFixture f;
    f.put_chunks("p", 2);
    const Hashes prompt("p", 5);
    f.add("a", prompt);
    ASSERT_EQ(f.tokens("a", prompt), 16U);
    ASSERT_TRUE(f.half->allocated("a", {blocks(20, 5)}, 16));
    ASSERT_EQ(f.step().loads.size(), 1U);
    f.half->finish("a");
    EXPECT_EQ(f.half->build_step(), "");
    f.half->loaded("a");
    EXPECT_EQ(f.half->counters().hit_tokens, 16U);
    f.half->loaded("a");
    EXPECT_EQ(f.half->counters().hit_tokens, 16U) << "a second report says nothing";
    EXPECT_EQ(f.half->build_step(), "");
}

TEST(VllmSequence, AbortAfterTheLoadBeforeScheduling) {
    SchedulerFixture f;
    f.put_chunks("p", 2);
    const Hashes prompt("p", 5);
    f.add("a", prompt);
    ASSERT_EQ(f.tokens("a", prompt), 16U);
    ASSERT_TRUE(f.half->allocated("a", {blocks(20, 5)}, 16));
    f.step();
    f.half->loaded("a");
    f.half->finish("a");
    EXPECT_EQ(f.half->build_step(), "");
    EXPECT_EQ(f.half->explain("a"), "");
}

// I7: aborted before its load starts: nothing is issued.
TEST(VllmSequence, AbortBeforeAdmission) {
    SchedulerFixture f;
    f.put_chunks("p", 2);
    f.store->hold(any_op);
    f.add("a", Hashes("p", 4));
    f.half->finish("a");
    f.store->release();
    EXPECT_EQ(f.half->build_step(), "");
    f.store->hold({});
    f.add("b", Hashes("p", 4));
    EXPECT_EQ(f.tokens("b", Hashes("p", 4)), 16U) << "the late answers of the first did no harm";
    EXPECT_EQ(f.misses(), 0U);
}

TEST(VllmSequence, LoadErrorBehindAValidPrefix) {
    SchedulerFixture f;
    f.put_chunks("p", 3);
    const Hashes prompt("p", 7);
    f.add("a", prompt);
    ASSERT_EQ(f.tokens("a", prompt), 24U);
    ASSERT_TRUE(f.half->allocated("a", {blocks(20, 7)}, 24));
    f.step();
    f.half->bad_blocks(blocks(22, 4));
    f.half->loaded("a");
    EXPECT_EQ(f.half->counters().hit_tokens, 8U);
    ASSERT_TRUE(f.half->allocated("a", {blocks(20, 7)}, 0));
    f.run("a", prompt, true, blocks(20, 7), 8, 20);
    EXPECT_EQ(f.stored(f.step()), Texts{"p3"}) << "what lies behind the failure was seen, and was not tried";
}

// I4: asked again at once, the answer leaves out what has just failed.
TEST(VllmSequence, LoadErrorWithoutAPrefix) {
    SchedulerFixture f;
    f.put_chunks("p", 2);
    const Hashes prompt("p", 5);
    f.add("a", prompt);
    ASSERT_EQ(f.tokens("a", prompt), 16U);
    ASSERT_TRUE(f.half->allocated("a", {blocks(20, 5)}, 16));
    f.step();
    f.half->bad_blocks(blocks(20, 4));
    f.half->loaded("a");
    const std::size_t asked = f.store->count(OpKind::stat);
    EXPECT_EQ(f.tokens("a", prompt), 0U);
    EXPECT_EQ(f.store->count(OpKind::stat), asked) << "not even asked for";
    EXPECT_EQ(f.misses(Miss::failed), 1U);
    EXPECT_EQ(f.half->counters().hit_tokens, 0U);
}

TEST(VllmSequence, LoadErrorWithPolicyFail) {
    SchedulerFixture f;
    f.put_chunks("p", 2);
    f.add("a", Hashes("p", 4));
    ASSERT_EQ(f.tokens("a", Hashes("p", 4)), 16U);
    ASSERT_TRUE(f.half->allocated("a", {blocks(20, 4)}, 16));
    f.step();
    f.half->bad_blocks(blocks(20, 1));
    f.half->finish("a");
    f.half->loaded("a");
    EXPECT_EQ(f.half->build_step(), "");
    f.add("b", Hashes("p", 4));
    EXPECT_EQ(f.tokens("b", Hashes("p", 4)), 0U);
}

// I9: one rank's failure is the request's.
TEST(VllmSequence, LoadErrorOfOneRankInAPartOfAChunk) {
    SchedulerFixture f;
    f.put_chunks("p", 2);
    f.add("a", Hashes("p", 4));
    ASSERT_EQ(f.tokens("a", Hashes("p", 4)), 16U);
    ASSERT_TRUE(f.half->allocated("a", {blocks(20, 4)}, 16));
    f.step();
    f.half->bad_blocks(blocks(21, 1));
    f.half->bad_blocks(blocks(90, 3));  // of nobody here
    f.half->loaded("a");
    EXPECT_EQ(f.half->counters().hit_tokens, 4U) << "up to the first bad block";
    EXPECT_EQ(f.tokens("a", Hashes("p", 4)), 0U);
}

TEST(VllmSequence, Preemption) {
    SchedulerFixture f;
    const Hashes prompt("p", 6);
    f.add("a", prompt);
    EXPECT_EQ(f.tokens("a", prompt), 0U);
    f.run("a", prompt, true, blocks(10, 6), 0, 16);
    const Step first = f.step();
    ASSERT_EQ(f.stored(first), (Texts{"p1", "p3"}));
    f.half->preempted("a");
    EXPECT_EQ(f.step().ended, std::vector{first.stores[0].incarnation});
    f.put_chunks("p", 2);
    f.clock.advance(std::chrono::seconds(3));
    EXPECT_EQ(f.tokens("a", prompt, 8), 8U) << "looked up again, beyond the engine's own";
    ASSERT_TRUE(f.half->allocated("a", {blocks(30, 6)}, 8));
    const Step second = f.step();
    ASSERT_EQ(second.loads.size(), 1U);
    ASSERT_EQ(second.loads[0].chunks.size(), 1U);
    EXPECT_EQ(second.loads[0].chunks[0].blocks, blocks(32, 2));
    f.half->loaded("a");
    f.run("a", prompt, true, blocks(30, 6), 16, 8);
    const Step third = f.step();
    EXPECT_EQ(f.stored(third), Texts{"p5"});
    EXPECT_EQ(third.stores[0].object.blocks, blocks(34, 2)) << "of the new table";
    EXPECT_NE(third.stores[0].incarnation, first.stores[0].incarnation);
}

TEST(VllmSequence, PreemptedInTheStepInWhichItRuns) {
    SchedulerFixture f;
    const Hashes prompt("p", 4);
    f.add("a", prompt);
    f.tokens("a", prompt);
    f.run("a", prompt, true, blocks(10, 4), 0, 8);
    f.step();
    // The engine names preemptions first, and the request does not run then.
    f.half->preempted("a");
    const Step step = f.step();
    EXPECT_EQ(step.ended.size(), 1U);
    EXPECT_TRUE(step.stores.empty());
    f.run("a", prompt, false, {}, 8, 8);
    EXPECT_EQ(f.half->build_step(), "") << "without blocks nothing can be stored";
}

// Guesses that may be taken back are not stored before they stand.
TEST(VllmSequence, SpecDecodeRejection) {
    SchedulerFixture f;
    f.add("a", Hashes("p", 3));
    f.tokens("a", Hashes("p", 3));
    f.run("a", Hashes("p", 3), true, blocks(10, 4), 0, 12);
    EXPECT_EQ(f.stored(f.step()), Texts{"p1"});
    f.run("a", Hashes("p", 4), false, {}, 13, 4, 3);  // 14 tokens stand, 3 are guessed
    EXPECT_EQ(f.half->build_step(), "");
    f.run("a", Hashes("p", 4), false, {}, 12, 4, 1);  // rejected: the engine went back
    EXPECT_EQ(f.half->build_step(), "");
    f.run("a", Hashes("p", 4), false, {}, 15, 1, 0);
    EXPECT_EQ(f.stored(f.step()), Texts{"p3"});
    f.run("a", Hashes("p", 4), false, {}, 16, 2, 9);
    EXPECT_EQ(f.half->build_step(), "") << "more guesses than tokens are no tokens";
}

TEST(VllmSequence, StreamingSessionGrowsWithoutANewRequest) {
    SchedulerFixture f;
    f.add("a", Hashes("p", 2));
    EXPECT_EQ(f.tokens("a", Hashes("p", 2)), 0U);
    f.run("a", Hashes("p", 2), true, blocks(10, 2), 0, 8);
    EXPECT_EQ(f.stored(f.step()), Texts{"p1"});
    f.put_chunks("p", 2);
    EXPECT_EQ(f.tokens("a", Hashes("p", 4), 8), 8U);
    f.run("a", Hashes("p", 6), false, blocks(12, 4), 8, 16);
    EXPECT_EQ(f.stored(f.step()), Texts{"p5"}) << "p3 is known to be there";
}

TEST(VllmSequence, StreamingSessionRewritesItsTail) {
    SchedulerFixture f;
    f.add("a", Hashes("p", 6));
    EXPECT_EQ(f.tokens("a", Hashes("p", 6)), 0U);
    f.run("a", Hashes("p", 6), true, blocks(10, 6), 0, 24);
    EXPECT_EQ(f.stored(f.step()), (Texts{"p1", "p3", "p5"}));
    const Hashes rewritten({"p0", "p1", "p2", "x3", "x4", "x5"});
    f.run("a", rewritten, false, {}, 12, 4);
    EXPECT_EQ(f.stored(f.step()), Texts{"x3"}) << "what is as before is not offered again";
    f.run("a", Hashes({"p0"}), false, {}, 4, 1);
    f.run("a", Hashes({}), false, {}, 0, 1);
    f.run("a", Hashes({"y0", "y1"}), false, {}, 4, 4);
    EXPECT_EQ(f.stored(f.step()), Texts{"y1"});
}

TEST(VllmSequence, TheTailIsRewrittenWhileALookupIsUnderWay) {
    SchedulerFixture f;
    f.put_chunks("p", 3);
    f.store->hold(of_kind(OpKind::stat));
    f.add("a", Hashes("p", 6));
    EXPECT_TRUE(f.match("a", Hashes("p", 6)).pending);
    const Hashes rewritten({"p0", "p1", "x2"});
    EXPECT_TRUE(f.match("a", rewritten).pending);
    f.store->release();
    f.store->hold({});
    EXPECT_EQ(f.tokens("a", rewritten), 8U) << "not the answer about the old tail";
}

TEST(VllmSequence, PauseSleepAndWeightUpdateStartANewEpoch) {
    SchedulerFixture f;
    f.put_chunks("p", 2);
    const Hashes prompt("p", 4);
    f.add("a", prompt);
    f.add("b", Hashes("q", 4));
    ASSERT_EQ(f.tokens("a", prompt), 16U);
    f.run("b", Hashes("q", 4), true, blocks(10, 4), 0, 8);
    const auto old = f.half->namespace_hex();
    f.half->reset();
    EXPECT_NE(f.half->namespace_hex(), old);
    EXPECT_TRUE(f.store->values().contains(identity_key(f.half->namespace_hex())));
    Step step = f.step();
    EXPECT_TRUE(step.stores.empty()) << "computed with the old weights";
    EXPECT_EQ(step.ended.size(), 1U);
    f.run("b", Hashes("q", 4), false, {}, 8, 8);
    EXPECT_EQ(f.half->build_step(), "") << "not stored until it starts afresh";
    EXPECT_EQ(f.tokens("a", prompt), 0U) << "nothing of the old epoch is found";
    f.half->preempted("b");
    f.run("b", Hashes("q", 4), true, blocks(20, 4), 0, 16);
    step = f.step();
    EXPECT_EQ(f.stored(step), (Texts{"q1", "q3"}));
    EXPECT_EQ(to_hex(step.name_space), f.half->namespace_hex());
}

TEST(VllmSequence, ResetWithKeepChangesNothing) {
    Options options = testing::test_options();
    options.epoch_on_reset = false;
    SchedulerFixture f(options);
    const auto old = f.half->namespace_hex();
    f.half->reset();
    EXPECT_EQ(f.half->namespace_hex(), old);
}

TEST(VllmSequence, ALoadOfTheOldEpochSaysNothingAboutTheNewOne) {
    SchedulerFixture f;
    f.put_chunks("p", 2);
    const Hashes prompt("p", 4);
    f.add("a", prompt);
    ASSERT_EQ(f.tokens("a", prompt), 16U);
    ASSERT_TRUE(f.half->allocated("a", {blocks(20, 4)}, 16));
    f.step();
    f.half->reset();
    f.half->loaded("a");
    EXPECT_EQ(f.tokens("a", prompt), 0U);
    f.run("a", prompt, true, blocks(20, 4), 0, 16);
    EXPECT_EQ(f.stored(f.step()), (Texts{"p1", "p3"})) << "it has to be stored in the new epoch";
}

TEST(VllmSequence, ShutdownWithEverythingUnderWay) {
    SchedulerFixture f;
    f.store->hold(any_op);
    f.add("a", Hashes("p", 4));
    EXPECT_TRUE(f.match("a", Hashes("p", 4)).pending);
    f.half->reset();
    f.half.reset();
}

}  // namespace
}  // namespace kvern
