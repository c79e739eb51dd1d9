// SPDX-License-Identifier: Apache-2.0
#include "engine/worker_half.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <set>

#include "base/text.h"
#include "engine/kv_memory.h"
#include "engine/temp_folder.h"

namespace kvern {
namespace {

using testing::eventually;
using testing::hash_of;
using testing::KvMemory;
using testing::TempFolder;

Options options_for(const std::string& store) {
    Options options;
    options.store = store;
    options.staging_mib = 1;
    options.min_free_percent = 0;  // the disk of a test may be nearly full
    return options;
}

// A worker over a folder of its own; steps are numbered as the scheduler half does it.
struct Fixture {
    explicit Fixture(Mode mode = Mode::read_write, const std::string& path = {}) {
        Options options = options_for("file://" + (path.empty() ? folder.path() : path));
        options.mode = mode;
        auto made = WorkerHalf::create(options, kv.worker(), 1);
        EXPECT_TRUE(made) << made.error().message;
        worker = std::move(*made);
    }
    Step next_step() {
        Step step;
        step.sequence = ++sequence;
        step.name_space = namespace_of("{}");
        return step;
    }
    StoreJob store_job(std::size_t chunk, std::uint64_t incarnation) const {
        const auto block = static_cast<std::int32_t>(2 * chunk);
        return {incarnation, {0, {hash_of(chunk), 0}, {block, block + 1}}, false};
    }
    void store(std::size_t chunks) {
        Step step = next_step();
        for (std::size_t i = 0; i < chunks; ++i) step.stores.push_back(store_job(i, 1));
        ASSERT_TRUE(worker->begin_step(step.encode()));
        worker->save();
        ASSERT_TRUE(eventually([&] { return worker->pending_stores() == 0; }));
    }
    FinishedLoads reported(std::size_t loads) {
        FinishedLoads all;
        EXPECT_TRUE(eventually([&] {
            const auto more = worker->take_finished();
            all.requests.insert(all.requests.end(), more.requests.begin(), more.requests.end());
            all.bad_blocks.insert(all.bad_blocks.end(), more.bad_blocks.begin(), more.bad_blocks.end());
            return all.requests.size() >= loads;
        }));
        return all;
    }
    std::string path_of(std::size_t chunk) const {
        return folder.path() + "/" +
               object_key(to_hex(namespace_of("{}")), {hash_of(chunk), 0}, 0, kv.group().shard.text());
    }
    TempFolder folder;
    KvMemory kv;
    std::uint64_t sequence = 0;
    std::unique_ptr<WorkerHalf> worker;
};

TEST(WorkerStart, ErrorsAreOneSentenceWithTheOption) {
    const KvMemory kv;
    const auto error_of = [&](const Options& options, unsigned ranks) {
        const auto made = WorkerHalf::create(options, kv.worker(), ranks);
        return made ? "made" : made.error().message;
    };
    EXPECT_TRUE(error_of(options_for("fil:///x"), 1).starts_with("option store: "));
    EXPECT_EQ(error_of(options_for("mem:"), 1), "made");
    KvMemory::Shape shape;
    shape.page_bytes = shape.stride_bytes = 100000;
    shape.blocks = 4;
    const KvMemory large(shape);  // a chunk is 4096 + 2 * 200704 bytes: two fit into 1 MiB, four do not
    EXPECT_TRUE(WorkerHalf::create(options_for("mem:"), large.worker(), 1));
    EXPECT_EQ(
        WorkerHalf::create(options_for("mem:"), large.worker(), 2).error().message,
        "option staging_mib: 1 MiB for 2 rank(s) on this host is too small for two chunks of 396 KiB; use at least "
        "2, or a smaller chunk_tokens");
    WorkerMemory broken = kv.worker();
    broken.groups[0].layers[0].base = nullptr;
    EXPECT_EQ(WorkerHalf::create(options_for("mem:"), broken, 1).error().message,
              "layer layer.0: pages of 600 bytes every 600 bytes are no plain KV memory");
}

TEST(WorkerStart, StagingIsDividedByTheRanksOfAHost) {
    const KvMemory kv;
    const auto alone = WorkerHalf::create(options_for("mem:"), kv.worker(), 1);
    const auto shared = WorkerHalf::create(options_for("mem:"), kv.worker(), 4);
    EXPECT_EQ((*alone)->staging().size_bytes, std::size_t{1} << 20);
    EXPECT_EQ((*shared)->staging().size_bytes, std::size_t{1} << 18);
}

TEST(WorkerStart, TheNonceIsWhatTheStoreHolds) {
    Fixture f;
    EXPECT_EQ(f.worker->read_nonce("engine"), "");
    auto store = open_store("file://" + f.folder.path());
    std::string nonce = "0123";
    Op op;
    op.kind = OpKind::put;
    op.key = nonce_key("engine");
    op.buffers = {{reinterpret_cast<std::byte*>(nonce.data()), nonce.size()}};
    ASSERT_EQ(run(**store, op).status, Status::ok);
    EXPECT_EQ(f.worker->read_nonce("engine"), "0123");
    EXPECT_EQ(f.worker->read_nonce("engine/other"), "");
    EXPECT_EQ(f.worker->staging().leased_bytes, 0U);
}

TEST(WorkerHalf, WhatIsStoredIsLoadedIntoOtherBlocks) {
    Fixture f;
    f.store(3);
    for (std::uint32_t block = 0; block < 32; ++block) f.kv.fill(block, 1000);
    Step step = f.next_step();
    step.loads.push_back(
        {"a",
         {{0, {hash_of(0), 0}, {20, 21}}, {0, {hash_of(1), 0}, {no_block, 23}}, {0, {hash_of(9), 0}, {24, 25}}},
         false});
    ASSERT_TRUE(f.worker->begin_step(step.encode()));
    const auto report = f.reported(1);
    EXPECT_EQ(report.bad_blocks, (std::vector<std::int32_t>{24, 25}));
    EXPECT_TRUE(f.kv.holds(20, 0) && f.kv.holds(21, 1) && f.kv.holds(23, 3));
    EXPECT_TRUE(f.kv.holds(22, 1000) && f.kv.holds(24, 1000));
}

TEST(WorkerHalf, AStepIsBegunOnce) {
    Fixture f;
    f.store(1);
    Step step = f.next_step();
    step.loads.push_back({"a", {{0, {hash_of(0), 0}, {20, 21}}}, false});
    step.stores.push_back(f.store_job(1, 2));
    const std::string bytes = step.encode();
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(f.worker->begin_step(bytes));
    f.worker->save();
    EXPECT_TRUE(eventually([&] { return f.worker->pending_stores() == 0; }));
    EXPECT_EQ(f.reported(1).requests.size(), 1U);
    EXPECT_EQ(f.worker->counters().stored_chunks, 2U);
    EXPECT_EQ(f.worker->shutdown(testing::patience), 0U);
    EXPECT_TRUE(f.worker->take_finished().requests.empty());
    EXPECT_EQ(f.worker->counters().loads, 1U);
}

// I6: an error is an answer, and nothing was started.
TEST(WorkerHalf, ABrokenStepIsRefusedAsAWhole) {
    Fixture f;
    Step step = f.next_step();
    step.loads.push_back({"a", {{0, {hash_of(0), 0}, {20, 21}}}, false});
    const std::string bytes = step.encode();
    EXPECT_FALSE(f.worker->begin_step(bytes.substr(0, bytes.size() - 1)));
    EXPECT_FALSE(f.worker->begin_step("nonsense"));
    EXPECT_TRUE(f.worker->begin_step(""));
    f.worker->shutdown(testing::patience);
    EXPECT_EQ(f.worker->counters().loads, 0U);
}

TEST(WorkerHalf, ReadOnlyStoresAndRemovesNothing) {
    Fixture writer;
    writer.store(1);
    std::filesystem::resize_file(writer.path_of(0), 4096);
    Fixture reader(Mode::read_only, writer.folder.path());
    Step step = reader.next_step();
    step.stores.push_back(reader.store_job(1, 1));
    step.loads.push_back({"a", {{0, {hash_of(0), 0}, {20, 21}}}, false});
    ASSERT_TRUE(reader.worker->begin_step(step.encode()));
    reader.worker->save();
    EXPECT_EQ(reader.reported(1).bad_blocks.size(), 2U);
    EXPECT_EQ(reader.worker->shutdown(testing::patience), 0U);
    EXPECT_EQ(reader.worker->counters().stored_chunks, 0U);
    EXPECT_FALSE(std::filesystem::exists(writer.path_of(1)));
    EXPECT_TRUE(std::filesystem::exists(writer.path_of(0)));
}

TEST(WorkerHalf, AChunkWhoseLoadFailedIsStoredAgain) {
    Fixture f;
    f.store(1);
    const auto path = f.path_of(0);
    std::filesystem::resize_file(path, 4096);
    Step step = f.next_step();
    step.loads.push_back({"a", {{0, {hash_of(0), 0}, {20, 21}}}, false});
    ASSERT_TRUE(f.worker->begin_step(step.encode()));
    EXPECT_EQ(f.reported(1).bad_blocks.size(), 2U);
    EXPECT_FALSE(std::filesystem::exists(path));
    f.store(1);
    EXPECT_EQ(f.worker->counters().stored_chunks, 2U);
    EXPECT_EQ(std::filesystem::file_size(path), f.kv.group().object_layout().object_bytes);
}

// I1: what is under way at the end is still reported, and nothing begins any more.
TEST(WorkerHalf, ShutdownReportsEveryLoad) {
    Fixture f;
    f.store(8);
    Step step = f.next_step();
    for (std::size_t i = 0; i < 8; ++i)
        step.loads.push_back(
            {"r" + std::to_string(i),
             {{0, {hash_of(i), 0}, {static_cast<std::int32_t>(2 * i), static_cast<std::int32_t>(2 * i + 1)}}},
             false});
    ASSERT_TRUE(f.worker->begin_step(step.encode()));
    EXPECT_EQ(f.worker->shutdown(testing::patience), 0U);
    const auto report = f.reported(8);
    EXPECT_EQ(std::set(report.requests.begin(), report.requests.end()).size(), 8U);
    EXPECT_TRUE(f.worker->begin_step(f.next_step().encode()));
    f.worker->save();
    EXPECT_EQ(f.worker->shutdown(testing::patience), 0U);
}

// I8: whatever the sequence, no lease is left.
TEST(WorkerHalf, RandomStepsLeaveNoLease) {
    const unsigned seed = std::random_device()();
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    Fixture f;
    std::size_t loads = 0, reports = 0;
    for (int i = 0; i < 200; ++i) {
        Step step = f.next_step();
        // Stores are of blocks 0 to 15, loads go into those from 16 on, of which some do not exist.
        if (random() % 2) step.stores.push_back(f.store_job(random() % 8, 1 + random() % 5));
        if (random() % 3 == 0) step.ended.push_back(1 + random() % 5);
        if (random() % 3 == 0) {
            LoadJob job{"r" + std::to_string(++loads), {}, random() % 10 == 0};
            for (std::size_t chunk = random() % 4; chunk < random() % 12; ++chunk)
                job.chunks.push_back(
                    {0, {hash_of(chunk), 0}, {static_cast<std::int32_t>(16 + random() % 20), no_block}});
            step.loads.push_back(job);
        }
        ASSERT_TRUE(f.worker->begin_step(step.encode()));
        if (random() % 4) f.worker->save();
        reports += f.worker->take_finished().requests.size();
    }
    reports += loads > reports ? f.reported(loads - reports).requests.size() : 0;
    EXPECT_EQ(reports, loads);
    Step step = f.next_step();
    step.ended = {1, 2, 3, 4, 5};
    ASSERT_TRUE(f.worker->begin_step(step.encode()));
    ASSERT_TRUE(eventually([&] {
        f.worker->save();
        return f.worker->pending_stores() == 0 && f.worker->staging().leased_bytes == 0;
    }));
    EXPECT_EQ(f.worker->staging().quarantined_bytes, 0U);
}

}  // namespace
}  // namespace kvern
