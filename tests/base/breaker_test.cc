// SPDX-License-Identifier: Apache-2.0
#include "base/breaker.h"

#include <gtest/gtest.h>

#include <random>

namespace kvern {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct Fixture {
    void fail(unsigned times) {
        for (unsigned i = 0; i < times; ++i) breaker.failure();
    }
    // Lets the pause go by, and takes the probe.
    void probe_after(Duration pause) {
        clock.advance(pause - milliseconds(1));
        EXPECT_FALSE(breaker.allow());
        clock.advance(milliseconds(1));
        EXPECT_TRUE(breaker.allow());
    }
    FakeClock clock;
    Breaker breaker{clock};
};

TEST(Breaker, OpensAfterThreeFailuresInARow) {
    Fixture f;
    f.fail(2);
    f.breaker.success();
    f.fail(2);
    EXPECT_TRUE(f.breaker.allow());
    EXPECT_FALSE(f.breaker.open());
    f.fail(1);
    EXPECT_FALSE(f.breaker.allow());
    EXPECT_TRUE(f.breaker.open());
}

TEST(Breaker, LetsOneProbeThroughAfterThePause) {
    Fixture f;
    f.fail(3);
    f.probe_after(limits::breaker_open);
    EXPECT_FALSE(f.breaker.allow()) << "the probe has not answered";
    EXPECT_TRUE(f.breaker.open());
}

TEST(Breaker, ASuccessfulProbeClosesItAndForgetsTheGrownPause) {
    Fixture f;
    f.fail(3);
    f.probe_after(limits::breaker_open);
    f.breaker.failure();
    f.probe_after(2 * limits::breaker_open);
    f.breaker.success();
    EXPECT_FALSE(f.breaker.open());
    EXPECT_TRUE(f.breaker.allow());
    EXPECT_TRUE(f.breaker.allow());
    f.fail(3);
    f.probe_after(limits::breaker_open);
}

TEST(Breaker, FailedProbesDoubleThePauseUpToItsLimit) {
    Fixture f;
    f.fail(3);
    Duration pause = limits::breaker_open;
    for (int i = 0; i < 6; ++i) {
        f.probe_after(pause);
        f.breaker.failure();
        pause = std::min<Duration>(2 * pause, limits::breaker_open_max);
    }
    EXPECT_EQ(pause, limits::breaker_open_max);
}

TEST(Breaker, AProbeThatNeverAnswersIsFollowedByAnother) {
    Fixture f;
    f.fail(3);
    f.probe_after(limits::breaker_open);
    f.probe_after(limits::breaker_open);
    f.breaker.success();
    EXPECT_TRUE(f.breaker.allow());
}

TEST(Breaker, AProbeThatSaysNothingIsFollowedAtOnce) {
    Fixture f;
    f.fail(3);
    f.breaker.undecided();
    EXPECT_FALSE(f.breaker.allow()) << "there was no probe";
    f.probe_after(limits::breaker_open);
    f.breaker.undecided();
    EXPECT_TRUE(f.breaker.allow());
    EXPECT_FALSE(f.breaker.allow());
    f.breaker.failure();
    f.probe_after(2 * limits::breaker_open);
}

TEST(Breaker, LateFailuresOfWorkFromBeforeNeitherLengthenNorGrowThePause) {
    Fixture f;
    f.fail(3);
    f.clock.advance(limits::breaker_open - milliseconds(2));
    f.fail(5);
    f.clock.advance(milliseconds(2));
    EXPECT_TRUE(f.breaker.allow());
    f.breaker.failure();
    f.fail(5);
    f.probe_after(2 * limits::breaker_open);
}

// However long a store was away and however its probes ended, it is used again within 30 s.
TEST(Breaker, IsClosedWithinThirtySecondsOfRecovery) {
    const auto seed = std::random_device()();
    std::printf("seed %u\n", seed);
    std::mt19937 random(seed);
    for (int round = 0; round < 200; ++round) {
        Fixture f;
        bool works = false;
        const auto recovery = f.clock.now() + seconds(random() % 300);
        const auto until = recovery + seconds(30);
        while (f.clock.now() < until && !(works && !f.breaker.open())) {
            works = f.clock.now() >= recovery;
            if (f.breaker.allow() && (works || random() % 4 != 0)) works ? f.breaker.success() : f.breaker.failure();
            f.clock.advance(milliseconds(random() % 500));
        }
        ASSERT_FALSE(f.breaker.open()) << "round " << round;
    }
}

}  // namespace
}  // namespace kvern
