// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "engine/scheduler_fixture.h"

namespace kvern {
namespace {

using testing::failed_outcome;
using testing::Hashes;
using testing::of_kind;
using testing::SchedulerFixture;
using testing::test_identity;
using testing::test_options;

Options with_mode(Mode mode) {
    Options options = test_options();
    options.mode = mode;
    return options;
}

std::string configure_error(SchedulerFixture& f, const std::vector<Geometry>& ranks) {
    const auto configured = f.half->configure(ranks);
    return configured ? "configured" : configured.error().message;
}

TEST(SchedulerStart, AStoreThatCantBeOpenedNamesTheOption) {
    Options options;
    options.store = "fil:///mnt";
    const auto half = SchedulerHalf::create(options);
    ASSERT_FALSE(half);
    EXPECT_TRUE(half.error().message.starts_with("option store: ")) << half.error().message;
    options.store = "mem:";
    EXPECT_TRUE(SchedulerHalf::create(options));
}

TEST(SchedulerStart, TheNonceIsWrittenAndTakenAway) {
    SchedulerFixture f(test_options(), true, false);
    ASSERT_TRUE(f.half->announce("engine"));
    EXPECT_EQ(f.nonce().size(), 32U);
    EXPECT_EQ(configure_error(f, f.geometries()), "configured");
    EXPECT_FALSE(f.store->values().contains(nonce_key("engine")));
    SchedulerFixture g(test_options(), true, false);
    ASSERT_TRUE(g.half->announce("engine"));
    SchedulerFixture h(test_options(), true, false);
    ASSERT_TRUE(h.half->announce("engine"));
    EXPECT_NE(g.nonce(), h.nonce());
}

TEST(SchedulerStart, AStoreThatCantBeWrittenSaysWhatToDo) {
    SchedulerFixture f(test_options(), true, false);
    f.store->script([](const Op&) { return failed_outcome(ErrorCode::permission, "Read-only file system"); });
    const auto announced = f.half->announce("engine");
    ASSERT_FALSE(announced);
    EXPECT_EQ(announced.error().message,
              "option store: 'scripted:' can't be written (Read-only file system); give this user the right to write "
              "there, or set mode to read_only");
}

TEST(SchedulerStart, ReadOnlyWritesNothing) {
    SchedulerFixture f(with_mode(Mode::read_only));
    EXPECT_TRUE(f.half->is_open());
    EXPECT_EQ(f.store->count(OpKind::put), 0U);
    EXPECT_EQ(f.store->count(OpKind::remove), 0U);
}

TEST(SchedulerStart, ARankThatDoesNotSeeTheNonceIsNamed) {
    SchedulerFixture f(test_options(), true, false);
    ASSERT_TRUE(f.half->announce("engine"));
    auto ranks = f.geometries();
    ranks[1].nonce = "";
    EXPECT_EQ(
        configure_error(f, ranks),
        "option store: rank tp 1 does not see what the scheduler wrote to 'scripted:'; it must be the same shared "
        "directory on every host");
    EXPECT_FALSE(f.store->values().contains(nonce_key("engine")));
    EXPECT_FALSE(f.half->open("model", "label", "seed", 4));
    EXPECT_FALSE(f.half->is_open());
}

TEST(SchedulerStart, RanksThatDifferAreNamed) {
    for (int field = 0; field < 3; ++field) {
        SchedulerFixture f(test_options(), true, false);
        ASSERT_TRUE(f.half->announce("engine"));
        auto ranks = f.geometries();
        Identity other = test_identity();
        other.groups[0].backend = "other";
        if (field == 0) ranks[1].identity = other.to_json();
        if (field == 1) ranks[1].groups[0].plan.block_tokens = 8;
        if (field == 2) ranks[1].groups[0].plan.chunk_tokens = 16;
        EXPECT_EQ(configure_error(f, ranks),
                  "ranks tp 0 and tp 1 pack KV differently (engine version, backend, CPU or layout); their hosts must "
                  "be alike");
    }
}

TEST(SchedulerStart, NoWorkersOrABrokenIdentityIsAnError) {
    SchedulerFixture f(test_options(), true, false);
    ASSERT_TRUE(f.half->announce("engine"));
    auto ranks = f.geometries();
    EXPECT_EQ(configure_error(f, {}), "no worker said what it holds; the engine's handshake did not reach Kvern");
    for (Geometry& rank : ranks) rank.identity = "{}";
    EXPECT_EQ(configure_error(f, ranks), "identity: key 'format' is missing");
}

TEST(SchedulerStart, TheNamespaceIsTheIdentityWithModelSeedAndTenant) {
    Options options = test_options();
    options.tenant = "t";
    SchedulerFixture f(options);
    Identity identity = test_identity();
    identity.model = "model";
    identity.hash_seed = "seed";
    identity.tenant = "t";
    EXPECT_EQ(f.half->namespace_hex(), to_hex(namespace_of(identity.to_json())));
    EXPECT_EQ(f.store->values()[identity_key(f.half->namespace_hex())], identity.to_json());
    EXPECT_EQ(f.store->values()[label_key(f.half->namespace_hex())], "label\n");
}

TEST(SchedulerStart, TheNamespaceIsPublishedAndMarkedAgainWhileTheEngineRuns) {
    SchedulerFixture f;
    f.store->erase_value(label_key(f.half->namespace_hex()));  // a collector took it
    const auto marks = [&] {
        std::size_t count = 0;
        for (const Op& op : f.store->log()) count += op.kind == OpKind::get && op.mark_used && op.length == 0;
        return count;
    };
    EXPECT_EQ(marks(), 2U);
    f.clock.advance(limits::namespace_mark_interval);
    f.step();
    EXPECT_EQ(marks(), 2U);
    f.clock.advance(std::chrono::milliseconds(1));
    f.step();
    EXPECT_EQ(marks(), 4U);
    EXPECT_TRUE(f.store->values().contains(label_key(f.half->namespace_hex())));
    f.step();
    EXPECT_EQ(marks(), 4U);
}

TEST(SchedulerStart, RanksThatHoldAlikeShareOneObject) {
    SchedulerFixture f(test_options(), true, false);
    ASSERT_TRUE(f.half->announce("engine"));
    auto ranks = f.geometries();
    ranks[1].groups[0].shard = ranks[0].groups[0].shard;
    ASSERT_EQ(configure_error(f, ranks), "configured");
    EXPECT_TRUE(f.half->open("model", "label", "seed", 4));
    f.add("a", Hashes("p", 4));
    EXPECT_EQ(f.store->count(OpKind::stat), 2U) << "two chunks of one shard";
}

// I6: before there is a namespace everything is a miss, and even a broken contract is an answer.
TEST(SchedulerStart, BeforeItIsOpenEverythingIsAMiss) {
    SchedulerFixture f(test_options(), true, false);
    const Hashes prompt("p", 4);
    f.add("a", prompt);
    const Match match = f.match("a", prompt);
    EXPECT_FALSE(match.pending);
    EXPECT_EQ(match.tokens, 0U);
    f.run("a", prompt, true, testing::blocks(0, 4), 0, 16);
    EXPECT_EQ(f.half->build_step(), "");
    f.half->reset();
    f.half->preempted("a");
    f.half->finish("a");
    f.half->loaded("a");
    EXPECT_EQ(f.half->explain("a"), "");
    EXPECT_TRUE(f.half->allocated("b", {testing::blocks(0, 4)}, 16))
        << "must be reported, so it is handed on as refused";
    ASSERT_EQ(f.step().loads.size(), 1U);
}

TEST(SchedulerStart, AnIdentityThatCantBeWrittenHoldsNothingUp) {
    SchedulerFixture f(test_options(), true, false);
    ASSERT_TRUE(f.half->announce("engine"));
    ASSERT_EQ(configure_error(f, f.geometries()), "configured");
    f.store->hold(of_kind(OpKind::put));
    EXPECT_TRUE(f.half->open("model", "label", "seed", 4));
    EXPECT_TRUE(f.half->is_open());
    EXPECT_EQ(f.half->build_step(), "");
    f.store->release(testing::any_op, failed_outcome(ErrorCode::io, "disk"));
    EXPECT_EQ(f.half->build_step(), "");
}

}  // namespace
}  // namespace kvern
