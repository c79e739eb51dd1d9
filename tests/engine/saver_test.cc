// SPDX-License-Identifier: Apache-2.0
#include "engine/saver.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "engine/kv_memory.h"

namespace kvern {
namespace {

using testing::any_op;
using testing::failed_outcome;
using testing::hash_of;
using testing::KvMemory;
using testing::ScriptedStore;

struct Fixture {
    // Staging for `objects` objects; stores may hold half of them.
    explicit Fixture(std::size_t objects = 16) {
        RegionOptions options;
        options.size_bytes = objects * kv.group().object_layout().object_bytes;
        staging = Region::create(options).value();
        saver = std::make_unique<Saver>(store, *staging, kv.worker(), counters, Saver::Settings{}, clock);
        saver->set_namespace(name_space);
    }
    std::string key(std::size_t number) const {
        return object_key(to_hex(name_space), {hash_of(number), 0}, 0, kv.group().shard.text());
    }
    StoreJob job(std::size_t number, std::uint64_t incarnation = 1) const {
        const auto first = static_cast<std::int32_t>(number * 2 % 32);
        return {incarnation, {0, {hash_of(number), 0}, {first, first + 1}}, false};
    }
    void offer(const std::vector<std::size_t>& numbers, std::uint64_t incarnation = 1) {
        std::vector<StoreJob> jobs;
        for (const std::size_t number : numbers) jobs.push_back(job(number, incarnation));
        saver->offer(std::move(jobs));
    }
    void end(std::uint64_t incarnation) { saver->end({&incarnation, 1}); }
    std::vector<std::string> puts() {
        std::vector<std::string> keys;
        for (const Op& op : store.log())
            if (op.kind == OpKind::put) keys.push_back(op.key);
        return keys;
    }
    std::vector<std::string> keys(const std::vector<std::size_t>& numbers) const {
        std::vector<std::string> list;
        for (const std::size_t number : numbers) list.push_back(key(number));
        return list;
    }
    std::uint64_t dropped(Drop reason) const { return counters.dropped_chunks[static_cast<std::size_t>(reason)]; }

