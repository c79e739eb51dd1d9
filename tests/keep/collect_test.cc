// SPDX-License-Identifier: Apache-2.0
#include "keep/collect.h"

#include "keep/keep_fixture.h"

namespace kvern::testing {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

using CollectTest = KeepTest;

TEST_F(CollectTest, RemovesTheLongestUnusedUntilTheBytesFit) {
    for (const auto* name : {"a", "b", "c", "d"}) {
        put_chunk(name, "");
        clock_.advance(hours(1));
    }
    const auto report = collect_to(2);
    EXPECT_EQ(left(), "cd");
    EXPECT_EQ(report.found.bytes, 4 * page);
    EXPECT_EQ(report.removed.objects, 2U);
    EXPECT_EQ(report.removed.bytes, 2 * page);
    EXPECT_TRUE(report.limits_hold);
    EXPECT_EQ(collect_to(2).removed.objects, 0U);
}

TEST_F(CollectTest, CutsAPromptFromItsTail) {
    put_prompt("a b c d");
    collect_to(3);
    EXPECT_EQ(left(), "abc");
    collect_to(1);
    EXPECT_EQ(left(), "a");
}

TEST_F(CollectTest, AChunkCountsAsUsedWhenADescendantIs) {
    put_prompt("a b");
    clock_.advance(hours(2));
    put_chunk("x", "");
    clock_.advance(hours(2));
    put_chunk("c", "b");
    collect_to(3);
    EXPECT_EQ(left(), "abc");
}

TEST_F(CollectTest, AMarkedUseCounts) {
    put_chunk("a", "");
    put_chunk("b", "");
    clock_.advance(hours(2));
    use(key_of("a", ""));
    collect_to(1);
    EXPECT_EQ(left(), "a");
}

TEST_F(CollectTest, AChunkGoesWithAllItsGroupsAndShards) {
    for (std::uint32_t group = 0; group < 2; ++group) {
        for (std::uint32_t rank = 0; rank < 2; ++rank) {
            put_bytes(key_of("a", "", group, {0, 3, rank, rank}), std::string(page, 'x'));
        }
    }
    clock_.advance(hours(1));
    put_chunk("b", "");
    const auto report = collect_to(4);  // one page too much
    EXPECT_EQ(report.removed.objects, 4U);
    EXPECT_EQ(report.removed.chunks, 1U);
    EXPECT_EQ(left(), "b");
}

TEST_F(CollectTest, UnreachableChunksGoFirstAmongEquals) {
    put_chunk("a", "");
    put_chunk("o", "missing");
    put_chunk("p", "o");
    put_chunk("b", "");
    collect_to(2);
    EXPECT_EQ(left(), "ab");
}

TEST_F(CollectTest, RemovesByAgeButNotWithinTheGracePeriod) {
    put_chunk("a", "");
    clock_.advance(hours(30));
    put_chunk("b", "");
    clock_.advance(seconds(30));
    CollectPlan plan;
    plan.limits.age_max = hours(24);
    collected(plan);
    EXPECT_EQ(left(), "b");
    plan.limits.age_max = seconds(1);
    collected(plan);
    EXPECT_EQ(left(), "b");  // 30 s old
    clock_.advance(seconds(31));
    collected(plan);
    EXPECT_EQ(left(), "");
}

TEST_F(CollectTest, TheYoungGoForRoomOnlyWhenNothingElseIsLeft) {
    put_chunk("a", "");
    clock_.advance(hours(1));
    put_chunk("b", "");
    collect_to(1);
    EXPECT_EQ(left(), "b");
    const auto report = collect_to(0);
    EXPECT_EQ(left(), "");
    EXPECT_TRUE(report.limits_hold);
}

TEST_F(CollectTest, KeepsAPartOfTheStoreFree) {
    constexpr std::uint64_t size = capacity / 10;
    for (const auto* name : {"a", "b", "c", "d", "e", "f", "g", "h"}) {
        put_chunk(name, "", size);
        clock_.advance(hours(1));
    }
    CollectPlan plan;
    plan.limits.free_percent_min = 45;
    const auto report = collected(plan);
    EXPECT_EQ(left(), "defgh");
    EXPECT_TRUE(report.limits_hold);
    EXPECT_EQ(report.space.capacity_bytes, capacity);
}

TEST_F(CollectTest, SaysWhenLimitsCantHold) {
    put_chunk("a", "");
    put_bytes("foreign", std::string(capacity / 2, 'x'));
    CollectPlan plan;
    plan.limits.free_percent_min = 90;
    const auto report = collected(plan);
    EXPECT_EQ(left(), "");
    EXPECT_FALSE(report.limits_hold);
    EXPECT_TRUE(exists("foreign"));
    EXPECT_EQ(report.foreign.files, 1U);
    EXPECT_EQ(report.foreign.example, "foreign");
}

TEST_F(CollectTest, DryRunRemovesNothing) {
    put_prompt("a b c");
    CollectPlan plan;
    plan.dry_run = true;
    plan.limits.bytes_max = page;
    const auto report = collected(plan);
    EXPECT_EQ(report.removed.objects, 2U);
    EXPECT_EQ(left(), "abc");
}

TEST_F(CollectTest, OnlyNamespacesThatStartWithThePrefixCount) {
    put_chunk("a", "");
    space_ = std::string(64, 'c');
    put_chunk("b", "");
    put_chunk("c", "");
    CollectPlan plan;
    plan.limits.bytes_max = 0;
    plan.namespace_prefix = "cccc";
    EXPECT_EQ(collected(plan).removed.objects, 2U);
    EXPECT_EQ(left(), "a");
}

// What happens between the listing and the removal.
class Meanwhile : public KeepTest {
  protected:
    void after_listing(std::function<void()> action) {
        hooks_->before = [this, action = std::move(action)](const Op& op) {
            if (op.kind != OpKind::space) return;
            const auto once = action;
            hooks_->before = {};
            once();
        };
    }
};

TEST_F(Meanwhile, WhatWasUsedStaysWithItsAncestors) {
    put_prompt("a b c");
    put_prompt("x y z");
    clock_.advance(hours(2));
    after_listing([&] { use(key_of("y", "x")); });
    const auto report = collect_to(0);
    EXPECT_EQ(left(), "xy");
    EXPECT_EQ(report.kept_chunks, 2U);
    EXPECT_FALSE(report.limits_hold);
}

TEST_F(Meanwhile, WhatWasReplacedStays) {
    put_prompt("a b");
    after_listing([&] { put_chunk("b", "a"); });  // the same size at the same time: only the version is another
    collect_to(0);
    EXPECT_EQ(left(), "ab");
}

TEST_F(Meanwhile, WhatOthersRemovedCountsAsRoomMade) {
    for (const auto* name : {"a", "b", "c", "d"}) {
        put_chunk(name, "");
        clock_.advance(minutes(1));
    }
    after_listing([&] { remove(key_of("a", "")); });
    const auto report = collect_to(2);
    EXPECT_EQ(left(), "cd");
    EXPECT_EQ(report.gone.objects, 1U);
    EXPECT_EQ(report.removed.objects, 1U);
    EXPECT_TRUE(report.limits_hold);
}

// A second door to a store.
class SharedStore final : public Store {
  public:
    explicit SharedStore(Store& inner) : inner_(inner) {}
    void submit(std::span<Op> ops, CompletionQueue& queue) override { inner_.submit(ops, queue); }
    Capabilities capabilities() const override { return inner_.capabilities(); }
    std::string describe() const override { return inner_.describe(); }
    void attach(std::shared_ptr<Region>) override {}
    bool close(std::chrono::milliseconds) override { return true; }

