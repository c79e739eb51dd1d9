// SPDX-License-Identifier: Apache-2.0
// Loads that succeed, share, wait and end; loader_failures_test.cc has those that fail.
#include "engine/loader.h"

#include <gtest/gtest.h>

#include "engine/load_fixture.h"

namespace kvern {
namespace {

using testing::any_op;
using testing::eventually;
using testing::hash_of;
using testing::LoadFixture;
using testing::of_kind;
using testing::range;

using Requests = std::vector<std::string>;

// I1, I2: a load is reported once, with nothing bad.
TEST(Loader, AWholeLoadReachesItsBlocks) {
    LoadFixture f;
    f.put(4);
    f.scrub();
    f.load("a", 0, 4, 10);
    const auto report = f.reported(1);
    EXPECT_EQ(report.requests, Requests{"a"});
    EXPECT_TRUE(report.bad_blocks.empty());
    EXPECT_TRUE(report.troubled.empty());
    EXPECT_TRUE(f.holds(0, 4, 10));
    EXPECT_TRUE(f.untouched(0, 10));
    EXPECT_TRUE(f.untouched(18, 32));
    EXPECT_EQ(f.counters.loads, 1U);
    EXPECT_EQ(f.counters.bytes_read, 4 * f.object_bytes());
    EXPECT_EQ(f.counters.verified_slices, 8U);
    EXPECT_TRUE(f.loader->take_finished().requests.empty());
    EXPECT_EQ(f.staging->stats().leased_bytes, 0U);
}

TEST(Loader, HolesAreVerifiedAndCopiedNowhere) {
    LoadFixture f;
    f.put(2);
    f.scrub();
    auto job = f.job("a", 0, 2, 0);
    job.chunks[0].blocks[0] = no_block;
    f.loader->submit({job}, f.name_space);
    EXPECT_TRUE(f.reported(1).bad_blocks.empty());
    EXPECT_TRUE(f.untouched(0, 1));
    EXPECT_TRUE(f.kv.holds(1, 1));
    EXPECT_TRUE(f.holds(1, 2, 2));
}

TEST(Loader, AnEmptyLoadIsReported) {
    LoadFixture f;
    f.load("a", 0, 0, 0);
    EXPECT_EQ(f.reported(1).requests, Requests{"a"});
    f.loader->submit({}, f.name_space);
}

TEST(Loader, AHitLargerThanStagingComesInWindows) {
    LoadFixture f(3);
    f.put(10);
    f.scrub();
    f.store.hold(any_op);
    f.load("a", 0, 10, 0);
    for (std::size_t chunk = 0; chunk < 10; ++chunk) {
        const std::size_t window = std::min<std::size_t>(3, 10 - chunk);
        ASSERT_TRUE(f.store.wait_held(window));
        EXPECT_EQ(f.store.held(), window) << "never more reads than staging has room for";
        EXPECT_EQ(f.store.release(f.of(OpKind::get, chunk)), 1U) << "in prefix order";
    }
    EXPECT_TRUE(f.reported(1).bad_blocks.empty());
    EXPECT_TRUE(f.holds(0, 10, 0));
}

TEST(Loader, TwoLoadsOfOneChunkShareARead) {
    LoadFixture f;
    f.put(4);
    f.scrub();
    f.store.hold(any_op);
    f.load("a", 0, 3, 0);
    ASSERT_TRUE(f.store.wait_held(3));
    f.load("b", 0, 4, 10);
    ASSERT_TRUE(f.store.wait_held(4));
    f.store.release();
    EXPECT_TRUE(f.reported(2).bad_blocks.empty());
    EXPECT_EQ(f.store.count(OpKind::get), 4U);
    EXPECT_EQ(f.counters.shared_reads, 3U);
    EXPECT_TRUE(f.holds(0, 3, 0));
    EXPECT_TRUE(f.holds(0, 4, 10));
}

// I10: the same hash in another namespace is another object.
TEST(Loader, ReadsOfDifferentNamespacesAreNotShared) {
    LoadFixture f;
    f.put(1);
    f.scrub();
    f.store.hold(any_op);
    f.load("a", 0, 1, 0);
    ASSERT_TRUE(f.store.wait_held(1));
    f.loader->submit({f.job("b", 0, 1, 2)}, namespace_of("[]"));
    ASSERT_TRUE(f.store.wait_held(2));
    f.store.release();
    const auto report = f.reported(2);
    EXPECT_EQ(report.bad_blocks, range(2, 4));
    EXPECT_TRUE(f.holds(0, 1, 0));
    EXPECT_TRUE(f.untouched(2, 4));
}

TEST(Loader, LoadsAreServedInTheOrderOfTheirArrival) {
    LoadFixture f(1);
    f.put(4);
    f.store.hold(any_op);
    f.load("a", 0, 2, 0);
    ASSERT_TRUE(f.store.wait_held(1));
    f.load("b", 2, 4, 8);
    for (std::size_t chunk = 0; chunk < 4; ++chunk) {
        ASSERT_TRUE(f.store.wait_held(1));
        ASSERT_EQ(f.store.release(f.of(OpKind::get, chunk)), 1U);
    }
    EXPECT_EQ(f.reported(2).requests, (Requests{"a", "b"}));
}

TEST(Loader, AReadThatNobodyWantsAnyMoreCanBeShared) {
    LoadFixture f;
    f.put(3);
    f.store.erase_value(f.key(0));
    f.scrub();
    f.store.hold(any_op);
    f.load("a", 0, 2, 0);
    ASSERT_TRUE(f.store.wait_held(2));
    f.store.release(f.of(OpKind::get, 0));
    EXPECT_EQ(f.reported(1).bad_blocks, range(0, 4));
    f.load("b", 1, 3, 8);
    ASSERT_TRUE(f.store.wait_held(2));
    EXPECT_EQ(f.store.count(OpKind::get), 3U);
    f.store.release();
    EXPECT_EQ(f.reported(2).bad_blocks, range(0, 4));
    EXPECT_TRUE(f.holds(1, 3, 8));
    EXPECT_TRUE(f.untouched(0, 4)) << "the load that gave up is written no more";
}

TEST(Loader, WaitsForStagingThatOthersHold) {
    LoadFixture f(2);
    f.put(2);
    auto lease = f.staging->try_lease(f.staging->size_bytes());
    ASSERT_TRUE(lease);
    f.load("a", 0, 2, 0);
    // No answer of a read of its own tells the loader that there is room again.
    lease->release();
    EXPECT_TRUE(f.reported(1).bad_blocks.empty());
}

TEST(Loader, StarvedForTheStallTimeIsReported) {
    LoadFixture f(2, testing::short_stall);
    f.put(2);
    auto lease = f.staging->try_lease(f.staging->size_bytes());
    f.load("a", 0, 2, 0);
    const auto report = f.reported(1);
    EXPECT_EQ(report.bad_blocks, range(0, 4));
    EXPECT_EQ(f.failures(LoadFailure::stall), 1U);
    EXPECT_EQ(f.staging->stats().quarantined_bytes, 0U);
}

// I1, I8: shutdown.
TEST(Loader, StopReportsWhatIsUnderWay) {
    LoadFixture f;
    f.put(4);
    f.scrub();
    f.store.hold(any_op);
    f.load("a", 0, 3, 0);
    ASSERT_TRUE(f.store.wait_held(3));
    f.store.release(f.of(OpKind::get, 0));
    ASSERT_TRUE(eventually([&] { return f.counters.verified_slices == 2; }));
    f.load("b", 3, 4, 10);
    f.loader->stop();
    const auto report = f.reported(2);
    EXPECT_EQ(report.requests, (Requests{"a", "b"}));
    EXPECT_EQ(report.bad_blocks, (std::vector<std::int32_t>{2, 3, 4, 5, 10, 11}));
    EXPECT_TRUE(f.holds(0, 1, 0)) << "what was loaded is valid";
    EXPECT_TRUE(report.troubled.empty()) << "the engine stops; that says nothing about the store";
    f.loader->stop();
    EXPECT_GT(f.staging->stats().leased_bytes, 0U) << "reads without an answer keep their memory";
    f.end();
    EXPECT_TRUE(f.untouched(2, 32)) << "late bytes reach nobody";
    EXPECT_EQ(f.staging->stats().leased_bytes, 0U);
    EXPECT_EQ(f.staging->stats().quarantined_bytes, 0U);
}

TEST(Loader, StopReportsALoadThatWaitsForARemovalAsItWouldHaveBeen) {
    LoadFixture f;
    f.put(2);
    f.damage(1, 5000);
    f.store.hold(of_kind(OpKind::remove));
    f.load("a", 0, 2, 0);
    ASSERT_TRUE(f.store.wait_held(1));
    f.loader->stop();
    EXPECT_EQ(f.reported(1).bad_blocks, range(2, 4));
    EXPECT_EQ(f.failures(LoadFailure::shutdown), 0U);
}

TEST(Loader, AStalledReadThatIsAnsweredAtTheEndGivesItsStagingBack) {
    LoadFixture f(16, testing::short_stall);
    f.put(1);
    f.store.hold(any_op);
    f.load("a", 0, 1, 0);
    f.reported(1);
    EXPECT_EQ(f.staging->stats().quarantined_bytes, f.object_bytes());
    f.end();
    EXPECT_EQ(f.staging->stats().quarantined_bytes, 0U);
}

TEST(Loader, WhatNeverGetsAnAnswerKeepsItsStagingForEver) {
    LoadFixture f;
    f.put(1);
    f.store.hold(any_op);
    f.load("a", 0, 1, 0);
    ASSERT_TRUE(f.store.wait_held(1));
    f.loader.reset();  // without close(): the transfer may still write
    EXPECT_EQ(f.staging->stats().quarantined_bytes, f.object_bytes());
}

}  // namespace
}  // namespace kvern