    KvMemory kv;
    ScriptedStore store;
    FakeClock clock;
    WorkerCounters counters;
    Digest name_space = namespace_of("{}");
    std::shared_ptr<Region> staging;
    std::unique_ptr<Saver> saver;
};

TEST(Saver, StoresTheObjectOfTheBlocksAsTheyWereAtSave) {
    Fixture f;
    const std::string object = f.kv.object(hash_of(3), {6, 7}, f.name_space);
    f.store.hold(any_op);
    f.offer({3});
    EXPECT_EQ(f.store.count(OpKind::put), 0U) << "nothing is touched before save()";
    f.saver->save();
    f.kv.fill(6, 999);  // I8: the engine may overwrite the block at once
    EXPECT_EQ(f.saver->settle(), 1U);
    f.store.release();
    EXPECT_EQ(f.saver->settle(), 0U);
    EXPECT_EQ(f.store.values()[f.key(3)], object);
    EXPECT_EQ(f.counters.stored_chunks, 1U);
    EXPECT_EQ(f.counters.stored_bytes, object.size());
    EXPECT_EQ(f.staging->stats().leased_bytes, 0U);
    EXPECT_EQ(f.store.log()[0].condition, Condition::absent);
}

TEST(Saver, AKeyThatExistsIsCountedAndLeftAlone) {
    Fixture f;
    f.store.set_value(f.key(0), "somebody else's");
    f.offer({0, 1});
    f.saver->save();
    f.saver->settle();
    EXPECT_EQ(f.counters.existing_chunks, 1U);
    EXPECT_EQ(f.counters.stored_chunks, 1U);
    EXPECT_EQ(f.store.values()[f.key(0)], "somebody else's");
}

// Who removed it does not matter: a scheduler that offers a chunk has found it absent.
TEST(Saver, AChunkThatSomebodyRemovedIsStoredAgain) {
    Fixture f;
    f.offer({0});
    f.saver->save();
    f.saver->settle();
    f.store.erase_value(f.key(0));
    f.offer({0});
    f.saver->save();
    f.saver->settle();
    EXPECT_EQ(f.puts(), f.keys({0, 0}));
    EXPECT_EQ(f.counters.stored_chunks, 2U);
}

TEST(Saver, AChunkUnderWayIsNotPutTwice) {
    Fixture f;
    f.store.hold(any_op);
    f.offer({0}, 1);
    f.offer({0}, 2);
    f.saver->save();
    f.offer({0}, 3);
    f.saver->save();
    EXPECT_EQ(f.puts(), f.keys({0}));
}

TEST(Saver, StoresHoldAtMostHalfOfStaging) {
    Fixture f(8);
    f.store.hold(any_op);
    f.offer({0, 1, 2, 3, 4, 5});
    f.saver->save();
    EXPECT_EQ(f.puts().size(), 4U);
    EXPECT_EQ(f.staging->stats().leased_bytes, f.staging->size_bytes() / 2);
}

TEST(Saver, OwedChunksAreOfferedAgainInOrder) {
    Fixture f(4);
    f.store.hold(any_op);
    f.offer({0, 1, 2, 3, 4});
    f.saver->save();
    f.saver->save();
    EXPECT_EQ(f.puts(), f.keys({0, 1}));
    f.store.release();
    f.offer({5});
    f.saver->save();
    EXPECT_EQ(f.puts(), f.keys({0, 1, 2, 3}));
    f.store.release();
    f.saver->save();
    EXPECT_EQ(f.puts(), f.keys({0, 1, 2, 3, 4, 5}));
    EXPECT_EQ(f.dropped(Drop::staging), 0U);
}

TEST(Saver, NoStagingLeftByLoadsIsOwedToo) {
    Fixture f(2);
    auto lease = f.staging->try_lease(f.staging->size_bytes());
    f.offer({0});
    f.saver->save();
    EXPECT_EQ(f.puts().size(), 0U);
    lease->release();
    f.saver->save();
    EXPECT_EQ(f.puts(), f.keys({0}));
}

// I8: after the end of an incarnation its blocks are never read again.
TEST(Saver, OwedChunksAreDroppedWhenTheirIncarnationEnds) {
    Fixture f(2);
    f.store.hold(any_op);
    f.offer({0, 1, 2}, 1);
    f.offer({3}, 2);
    f.saver->save();
    f.end(1);
    f.store.release();
    f.saver->save();
    f.store.release();
    f.saver->settle();
    EXPECT_EQ(f.puts(), f.keys({0, 3}));
    EXPECT_EQ(f.dropped(Drop::staging), 2U);
}

TEST(Saver, AfterADropNoLaterChunkOfTheIncarnationIsStored) {
    Fixture f;
    f.store.script([&](const Op& op) -> std::optional<Outcome> {
        if (op.key == f.key(1)) return failed_outcome(ErrorCode::no_space, "full");
        return {};
    });
    f.offer({0, 1}, 1);
    f.saver->save();
    f.saver->settle();
    EXPECT_EQ(f.dropped(Drop::store_error), 1U);
    f.offer({2, 3}, 1);
    f.offer({4}, 2);
    f.saver->save();
    EXPECT_EQ(f.puts(), f.keys({0, 1, 4}));
    EXPECT_EQ(f.dropped(Drop::prefix), 2U);
    f.store.script({});
    f.end(1);
    f.offer({1}, 3);
    f.saver->save();
    EXPECT_EQ(f.puts(), f.keys({0, 1, 4, 1})) << "the request came back, or another one came with the same prompt";
}

TEST(Saver, ABusyStoreIsCountedAsSuch) {
    Fixture f;
    f.store.script([](const Op&) { return failed_outcome(ErrorCode::resource, "queue full", Status::busy); });
    f.offer({0});
    f.saver->save();
    f.saver->settle();
    EXPECT_EQ(f.dropped(Drop::store_busy), 1U);
    EXPECT_EQ(f.staging->stats().leased_bytes, 0U);
}

TEST(Saver, BlocksThatDoNotExistAreNotRead) {
    Fixture f;
    std::vector<StoreJob> jobs{f.job(0, 1), f.job(1, 2), f.job(2, 3)};
    jobs[0].object.blocks = {0, 32};
    jobs[1].object.blocks = {0, no_block};
    jobs[2].object.blocks = {0};
    f.saver->offer(jobs);
    f.saver->save();
    EXPECT_EQ(f.puts().size(), 0U);
    EXPECT_EQ(f.dropped(Drop::store_error), 3U);
}

// I11: a store that is down is left alone.
TEST(Saver, TheBreakerOpensAndProbes) {
    Fixture f;
    f.store.script([](const Op&) { return failed_outcome(ErrorCode::unavailable, "down"); });
    for (std::size_t i = 0; i < 3; ++i) {
        f.offer({i}, i + 1);
        f.saver->save();
        f.saver->settle();
    }
    EXPECT_EQ(f.dropped(Drop::store_error), 3U);
    f.offer({3}, 4);
    f.saver->save();
    EXPECT_EQ(f.puts().size(), 3U);
    EXPECT_EQ(f.dropped(Drop::breaker), 1U);
    f.clock.advance(limits::breaker_open);
    f.store.script({});
    f.offer({4}, 5);
    f.offer({5}, 6);
    f.saver->save();
    EXPECT_EQ(f.puts(), f.keys({0, 1, 2, 4})) << "one probe";
    f.saver->settle();
    f.offer({6}, 7);
    f.saver->save();
    EXPECT_EQ(f.puts().size(), 5U);
}

TEST(Saver, AProbeIsNotSpentWhereThereIsNoStaging) {
    Fixture f(2);
    f.store.script([](const Op&) { return failed_outcome(ErrorCode::unavailable, "down"); });
    for (std::size_t i = 0; i < 3; ++i) {
        f.offer({i}, i + 1);
        f.saver->save();
        f.saver->settle();
    }
    f.store.script({});
    f.clock.advance(limits::breaker_open);
    auto lease = f.staging->try_lease(f.staging->size_bytes());
    f.offer({3}, 4);
    f.saver->save();
    lease->release();
    f.saver->save();
    EXPECT_EQ(f.puts().size(), 4U);
}

TEST(Saver, AnswersOfAnOlderNamespaceSayNothingAboutTheNewOne) {
    Fixture f;
    f.store.hold(any_op);
    f.offer({0});
    f.saver->save();
    f.end(1);
    f.name_space = namespace_of("[]");
    f.saver->set_namespace(f.name_space);
    f.offer({0}, 2);
    f.saver->save();
    EXPECT_EQ(f.store.held(), 2U);
    f.store.release();
    f.store.hold({});
    EXPECT_EQ(f.saver->settle(), 0U);
    EXPECT_EQ(f.counters.stored_chunks, 2U);
    EXPECT_EQ(f.store.values()[f.key(0)], f.kv.object(hash_of(0), {0, 1}, f.name_space));
    f.store.hold(any_op);
    f.offer({1}, 2);
    f.saver->save();
    f.saver->set_namespace(namespace_of("7"));
    f.store.release();
    f.saver->settle();
    f.name_space = namespace_of("7");
    f.offer({1}, 3);
    f.saver->save();
    EXPECT_EQ(f.puts().back(), f.key(1)) << "the old answer did not make it known in the new namespace";
}

TEST(Saver, DrainWaitsForEveryAnswerOrItsTimeout) {
    Fixture f;
    f.store.hold(any_op);
    f.offer({0, 1});
    f.saver->save();
    EXPECT_EQ(f.saver->drain(std::chrono::milliseconds(1)), 2U);
    std::thread answering([&] { f.store.release(); });
    EXPECT_EQ(f.saver->drain(testing::patience), 0U);
    answering.join();
    EXPECT_EQ(f.counters.stored_chunks, 2U);
}

TEST(Saver, WhatIsFleetingIsGatheredInItsStepOrNotAtAll) {
    Fixture f(4);  // room for two puts
    f.store.hold(any_op);
    std::vector<StoreJob> jobs{f.job(0), f.job(1), f.job(2), f.job(3)};
    jobs[2].fleeting = true;
    f.saver->offer(jobs);
    f.saver->save();
    f.store.release();
    f.saver->save();
    EXPECT_EQ(f.puts(), f.keys({0, 1, 3})) << "3 was owed, 2 was not";
    EXPECT_EQ(f.dropped(Drop::staging), 1U);
}

TEST(Saver, APutThatFailsIsAHoleForAllWhoWantedIt) {
    Fixture f;
    f.store.hold(any_op);
    f.offer({0}, 1);
    f.offer({0}, 2);
    f.saver->save();
    f.store.script([](const Op&) { return failed_outcome(ErrorCode::io, "disk"); });
    f.store.release();
    f.saver->settle();
    f.store.script({});
    f.offer({1}, 1);
    f.offer({2}, 2);
    f.saver->save();
    EXPECT_EQ(f.puts(), f.keys({0}));
    EXPECT_EQ(f.dropped(Drop::prefix), 2U);
    EXPECT_EQ(f.dropped(Drop::store_error), 1U);
}

TEST(Saver, RanksThatHoldAlikeShareTheWork) {
    std::vector<std::string> all;
    for (std::uint32_t replica = 0; replica < 3; ++replica) {
        Fixture f;
        WorkerMemory memory = f.kv.worker();
        memory.groups[0].replica = replica;
        memory.groups[0].replicas = 3;
        f.saver = std::make_unique<Saver>(f.store, *f.staging, memory, f.counters, Saver::Settings{}, f.clock);
        f.saver->set_namespace(f.name_space);
        f.offer({0, 1, 2, 3, 4, 5});
        f.saver->save();
        const auto puts = f.puts();
        EXPECT_LT(puts.size(), 6U);
        all.insert(all.end(), puts.begin(), puts.end());
    }
    auto wanted = Fixture().keys({0, 1, 2, 3, 4, 5});
    std::sort(all.begin(), all.end());
    std::sort(wanted.begin(), wanted.end());
    EXPECT_EQ(all, wanted) << "each chunk by one rank";
}

// --- A store that is nearly full

struct SpaceFixture : Fixture {
    SpaceFixture() {
        Saver::Settings settings;
        settings.min_free_percent = 5;
        saver = std::make_unique<Saver>(store, *staging, kv.worker(), counters, settings, clock);
        saver->set_namespace(name_space);
        store.script([this](const Op& op) -> std::optional<Outcome> {
            if (op.kind != OpKind::space) return {};
            Outcome outcome;
            outcome.status = status;
            outcome.space.capacity_bytes = capacity_bytes;
            outcome.space.free_bytes = free_bytes;
            return outcome;
        });
    }
    void step(std::size_t number) {
        offer({number}, 100 + number);
        saver->save();
        saver->settle();
    }
    Status status = Status::ok;
    std::uint64_t capacity_bytes = 1000, free_bytes = 50;
};

TEST(SaverSpace, BelowTheLimitNothingIsStoredAndAboveItAgain) {
    SpaceFixture f;
    f.step(0);
    f.free_bytes = 49;
    f.clock.advance(limits::space_interval);
    f.step(1);
    EXPECT_EQ(f.puts(), f.keys({0}));
    EXPECT_EQ(f.dropped(Drop::full), 1U);
    f.free_bytes = 50;
    f.clock.advance(limits::space_interval);
    f.step(2);
    EXPECT_EQ(f.puts(), f.keys({0, 2}));
    EXPECT_EQ(f.staging->stats().leased_bytes, 0U);
}

TEST(SaverSpace, IsAskedForOnceAnIntervalAndOnlyByThoseWhoStore) {
    SpaceFixture f;
    for (int i = 0; i < 10; ++i) f.saver->save();
    EXPECT_EQ(f.store.count(OpKind::space), 0U);
    for (std::size_t i = 0; i < 10; ++i) f.step(i);
    EXPECT_EQ(f.store.count(OpKind::space), 1U);
}

TEST(SaverSpace, NobodyWaitsForTheAnswer) {
    SpaceFixture f;
    f.store.hold([](const Op& op) { return op.kind == OpKind::space; });
    f.step(0);
    f.clock.advance(std::chrono::minutes(1));
    f.step(1);
    EXPECT_EQ(f.puts(), f.keys({0, 1}));
    EXPECT_EQ(f.store.count(OpKind::space), 1U) << "a hung store is not asked again";
    f.free_bytes = 0;
    f.store.release();
    f.step(2);
    EXPECT_EQ(f.puts(), f.keys({0, 1}));
}

TEST(SaverSpace, AStoreThatDoesNotKnowIsNotFull) {
    SpaceFixture f;
    f.capacity_bytes = f.free_bytes = 0;
    f.step(0);
    f.status = Status::failed;
    f.clock.advance(limits::space_interval);
    f.step(1);
    EXPECT_EQ(f.puts(), f.keys({0, 1}));
}

// --- Memory of a device: the copies are somebody else's work

struct DeviceFixture : Fixture {
    explicit DeviceFixture(std::size_t copies_max = 8) {
        memory = kv.worker();
        memory.on_device = true;
        for (LayerMemory& layer : memory.groups[0].layers) layer.base = nullptr;
        Saver::Settings settings;
        settings.device_copies_max = copies_max;
        saver = std::make_unique<Saver>(store, *staging, memory, counters, settings, clock);
        saver->set_namespace(name_space);
    }
    // What the engine's runtime does with a copy.
    void make(const DeviceCopy& copy) {
        const ObjectLayout layout = kv.group().object_layout();
        std::vector<std::byte> object(layout.object_bytes);
        std::vector<std::uint32_t> crcs;
        gather(kv.group(), copy.blocks, object, crcs);
        for (std::uint32_t i = 0; i < layout.slice_count; ++i)  // the gaps are left as they were
            std::memcpy(copy.slices + i * layout.slice_stride, object.data() + layout.slice_offset(i),
                        layout.slice_bytes);
    }
    WorkerMemory memory;
};

TEST(SaverOnADevice, AnObjectIsPutWhenItsCopyHasEnded) {
    DeviceFixture f;
    const std::string object = f.kv.object(hash_of(3), {6, 7}, f.name_space);
    f.offer({3});
    f.saver->save();
    const auto copies = f.saver->take_copies();
    ASSERT_EQ(copies.size(), 1U);
    EXPECT_EQ(copies[0].blocks, (std::vector<std::int32_t>{6, 7}));
    EXPECT_TRUE(f.saver->take_copies().empty());
    std::memset(copies[0].slices, 0x5a, f.kv.group().object_layout().object_bytes - 4096);
    f.make(copies[0]);
    EXPECT_TRUE(f.puts().empty());
    f.saver->copied(std::vector<std::uint64_t>{copies[0].ticket, 999});
    EXPECT_EQ(f.saver->settle(), 0U);
    EXPECT_EQ(f.store.values()[f.key(3)], object);
}

TEST(SaverOnADevice, NoMoreCopiesThanTheDeviceHasRoomFor) {
    DeviceFixture f(2);
    f.offer({0, 1, 2});
    f.saver->save();
    const auto first = f.saver->take_copies();
    ASSERT_EQ(first.size(), 2U);
    f.saver->copied(std::vector<std::uint64_t>{first[0].ticket});
    f.saver->save();
    EXPECT_EQ(f.saver->take_copies().size(), 1U) << "the one that was owed";
}

}  // namespace
}  // namespace kvern