  private:
    Store& inner_;
};

TEST_F(Meanwhile, TwoThatCollectRemoveWhatOneWould) {
    for (int i = 0; i < 3000; ++i) {
        put_chunk(std::to_string(i), i % 10 == 0 ? "" : std::to_string(i - 1));
        clock_.advance(seconds(1));
    }
    // Another one runs whenever this one is about to remove a batch, each from a listing of its own.
    CollectPlan plan;
    plan.clock = &clock_;
    plan.limits.bytes_max = 1000 * page;
    int others = 0;
    std::uint64_t removed_by_others = 0;
    hooks_->before = [&](const Op& op) {
        if (op.kind != OpKind::space && (op.kind != OpKind::remove || others > 2)) return;
        ++others;
        const auto again = std::exchange(hooks_->before, {});
        auto half = plan;
        half.limits.bytes_max = (1800 - 200 * static_cast<std::uint64_t>(others)) * page;
        Client sharing(std::make_unique<SharedStore>(hooks_->inner()));
        const auto report = collect(sharing, half);
        ASSERT_TRUE(report);
        removed_by_others += report->removed.objects;
        hooks_->before = again;
    };
    const auto report = collected(plan);
    EXPECT_GE(others, 3);
    EXPECT_GT(removed_by_others, 0U);
    EXPECT_EQ(report.removed.objects + report.gone.objects, 2000U);
    EXPECT_EQ(report.gone.objects, removed_by_others);
    hooks_->before = {};
    EXPECT_EQ(collect_to(1000).found.objects, 1000U);
}

TEST_F(Meanwhile, ARemovalThatFailsIsSaidAndKeepsTheAncestors) {
    put_prompt("a b c");
    hooks_->refuse = [&](const Op& op) { return op.kind == OpKind::stat && op.key == key_of("b", "a"); };
    const auto report = collect_to(0);
    EXPECT_EQ(left(), "ab");
    EXPECT_EQ(report.failed_objects, 1U);
    EXPECT_NE(report.first_error.find("refused by the test"), std::string::npos);
    EXPECT_FALSE(report.limits_hold);
    hooks_->refuse = {};
    collect_to(0);
    EXPECT_EQ(left(), "");
}

TEST_F(Meanwhile, AnInterruptedRoundLeavesAValidStoreAndTheNextGoesOn) {
    for (int i = 0; i < 2000; ++i) put_chunk(std::to_string(i), i % 100 == 0 ? "" : std::to_string(i - 1));
    CollectPlan plan;
    plan.limits.bytes_max = 100 * page;
    plan.progress = [&](const CollectProgress& now) { stop_ = now.removed_objects > 0; };
    const auto first = collected(plan);
    EXPECT_TRUE(first.interrupted);
    EXPECT_FALSE(first.limits_hold);
    EXPECT_GT(first.removed.objects, 0U);
    EXPECT_LT(first.removed.objects, 1900U);
    stop_ = false;
    plan.progress = {};
    const auto second = collected(plan);
    EXPECT_EQ(first.removed.objects + second.removed.objects, 1900U);
    EXPECT_TRUE(second.limits_hold);
}

class Namespaces : public KeepTest {
  protected:
    void name() {
        put_bytes(identity_key(space_), "{}");
        put_bytes(label_key(space_), "m");
    }
    bool named() { return exists(identity_key(space_)) && exists(label_key(space_)); }
};

TEST_F(Namespaces, AnEmptyOneGoesOnceItIsUnusedForLong) {
    name();
    put_chunk("a", "");
    clock_.advance(limits::namespace_grace * 2);
    EXPECT_EQ(collect_to(0).removed.objects, 1U);  // empty from here on
    clock_.advance(limits::namespace_grace / 2);
    EXPECT_EQ(collect_to(0).removed_namespaces, 0U);
    EXPECT_TRUE(named());
    clock_.advance(limits::namespace_grace);
    EXPECT_EQ(collect_to(0).removed_namespaces, 1U);
    EXPECT_FALSE(exists(identity_key(space_)));
    EXPECT_FALSE(exists(label_key(space_)));
}

TEST_F(Namespaces, AFreshOneStaysThoughItIsEmpty) {
    name();
    clock_.advance(hours(1));
    EXPECT_EQ(collect_to(0).removed_namespaces, 0U);
    EXPECT_TRUE(named());
}

TEST_F(Namespaces, OneThatGotAnObjectMeanwhileStays) {
    name();
    clock_.advance(limits::namespace_grace * 2);
    hooks_->before = [&](const Op& op) {
        if (op.kind == OpKind::space) put_chunk("a", "");
    };
    EXPECT_EQ(collect_to(0).removed_namespaces, 0U);
    EXPECT_TRUE(named());
    EXPECT_EQ(left(), "a");
}

TEST_F(Namespaces, OldNotesOfStartsGo) {
    put_bytes("kvern-start/old", "x");
    clock_.advance(limits::start_note_age_max + seconds(1));
    put_bytes("kvern-start/new", "x");
    EXPECT_EQ(collect_to(100).removed_start_notes, 1U);
    EXPECT_FALSE(exists("kvern-start/old"));
    EXPECT_TRUE(exists("kvern-start/new"));
}

}  // namespace
}  // namespace kvern::testing
