// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>

#include "engine/load_fixture.h"

namespace kvern {
namespace {

using std::chrono::milliseconds;
using testing::any_op;
using testing::eventually;
using testing::failed_outcome;
using testing::hash_of;
using testing::LoadFixture;
using testing::of_kind;
using testing::range;
using testing::ScriptedStore;
using testing::short_stall;

struct Case {
    const char* name;
    LoadFailure reason;
    bool troubled, removed;
    std::function<void(LoadFixture&, std::size_t chunk)> damage;
};

std::function<void(LoadFixture&, std::size_t)> answering(Outcome outcome) {
    return [outcome](LoadFixture& f, std::size_t chunk) {
        f.store.script([&f, chunk, outcome](const Op& op) -> std::optional<Outcome> {
            if (op.kind == OpKind::get && op.key == f.key(chunk)) return outcome;
            return {};
        });
    };
}

const Case cases[] = {
    {"absent", LoadFailure::absent, false, false, [](auto& f, auto chunk) { f.store.erase_value(f.key(chunk)); }},
    {"header", LoadFailure::mismatch, false, true, [](auto& f, auto chunk) { f.damage(chunk, 20); }},
    {"first slice", LoadFailure::mismatch, false, true, [](auto& f, auto chunk) { f.damage(chunk, 4096); }},
    {"last gap", LoadFailure::mismatch, false, true,
     [](auto& f, auto chunk) { f.damage(chunk, f.object_bytes() - 1); }},
    {"short", LoadFailure::mismatch, false, true,
     [](auto& f, auto chunk) { f.store.set_value(f.key(chunk), f.object(chunk).substr(0, f.object_bytes() - 1)); }},
    {"long", LoadFailure::mismatch, false, true,
     [](auto& f, auto chunk) { f.store.set_value(f.key(chunk), f.object(chunk) + "x"); }},
    {"empty", LoadFailure::mismatch, false, true, [](auto& f, auto chunk) { f.store.set_value(f.key(chunk), ""); }},
    {"swapped", LoadFailure::mismatch, false, true,
     [](auto& f, auto chunk) { f.store.set_value(f.key(chunk), f.object(chunk + 1)); }},
    {"busy", LoadFailure::store_busy, true, false,
     answering(failed_outcome(ErrorCode::resource, "throttled", Status::busy))},
    {"known to be damaged", LoadFailure::mismatch, false, true,
     [](auto& f, auto chunk) {
         auto outcome = failed_outcome(ErrorCode::corrupt, "its bytes are not what was stored");
         outcome.stat.etag = "1";  // of the version that put() made
         answering(outcome)(f, chunk);
     }},
    {"error", LoadFailure::store_error, true, false, answering(failed_outcome(ErrorCode::io, "disk"))},
};

// I1, I3, I10: chunks before the first failure are valid, it and all after it are reported bad, with the report.
TEST(LoaderFailures, LeaveAValidPrefixAndAreReportedOnce) {
    for (const Case& what : cases)
        for (std::size_t chunk = 0; chunk < 5; ++chunk) {
            SCOPED_TRACE(::testing::Message() << what.name << " at chunk " << chunk);
            LoadFixture f(chunk % 2 ? 2 : 16);
            f.put(5);
            f.scrub();
            what.damage(f, chunk);
            f.load("a", 0, 5, 0);
            const auto report = f.reported(1);
            EXPECT_EQ(report.requests, std::vector<std::string>{"a"});
            EXPECT_EQ(report.bad_blocks, range(static_cast<std::int32_t>(2 * chunk), 10));
            EXPECT_EQ(report.troubled.size(), what.troubled ? 1U : 0U);
            EXPECT_TRUE(f.holds(0, chunk, 0));
            EXPECT_EQ(f.failures(what.reason), 1U);
            EXPECT_EQ(f.store.count(OpKind::remove), what.removed ? 1U : 0U);
            EXPECT_EQ(f.store.values().contains(f.key(chunk)), !what.removed && what.reason != LoadFailure::absent);
            ASSERT_TRUE(eventually([&] { return f.staging->stats().leased_bytes == 0; })) << "I8";
            EXPECT_TRUE(f.loader->take_finished().requests.empty());
        }
}

TEST(LoaderFailures, WhatLiesBeforeAFailureIsFinishedFirst) {
    LoadFixture f;
    f.put(4);
    f.scrub();
    f.store.erase_value(f.key(2));
    f.store.hold(any_op);
    f.load("a", 0, 4, 0);
    ASSERT_TRUE(f.store.wait_held(4));
    f.store.release(f.of(OpKind::get, 2));
    f.store.release(f.of(OpKind::get, 3));
    f.store.release(f.of(OpKind::get, 1));
    ASSERT_TRUE(eventually([&] { return f.counters.verified_slices == 2; }));
    EXPECT_TRUE(f.loader->take_finished().requests.empty());
    f.store.release(f.of(OpKind::get, 0));
    EXPECT_EQ(f.reported(1).bad_blocks, range(4, 8));
    EXPECT_EQ(f.failures(LoadFailure::absent), 1U);
    EXPECT_TRUE(f.holds(0, 2, 0));
    EXPECT_TRUE(f.untouched(4, 8));
}

TEST(LoaderFailures, AnEarlierChunkMayFailLater) {
    LoadFixture f;
    f.put(4);
    f.store.erase_value(f.key(3));
    f.store.erase_value(f.key(1));
    f.store.hold(any_op);
    f.load("a", 0, 4, 0);
    ASSERT_TRUE(f.store.wait_held(4));
    f.store.release(f.of(OpKind::get, 3));
    f.store.release(f.of(OpKind::get, 0));
    f.store.release(f.of(OpKind::get, 1));
    f.store.release(f.of(OpKind::get, 2));
    const auto report = f.reported(1);
    EXPECT_EQ(report.bad_blocks, range(2, 8));
}

// The recomputation is stored only where the key is absent, so it must be gone before anybody hears of the failure.
TEST(LoaderFailures, ABrokenObjectIsRemovedBeforeTheReport) {
    LoadFixture f;
    f.put(1);
    f.damage(0, 5000);
    f.store.hold(of_kind(OpKind::remove));
    f.load("a", 0, 1, 0);
    ASSERT_TRUE(f.store.wait_held(1));
    EXPECT_TRUE(f.loader->take_finished().requests.empty());
    const Op removal = f.store.log().back();
    EXPECT_EQ(removal.key, f.key(0));
    EXPECT_EQ(removal.condition, Condition::etag);
    EXPECT_EQ(removal.etag, "2");
    f.store.release();
    EXPECT_EQ(f.reported(1).bad_blocks, range(0, 2));
    EXPECT_FALSE(f.store.values().contains(f.key(0)));
}

TEST(LoaderFailures, ANewerVersionIsNotRemoved) {
    LoadFixture f;
    f.put(1);
    f.damage(0, 5000);
    f.store.hold(of_kind(OpKind::remove));
    f.load("a", 0, 1, 0);
    ASSERT_TRUE(f.store.wait_held(1));
    f.store.set_value(f.key(0), f.object(0));
    f.store.release();
    f.reported(1);
    EXPECT_EQ(f.store.values()[f.key(0)], f.object(0));
}

TEST(LoaderFailures, AReaderRemovesNothing) {
    LoadFixture f(16, testing::no_stall, false);
    f.put(2);
    f.damage(1, 5000);
    f.load("a", 0, 2, 0);
    EXPECT_EQ(f.reported(1).bad_blocks, range(2, 4));
    EXPECT_EQ(f.store.count(OpKind::remove), 0U);
}

TEST(LoaderFailures, EveryLoadThatSharesABrokenReadFails) {
    LoadFixture f;
    f.put(2);
    f.damage(1, 5000);
    f.store.hold(of_kind(OpKind::get));
    f.load("a", 0, 2, 0);
    ASSERT_TRUE(f.store.wait_held(2));
    f.loader->submit({f.job("b", 0, 2, 8), f.job("c", 0, 1, 12)}, f.name_space);
    ASSERT_TRUE(eventually([&] { return f.counters.shared_reads == 3; }));
    f.store.release();
    auto bad = f.reported(3).bad_blocks;
    std::sort(bad.begin(), bad.end());
    EXPECT_EQ(bad, (std::vector<std::int32_t>{2, 3, 10, 11}));
    EXPECT_EQ(f.store.count(OpKind::remove), 1U);
}

// I5: a deadline, and late data reaches nobody.
TEST(LoaderStall, ASilentStoreEndsTheLoadAndItsLeaseIsHeldBack) {
    constexpr milliseconds stall{400};  // enough to answer one read before, on any machine
    LoadFixture f(16, stall);
    f.put(3);
    f.scrub();
    f.store.hold(any_op);
    const auto start = std::chrono::steady_clock::now();
    f.load("a", 0, 3, 0);
    ASSERT_TRUE(f.store.wait_held(3));
    f.store.release(f.of(OpKind::get, 0));
    const auto report = f.reported(1);
    EXPECT_GE(std::chrono::steady_clock::now() - start, stall);
    EXPECT_EQ(report.bad_blocks, range(2, 6));
    EXPECT_EQ(report.troubled.size(), 1U);
    EXPECT_EQ(f.failures(LoadFailure::stall), 1U);
    EXPECT_EQ(f.staging->stats().quarantined_bytes, 2 * f.object_bytes());
    EXPECT_EQ(f.staging->stats().leased_bytes, 0U);
    f.store.release();
    ASSERT_TRUE(eventually([&] { return f.staging->stats().quarantined_bytes == 0; }));
    EXPECT_TRUE(f.untouched(2, 6)) << "late bytes never reach blocks";
    EXPECT_TRUE(f.loader->take_finished().requests.empty());
}

TEST(LoaderStall, WithTooMuchHeldBackNewLoadsEndAtOnce) {
    LoadFixture f(4, testing::short_stall);
    f.put(8);
    f.store.hold(any_op);
    f.load("a", 0, 4, 0);
    f.reported(1);
    ASSERT_FALSE(f.staging->accepts_loads());
    f.load("b", 4, 8, 8);
    auto report = f.reported(2);
    EXPECT_EQ(f.failures(LoadFailure::staging), 1U);
    EXPECT_EQ(report.troubled, std::vector<std::string>{"a"});
    f.store.hold({});
    f.store.release();
    ASSERT_TRUE(eventually([&] { return f.staging->accepts_loads(); }));
    f.load("c", 4, 8, 16);
    report = f.reported(3);
    EXPECT_TRUE(f.holds(4, 8, 16));
}

TEST(LoaderStall, ASharedReadIsHeldBackOnlyWhenAllHaveGivenUp) {
    LoadFixture f(16, testing::short_stall);
    f.put(1);
    f.scrub();
    f.store.hold(any_op);
    f.loader->submit({f.job("a", 0, 1, 0), f.job("b", 0, 1, 4)}, f.name_space);
    f.reported(2);
    EXPECT_EQ(f.staging->stats().quarantined_bytes, f.object_bytes());
    f.store.release();
    ASSERT_TRUE(eventually([&] { return f.staging->stats().quarantined_bytes == 0; }));
    EXPECT_TRUE(f.untouched(0, 32));
}

TEST(LoaderStall, ALoadThatWaitsForItsTurnIsNotStalledByTheProgressOfOthers) {
    LoadFixture f(1, milliseconds(800));
    f.put(10);
    f.scrub();
    f.store.hold(any_op);
    f.load("a", 0, 9, 0);
    f.load("b", 9, 10, 20);
    for (std::size_t chunk = 0; chunk < 10; ++chunk) {
        ASSERT_TRUE(f.store.wait_held(1));
        // Together longer than the stall time: chunk by chunk there is progress.
        std::this_thread::sleep_for(milliseconds(90));
        f.store.release();
    }
    EXPECT_TRUE(f.reported(2).bad_blocks.empty());
    EXPECT_TRUE(f.holds(9, 10, 20));
}

// I1: a removal that hangs delays a report by the stall time, whatever else goes on meanwhile.
TEST(LoaderStall, AHungRemovalDoesNotHoldTheReport) {
    LoadFixture f(16, milliseconds(200));
    const auto start = std::chrono::steady_clock::now();
    f.put(2);
    f.damage(0, 5000);
    f.store.hold(of_kind(OpKind::remove));
    f.load("a", 0, 1, 0);
    ASSERT_TRUE(f.store.wait_held(1));
    std::size_t others = 0;
    ASSERT_TRUE(eventually([&] {
        f.load("b", 1, 2, 8);
        ++others;
        const auto done = [&] {
            f.collect();
            return static_cast<std::size_t>(std::count(f.all.requests.begin(), f.all.requests.end(), "b")) == others;
        };
        EXPECT_TRUE(eventually(done));
        return std::count(f.all.requests.begin(), f.all.requests.end(), "a") == 1;
    }));
    EXPECT_EQ(f.all.bad_blocks, range(0, 2));
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
    f.store.release();
    f.reported(others + 1);
}

// Jobs that can't be done are reported, at once and as a whole.
TEST(LoaderFailures, RefusedAndBrokenJobsAreReported) {
    LoadFixture f;
    f.put(4);
    f.scrub();
    LoadJob refused = f.job("refused", 0, 1, 0);
    refused.chunks[0].blocks = {4, 5, 6};
    refused.refused = true;
    LoadJob beyond = f.job("beyond", 0, 2, 28);
    beyond.chunks[1].blocks[1] = 32;
    LoadJob few = f.job("few", 0, 1, 10);
    few.chunks[0].blocks.pop_back();
    f.loader->submit({refused, beyond, few}, f.name_space);
    const auto report = f.reported(3);
    EXPECT_EQ(report.bad_blocks, (std::vector<std::int32_t>{4, 5, 6, 28, 29, 30, 32, 10}));
    EXPECT_EQ(f.failures(LoadFailure::internal), 3U);
    EXPECT_EQ(f.store.count(OpKind::get), 0U);
    EXPECT_TRUE(f.untouched(0, 32));
}

// I1, I2, I8 over random answers: every load once, every valid block golden, nothing of staging lost.
TEST(LoaderProperty, RandomAnswersLoseNoReportAndNoLease) {
    const unsigned seed = std::random_device()();
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    for (int round = 0; round < 30; ++round) {
        LoadFixture f(2 + random() % 6, milliseconds(20));
        f.put(8);
        for (std::size_t chunk = 0; chunk < 8; ++chunk)
            if (random() % 6 == 0) f.damage(chunk, random() % f.object_bytes());
        f.scrub();
        const unsigned hold_one_in = 2 + random() % 4;
        f.store.hold([count = 0U, hold_one_in](const Op&) mutable { return ++count % hold_one_in == 0; });
        struct Target {
            std::size_t from, to;
            std::uint32_t block;
        };
        std::map<std::string, Target> targets;
        std::uint32_t block = 0;
        while (true) {
            const std::size_t from = random() % 8, to = from + 1 + random() % (8 - from);
            if (block + 2 * (to - from) > 32) break;
            const std::string name = "r" + std::to_string(targets.size());
            targets[name] = {from, to, block};
            f.load(name, from, to, static_cast<std::int32_t>(block));
            block += static_cast<std::uint32_t>(2 * (to - from));
            if (random() % 3 == 0) f.store.release([&](const Op&) { return random() % 2 == 0; });
        }
        const auto report = f.reported(targets.size());
        EXPECT_EQ(std::set(report.requests.begin(), report.requests.end()).size(), targets.size());
        const std::set<std::int32_t> bad(report.bad_blocks.begin(), report.bad_blocks.end());
        EXPECT_EQ(bad.size(), report.bad_blocks.size());
        f.store.hold({});
        f.store.release();
        ASSERT_TRUE(eventually([&] {
            const auto stats = f.staging->stats();
            return stats.leased_bytes + stats.quarantined_bytes == 0;
        }));
        for (const auto& [name, target] : targets)
            for (std::uint32_t i = 0; i < 2 * (target.to - target.from); ++i)
                EXPECT_TRUE(bad.contains(static_cast<std::int32_t>(target.block + i)) ||
                            f.kv.holds(target.block + i, 2 * target.from + i))
                    << name;
    }
}

// --- Loads that are all or nothing, and devices

TEST(LoaderWhole, OneFailureEndsTheLoadAndOnlyItsBlocksAreNamed) {
    LoadFixture f;
    f.put(5);
    f.damage(2, 5000);
    LoadJob job = f.job("a", 0, 5, 10);
    job.whole = true;
    f.scrub();
    f.loader->submit({job}, f.name_space);
    const FinishedLoads all = f.reported(1);
    EXPECT_EQ(all.failed, std::vector<std::string>{"a"});
    EXPECT_EQ(all.bad_blocks, (std::vector<std::int32_t>{14, 15})) << "the object that failed";
    EXPECT_TRUE(all.troubled.empty());
}

TEST(LoaderWhole, WithoutAFailureItIsLikeAnyOther) {
    LoadFixture f;
    f.put(3);
    LoadJob job = f.job("a", 0, 3, 10);
    job.whole = true;
    f.loader->submit({job}, f.name_space);
    const FinishedLoads all = f.reported(1);
    EXPECT_TRUE(all.failed.empty());
    EXPECT_TRUE(f.holds(0, 3, 10));
}

struct DeviceLoads : LoadFixture {
    DeviceLoads() {
        end();
        memory = kv.worker();
        memory.on_device = true;
        for (LayerMemory& layer : memory.groups[0].layers) layer.base = nullptr;
        Loader::Settings settings;
        settings.stall = short_stall;
        loader = std::make_unique<Loader>(device_store, staging, memory, counters, settings);
    }
    ~DeviceLoads() {
        loader->stop();
        device_store.close(std::chrono::seconds(1));
        loader.reset();
    }
    std::vector<DeviceCopy> copies(std::size_t count) {
        std::vector<DeviceCopy> list;
        EXPECT_TRUE(eventually([&] {
            for (DeviceCopy& copy : loader->take_copies()) list.push_back(std::move(copy));
            return list.size() >= count;
        }));
        return list;
    }
    // What the engine's runtime does with a copy.
    void make(const DeviceCopy& copy) {
        const ObjectLayout layout = kv.group().object_layout();
        const GroupMemory& group = kv.group();
        for (std::uint32_t i = 0; i < layout.slice_count; ++i)
            for (std::size_t page = 0; page < copy.blocks.size(); ++page)
                if (copy.blocks[page] != no_block)
                    std::memcpy(kv.page(i, static_cast<std::uint32_t>(copy.blocks[page])),
                                copy.slices + i * layout.slice_stride + page * group.page_bytes, group.page_bytes);
    }
    void put_chunks(std::size_t chunks) {
        for (std::size_t i = 0; i < chunks; ++i) device_store.set_value(key(i), object(i));
    }
    ScriptedStore device_store;
    WorkerMemory memory;
};

TEST(LoaderOnADevice, ALoadIsReportedWhenItsCopiesHaveEnded) {
    DeviceLoads f;
    f.put_chunks(3);
    f.scrub();
    f.load("a", 0, 3, 10);
    const auto copies = f.copies(3);
    ASSERT_EQ(copies.size(), 3U);
    std::this_thread::sleep_for(2 * short_stall);
    EXPECT_TRUE(f.loader->take_finished().requests.empty()) << "the device may take its time";
    for (const DeviceCopy& copy : copies) f.make(copy);
    f.loader->copied({copies[0].ticket, copies[1].ticket});
    EXPECT_TRUE(f.loader->take_finished().requests.empty());
    f.loader->copied({copies[2].ticket});
    EXPECT_TRUE(f.reported(1).failed.empty());
    EXPECT_TRUE(f.holds(0, 3, 10));
    EXPECT_TRUE(eventually([&] { return f.staging->stats().leased_bytes == 0; }));
}

TEST(LoaderOnADevice, ABrokenObjectNeverGetsThere) {
    DeviceLoads f;
    f.put_chunks(2);
    std::string broken = f.object(1);
    broken[5000] = static_cast<char>(broken[5000] ^ 1);
    f.device_store.set_value(f.key(1), broken);
    f.load("a", 0, 2, 10);
    const auto copies = f.copies(1);
    ASSERT_EQ(copies.size(), 1U);
    EXPECT_TRUE(f.loader->take_finished().requests.empty()) << "the first chunk's copy is under way";
    f.loader->copied({copies[0].ticket});
    EXPECT_EQ(f.reported(1).bad_blocks, (std::vector<std::int32_t>{12, 13}));
}

TEST(LoaderOnADevice, AFailedLoadIsNotReportedBeforeItsCopiesEnd) {
    DeviceLoads f;
    f.put_chunks(2);
    f.device_store.hold(f.of(OpKind::get, 1));
    LoadJob job = f.job("a", 0, 2, 10);
    job.whole = true;
    f.loader->submit({job}, f.name_space);
    const auto copies = f.copies(1);
    std::this_thread::sleep_for(3 * short_stall);  // the second read stalls meanwhile
    EXPECT_TRUE(f.loader->take_finished().requests.empty()) << "its blocks may still be written";
    f.loader->copied({copies[0].ticket});
    EXPECT_EQ(f.reported(1).failed, std::vector<std::string>{"a"});
    f.device_store.release();
}

}  // namespace
}  // namespace kvern
