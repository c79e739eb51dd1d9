// SPDX-License-Identifier: Apache-2.0
#include <poll.h>

#include <thread>

#include "store/store_fixture.h"

namespace kvern::testing {
namespace {

bool readable(const CompletionQueue& queue) {
    pollfd event{queue.event_fd(), POLLIN, 0};
    return poll(&event, 1, 0) == 1;
}

std::vector<Completion> batch_of(std::initializer_list<std::uint64_t> tags) {
    std::vector<Completion> batch;
    for (const auto tag : tags) batch.push_back(Completion{tag, {}});
    return batch;
}

TEST(CompletionQueue, IsReadableExactlyWhileCompletionsWait) {
    CompletionQueue queue;
    EXPECT_FALSE(readable(queue));
    queue.push(Completion{1, {}});
    EXPECT_TRUE(readable(queue));
    queue.push(Completion{2, {}});
    queue.drain();
    EXPECT_FALSE(readable(queue));
    queue.push(batch_of({}));
    EXPECT_FALSE(readable(queue));
    queue.push(batch_of({3, 4}));
    EXPECT_TRUE(readable(queue));
    queue.drain();
    EXPECT_FALSE(readable(queue));
}

TEST(CompletionQueue, DrainsAllInTheOrderOfArrival) {
    CompletionQueue queue;
    EXPECT_TRUE(queue.drain().empty());
    queue.push(batch_of({1, 2}));
    queue.push(Completion{3, {}});
    queue.push(batch_of({4, 5}));
    const auto drained = queue.drain();
    ASSERT_EQ(drained.size(), 5U);
    for (std::size_t i = 0; i < drained.size(); ++i) EXPECT_EQ(drained[i].tag, i + 1);
    EXPECT_TRUE(queue.drain().empty());
}

TEST(CompletionQueue, WaitEndsWithTheFirstCompletionOrTheTimeout) {
    CompletionQueue queue;
    EXPECT_FALSE(queue.wait(std::chrono::milliseconds(0)));
    EXPECT_FALSE(queue.wait(std::chrono::milliseconds(5)));
    std::thread pusher([&] { queue.push(Completion{1, {}}); });
    EXPECT_TRUE(queue.wait(std::chrono::milliseconds(-1)));
    pusher.join();
    EXPECT_TRUE(queue.wait(std::chrono::milliseconds(0)));  // still there
    EXPECT_EQ(queue.drain().size(), 1U);
    EXPECT_FALSE(queue.wait(std::chrono::milliseconds(0)));
}

TEST(CompletionQueue, LosesNothingBetweenManyPushersAndOneOwner) {
    constexpr std::uint64_t pushers = 3;
    constexpr std::uint64_t each = 20000;
    CompletionQueue queue;
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < pushers; ++t) {
        threads.emplace_back([&, t] {
            for (std::uint64_t i = 0; i < each; i += 2) {
                if (i % 3 == 0) {
                    queue.push(batch_of({t * each + i, t * each + i + 1}));
                } else {
                    queue.push(Completion{t * each + i, {}});
                    queue.push(Completion{t * each + i + 1, {}});
                }
            }
        });
    }
    std::vector<std::uint64_t> next(pushers);
    for (std::uint64_t seen = 0; seen < pushers * each;) {
        ASSERT_TRUE(queue.wait(std::chrono::seconds(30)));
        for (const auto& completion : queue.drain()) {
            ASSERT_EQ(completion.tag % each, next[completion.tag / each]++);  // in order per pusher
            ++seen;
        }
    }
    for (auto& thread : threads) thread.join();
    EXPECT_FALSE(readable(queue));
}

TEST(CompletionQueue, MayBeDestroyedOnceItsLastCompletionIsDrained) {
    for (int i = 0; i < 2000; ++i) {
        auto queue = std::make_unique<CompletionQueue>();
        std::thread pusher([raw = queue.get()] { raw->push(Completion{1, {}}); });
        while (queue->drain().empty()) queue->wait(std::chrono::milliseconds(-1));
        queue.reset();
        pusher.join();
    }
}

}  // namespace
}  // namespace kvern::testing
