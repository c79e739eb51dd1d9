// SPDX-License-Identifier: Apache-2.0
#include "cache/lookup.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <array>
#include <numeric>
#include <thread>

#include "cache/scripted_store.h"

namespace kvern {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using testing::failed_outcome;
using testing::ScriptedStore;

const std::string name_space(64, 'a');

std::vector<ChunkId> hashes(std::size_t count, const std::string& family = "f") {
    std::vector<ChunkId> list;
    for (std::size_t i = 0; i < count; ++i)
        list.push_back({ChunkHash(family + std::to_string(i)), i == 0 ? 0 : list.back().hash.tag()});
    return list;
}

struct Fixture {
    explicit Fixture(bool cheap_stat = true, std::vector<std::string> the_shards = {"l0-0.h0-0"})
        : store(cheap_stat), shards(std::move(the_shards)) {
        configure(name_space);
    }
    void configure(const std::string& the_namespace) {
        const Lookups::Group group{{GroupKind::full, 4, 8, 0}, shards};
        lookups.configure(the_namespace, {&group, 1});
    }
    void add(const ChunkId& hash) {
        for (const std::string& shard : shards) store.set_value(object_key(name_space, hash, 0, shard), "x");
    }
    void add(std::span<const ChunkId> list) {
        for (const ChunkId& hash : list) add(hash);
    }
    Lookups::Answer ask(std::span<const ChunkId> list) {
        return lookups.wait_for(lookups.start(list), testing::patience);
    }
    ScriptedStore store;
    std::vector<std::string> shards;
    FakeClock clock;
    Presence presence{clock};
    Lookups lookups{store, presence};
};

TEST(LookupScan, FindsTheFirstGapWhereverItIs) {
    const auto list = hashes(200);
    for (std::size_t gap = 0; gap <= list.size(); ++gap) {
        Fixture fixture;
        for (std::size_t i = 0; i < list.size(); ++i)
            if (i != gap) fixture.add(list[i]);
        const auto answer = fixture.ask(list);
        ASSERT_TRUE(answer.done);
        ASSERT_EQ(answer.chunks, gap);
        ASSERT_EQ(answer.error, "");
    }
}

TEST(LookupScan, AsksTheFirst64AloneAndTheRestOnlyBehindThem) {
    const auto list = hashes(200);
    Fixture all;
    all.add(list);
    EXPECT_EQ(all.ask(list).chunks, 200U);
    EXPECT_EQ(all.store.batches(), (std::vector<std::size_t>{64, 136}));
    Fixture gap;
    gap.add(std::span(list).first(63));
    EXPECT_EQ(gap.ask(list).chunks, 63U);
    EXPECT_EQ(gap.store.batches(), (std::vector<std::size_t>{64}));
}

TEST(LookupScan, AChunkIsThereWhenAllItsShardsAre) {
    const auto list = hashes(5);
    Fixture fixture(true, {"l0-1.h0-0", "l0-1.h1-1", "l2-3.h0-0"});
    fixture.add(list);
    EXPECT_EQ(fixture.ask(list).chunks, 5U);
    fixture.presence.clear();
    fixture.store.erase_value(object_key(name_space, list[3], 0, "l2-3.h0-0"));
    EXPECT_EQ(fixture.ask(list).chunks, 3U);
    EXPECT_EQ(fixture.presence.find(list[3].hash, 0), Belief::absent);
    EXPECT_EQ(fixture.presence.find(list[4].hash, 0), Belief::present);
}

TEST(LookupScan, BeliefsAreNotAskedFor) {
    const auto list = hashes(10);
    Fixture fixture;
    fixture.add(list);
    for (std::size_t i = 0; i < 4; ++i) fixture.presence.note(list[i].hash, 0, Belief::present);
    fixture.presence.note(list[8].hash, 0, Belief::failed);
    EXPECT_EQ(fixture.ask(list).chunks, 8U);
    EXPECT_EQ(fixture.store.batches(), (std::vector<std::size_t>{4}));
    fixture.presence.note(list[0].hash, 0, Belief::absent);
    EXPECT_EQ(fixture.ask(list).chunks, 0U);
    EXPECT_EQ(fixture.store.batches().size(), 1U);
    EXPECT_EQ(fixture.ask({}).chunks, 0U);
}

TEST(LookupScan, BusyAndFailedSayNothingAboutTheData) {
    const auto list = hashes(3);
    for (const Status status : {Status::busy, Status::failed}) {
        Fixture fixture;
        fixture.add(list);
        fixture.store.script([&](const Op& op) -> std::optional<Outcome> {
            if (op.key == object_key(name_space, list[1], 0, fixture.shards[0]))
                return failed_outcome(ErrorCode::io, "broken disk", status);
            return {};
        });
        const auto answer = fixture.ask(list);
        EXPECT_EQ(answer.chunks, 1U);
        EXPECT_EQ(answer.error, "broken disk");
        EXPECT_FALSE(fixture.presence.find(list[1].hash, 0));
        fixture.store.script({});
        EXPECT_EQ(fixture.ask(list).chunks, 3U);
    }
}

TEST(LookupScan, AnswersAreProvenPieceByPiece) {
    const auto list = hashes(4);
    Fixture fixture;
    fixture.add(list);
    fixture.store.hold(testing::any_op);
    const auto id = fixture.lookups.start(list);
    const auto of = [&](std::size_t chunk) {
        const auto key = object_key(name_space, list[chunk], 0, fixture.shards[0]);
        return [key](const Op& op) { return op.key == key; };
    };
    EXPECT_FALSE(fixture.lookups.poll(id).done);
    EXPECT_FALSE(fixture.lookups.wait_for(id, microseconds(100)).done);
    fixture.store.release(of(1));
    EXPECT_EQ(fixture.lookups.poll(id).chunks, 0U);
    fixture.store.release(of(0));
    EXPECT_EQ(fixture.lookups.poll(id).chunks, 2U);
    EXPECT_FALSE(fixture.lookups.poll(id).done);
    fixture.store.release();
    const auto answer = fixture.lookups.poll(id);
    EXPECT_TRUE(answer.done);
    EXPECT_EQ(answer.chunks, 4U);
}

TEST(LookupScan, WaitForSleepsUntilTheAnswer) {
    const auto list = hashes(100);
    Fixture fixture;
    fixture.add(list);
    fixture.store.hold(testing::any_op);
    const auto id = fixture.lookups.start(list);
    std::thread answering([&] {
        EXPECT_TRUE(fixture.store.wait_held(64));
        fixture.store.release();
        EXPECT_TRUE(fixture.store.wait_held(36)) << "wait_for goes on to the next round";
        fixture.store.release();
    });
    EXPECT_EQ(fixture.lookups.wait_for(id, testing::patience).chunks, 100U);
    answering.join();
}

TEST(LookupLife, LateAnswersAfterCancelAreIgnored) {
    const auto list = hashes(4), other = hashes(4, "g");
    Fixture fixture;
    fixture.add(list);
    fixture.store.hold(testing::any_op);
    const auto cancelled = fixture.lookups.start(list);
    const auto kept = fixture.lookups.start(other);
    fixture.lookups.cancel(cancelled);
    fixture.store.release();
    EXPECT_EQ(fixture.lookups.poll(kept).chunks, 0U);
    const auto answer = fixture.lookups.poll(cancelled);
    EXPECT_TRUE(answer.done);
    EXPECT_EQ(answer.chunks, 0U);
    EXPECT_FALSE(fixture.presence.find(list[0].hash, 0)) << "nobody owns that answer any more";
}

TEST(LookupLife, LateAnswersOfAnotherNamespaceAreIgnored) {
    const auto list = hashes(4);
    Fixture fixture;
    fixture.add(list);
    fixture.store.hold(testing::any_op);
    const auto old = fixture.lookups.start(list);
    fixture.configure(std::string(64, 'b'));
    fixture.store.release();
    fixture.store.hold({});
    EXPECT_TRUE(fixture.lookups.poll(old).done);
    EXPECT_EQ(fixture.lookups.poll(old).chunks, 0U);
    EXPECT_FALSE(fixture.presence.find(list[0].hash, 0));
    EXPECT_EQ(fixture.ask(list).chunks, 0U);
}

TEST(LookupLife, UnknownNumbersAreDone) {
    Fixture fixture;
    EXPECT_TRUE(fixture.lookups.poll(77).done);
    EXPECT_TRUE(fixture.lookups.wait_for(77, testing::patience).done);
}

// A store whose stat is slow is never asked more than twice, nor for more than 32 chunks at a time.
TEST(LookupSearch, FindsTheBoundaryInTwoRoundsOf32) {
    for (const std::size_t count : {1U, 31U, 32U, 33U, 64U, 100U, 1000U, 1024U})
        for (std::size_t there = 0; there <= count; there += count > 100 ? 13 : 1) {
            const auto list = hashes(count);
            Fixture fixture(false);
            fixture.add(std::span(list).first(there));
            ASSERT_EQ(fixture.ask(list).chunks, there) << count;
            const auto batches = fixture.store.batches();
            ASSERT_LE(batches.size(), 2U);
            for (const std::size_t batch : batches) ASSERT_LE(batch, 32U);
        }
}

TEST(LookupSearch, BeyondWhatTwoRoundsResolveItIsNeverTooLong) {
    const auto list = hashes(4000);
    for (std::size_t there = 0; there <= 4000; there += 371) {
        Fixture fixture(false);
        fixture.add(std::span(list).first(there));
        const std::size_t found = fixture.ask(list).chunks;
        EXPECT_LE(found, there);
        EXPECT_GE(found + 4, there) << "32 * 32 intervals of four chunks";
        EXPECT_LE(fixture.store.batches().size(), 2U);
    }
}

TEST(LookupSearch, AnsweredLateIsAnsweredRight) {
    const auto list = hashes(1000);
    Fixture fixture(false);
    fixture.add(std::span(list).first(500));
    fixture.store.hold(testing::any_op);
    const auto id = fixture.lookups.start(list);
    EXPECT_EQ(fixture.lookups.poll(id).chunks, 0U);
    EXPECT_EQ(fixture.store.release(), 32U);
    const auto between = fixture.lookups.poll(id);
    EXPECT_FALSE(between.done);
    EXPECT_LE(between.chunks, 500U);
    EXPECT_GE(between.chunks + 32, 500U) << "the first round's answers count already";
    EXPECT_LE(fixture.store.release(), 32U);
    EXPECT_TRUE(fixture.lookups.poll(id).done);
    EXPECT_EQ(fixture.lookups.poll(id).chunks, 500U);
}

TEST(LookupSearch, AKnownGapBoundsTheSearch) {
    const auto list = hashes(1000);
    Fixture fixture(false);
    fixture.add(list);
    fixture.presence.note(list[40].hash, 0, Belief::failed);
    EXPECT_EQ(fixture.ask(list).chunks, 40U);
}

TEST(LookupSearch, AnErrorIsReportedAndEndsThePrefix) {
    const auto list = hashes(1000);
    Fixture fixture(false);
    fixture.add(list);
    fixture.store.script([](const Op&) { return failed_outcome(ErrorCode::unavailable, "gone", Status::busy); });
    const auto answer = fixture.ask(list);
    EXPECT_TRUE(answer.done);
    EXPECT_EQ(answer.chunks, 0U);
    EXPECT_EQ(answer.error, "gone");
    EXPECT_EQ(fixture.presence.size(), 0U);
}

// Full attention (group 1), a window of 20 tokens (group 0: 5 blocks, so the last three chunks of two blocks) and a
// state (group 2: the last chunk).
struct SeveralGroups {
    explicit SeveralGroups(bool cheap_stat = true) : store(cheap_stat) {
        const std::vector<Lookups::Group> groups{{{GroupKind::window, 4, 8, 20}, {"l0-1.h0-0"}},
                                                 {{GroupKind::full, 4, 8, 0}, {"l0-0.h0-0", "l0-0.h1-1"}},
                                                 {{GroupKind::state, 8, 8, 0}, {"l0-2.h0-0"}}};
        lookups.configure(name_space, groups);
    }
    static constexpr std::uint32_t window = 0, full = 1, state = 2;
    void add(const ChunkId& chunk, std::uint32_t group) {
        for (const char* shard : group == full     ? std::vector{"l0-0.h0-0", "l0-0.h1-1"}
                                 : group == window ? std::vector{"l0-1.h0-0"}
                                                   : std::vector{"l0-2.h0-0"})
            store.set_value(object_key(name_space, chunk, group, shard), "x");
    }
    Lookups::Answer ask(std::span<const ChunkId> list) {
        return lookups.wait_for(lookups.start(list), testing::patience);
    }
    ScriptedStore store;
    FakeClock clock;
    Presence presence{clock};
    Lookups lookups{store, presence};
};

// The last boundary that all groups serve, by the definition.
std::size_t expected_boundary(const std::vector<std::array<bool, 3>>& there) {
    std::size_t best = 0;
    for (std::size_t boundary = 1; boundary <= there.size() && there[boundary - 1][SeveralGroups::full]; ++boundary) {
        bool served = there[boundary - 1][SeveralGroups::state];
        for (std::size_t i = boundary - std::min<std::size_t>(boundary, 3); i < boundary; ++i)
            served = served && there[i][SeveralGroups::window];
        if (served) best = boundary;
    }
    return best;
}

TEST(LookupSeveralGroups, TheLongestBoundaryThatEveryGroupServes) {
    EXPECT_TRUE(rc::check("boundary == definition, in at most two rounds behind full attention", [] {
        const auto count = *rc::gen::inRange<std::size_t>(0, 80);
        const auto list = hashes(count);
        SeveralGroups fixture;
        std::vector<std::array<bool, 3>> there(count);
        const int percent = *rc::gen::element(50, 90, 100);
        for (std::size_t i = 0; i < count; ++i)
            for (std::uint32_t group = 0; group < 3; ++group)
                if ((there[i][group] = *rc::gen::inRange(0, 100) < (group == SeveralGroups::full ? 99 : percent)))
                    fixture.add(list[i], group);
        const auto answer = fixture.ask(list);
        RC_ASSERT(answer.done);
        const std::size_t expected = expected_boundary(there);
        // Only where none of the last 32 chunks serves is an earlier boundary looked for; then it is the longest one.
        RC_ASSERT(answer.chunks == expected);
        const auto gap = std::find_if(there.begin(), there.end(), [](const auto& chunk) { return !chunk[1]; });
        RC_ASSERT(answer.prefix == static_cast<std::size_t>(gap - there.begin()));
    }));
}

TEST(LookupSeveralGroups, AMissAsksForFullAttentionOnly) {
    SeveralGroups fixture;
    EXPECT_EQ(fixture.ask(hashes(10)).chunks, 0U);
    EXPECT_EQ(fixture.store.batches(), (std::vector<std::size_t>{20}));
}

TEST(LookupSeveralGroups, ABeliefIsOfOnePartOnly) {
    SeveralGroups fixture;
    const auto list = hashes(4);
    for (const ChunkId& chunk : list)
        for (std::uint32_t group = 0; group < 3; ++group) fixture.add(chunk, group);
    EXPECT_EQ(fixture.lookups.part_of(SeveralGroups::full), 0U);
    EXPECT_EQ(fixture.lookups.parts(), 3U);
    fixture.presence.note(list[3].hash, fixture.lookups.part_of(SeveralGroups::state), Belief::failed);
    const auto answer = fixture.ask(list);
    EXPECT_EQ(answer.chunks, 3U);
    EXPECT_EQ(answer.prefix, 4U);
}

TEST(LookupSeveralGroups, AModelWithoutFullAttentionIsServedByItsWindowAlone) {
    ScriptedStore store(true);
    FakeClock clock;
    Presence presence{clock};
    Lookups lookups{store, presence};
    const Lookups::Group group{{GroupKind::window, 4, 8, 10}, {"l0-1.h0-0"}};
    lookups.configure(name_space, {&group, 1});
    const auto list = hashes(40);
    for (const std::size_t i : {20, 21, 22, 30}) store.set_value(object_key(name_space, list[i], 0, "l0-1.h0-0"), "x");
    EXPECT_EQ(lookups.wait_for(lookups.start(list), testing::patience).chunks, 23U) << "two chunks are needed";
}

}  // namespace
}  // namespace kvern
