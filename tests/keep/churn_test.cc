// SPDX-License-Identifier: Apache-2.0
// A writer, a reader and two collectors on one folder.
#include <atomic>
#include <thread>

#include "keep/collect.h"
#include "keep/keep_fixture.h"
#include "keep/verify.h"
#include "store/store_fixture.h"

namespace kvern::testing {
namespace {

constexpr std::uint64_t objects = 3000;
constexpr std::uint64_t objects_max = 300;  // the limit's
constexpr std::uint64_t prompt_chunks = 10;
constexpr std::uint64_t slice_bytes = 4096;

class Churn : public ::testing::Test {
  protected:
    ObjectFacts facts_of(std::uint64_t number) const {
        ObjectFacts facts;
        facts.name_space = name_;
        const bool first = number % prompt_chunks == 0;
        facts.chunk = {hash_of(std::to_string(number)), first ? 0 : tag_of(std::to_string(number - 1))};
        facts.shard = whole_shard;
        facts.chunk_tokens = 256;
        facts.block_tokens = 16;
        facts.pages = 16;
        return facts;
    }
    std::string key_of(std::uint64_t number) const {
        return object_key(to_hex(name_), facts_of(number).chunk, 0, whole_shard.text());
    }
    std::unique_ptr<Store> open() { return open_or_fail("file://" + folder_.path()); }

    void write_all() {
        const auto store = open();
        for (std::uint64_t i = 0; i < objects; ++i) {
            auto bytes = whole_object(facts_of(i), slice_bytes, i);
            written_bytes_ += object_bytes_;  // before it can be seen
            const Memory memory(bytes.size());
            std::memcpy(memory.data(), bytes.data(), bytes.size());
            const auto op = put_op(key_of(i), memory, Condition::absent);
            EXPECT_OK(op, run(*store, op));
            written_ = i + 1;
        }
        done_ = true;
    }

    void read_until_done() {
        const auto store = open();
        std::mt19937_64 random(1);
        const Memory memory(object_bytes_);
        while (!done_) {
            if (written_ == 0) continue;
            const auto newest = written_ - 1;
            const auto number = newest - std::min<std::uint64_t>(newest, random() % (2 * objects_max));
            auto op = get_op(key_of(number), {memory.buffer()});
            op.mark_used = true;
            const auto outcome = run(*store, op);
            if (outcome.status == Status::miss) {
                ++misses_;
                continue;
            }
            ASSERT_OK(op, outcome);
            ASSERT_TRUE(memory.text() == whole_object(facts_of(number), slice_bytes, number)) << number;
            ++hits_;
        }
    }

    // Rounds until the writer is done. After each, what is there is within the limit, but for what came since it began.
    void collect_until_done() {
        CollectPlan plan;
        plan.limits.bytes_max = objects_max * object_bytes_;
        for (bool last = false; !last;) {
            last = done_;
            const auto before = written_bytes_.load();
            Client client(open());
            const auto report = collect(client, plan);
            ASSERT_TRUE(report) << report.error().message;
            EXPECT_EQ(report->failed_objects, 0U) << report->first_error;
            const auto left = read_catalogue(client, "", {});
            ASSERT_TRUE(left) << left.error().message;
            EXPECT_LE(left->bytes, *plan.limits.bytes_max + (written_bytes_ - before));
            ++rounds_;
        }
    }

    TempFolder folder_;
    const Digest name_ = namespace_of("{}");
    const std::uint64_t object_bytes_ = ObjectLayout::of(whole_shard.layers(), slice_bytes).object_bytes;
    std::atomic<std::uint64_t> written_{0};
    std::atomic<std::uint64_t> written_bytes_{0};
    std::atomic<std::uint64_t> hits_{0}, misses_{0}, rounds_{0};
    std::atomic<bool> done_{false};
};

TEST_F(Churn, TheLimitHoldsAndReadersSeeWholeObjectsOrNone) {
    std::vector<std::thread> threads;
    threads.emplace_back([&] { write_all(); });
    threads.emplace_back([&] { read_until_done(); });
    threads.emplace_back([&] { collect_until_done(); });
    threads.emplace_back([&] { collect_until_done(); });
    for (auto& thread : threads) thread.join();
    EXPECT_GT(hits_, 0U);
    EXPECT_GT(misses_, 0U);
    EXPECT_GT(rounds_, 2U);
    const auto memory = verify_memory();
    ASSERT_TRUE(memory);
    Client client(open());
    const auto left = read_catalogue(client, "", {});
    ASSERT_TRUE(left);
    EXPECT_LE(left->objects.size(), objects_max);
    EXPECT_GE(left->objects.size(), objects_max - 2 * limits::collect_batch_objects / prompt_chunks);
    const auto report = verify(client, **memory, *left, {}, {});
    ASSERT_TRUE(report);
    EXPECT_EQ(report->bad, 0U);
    EXPECT_EQ(report->done.objects, left->objects.size());
}

}  // namespace
}  // namespace kvern::testing
