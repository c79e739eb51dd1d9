// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

#include <gtest/gtest.h>

namespace kvern {
namespace {

TEST(Clock, SteadyNeverGoesBack) {
    const Clock& clock = Clock::steady();
    const TimePoint before = clock.now();
    EXPECT_LE(before, clock.now());
    EXPECT_EQ(&clock, &Clock::steady());
}

TEST(Clock, FakeMovesOnlyWhenTold) {
    FakeClock clock;
    const TimePoint before = clock.now();
    EXPECT_EQ(before, clock.now());
    EXPECT_GT(before, TimePoint{});  // times a little before "now" must exist
    clock.advance(std::chrono::milliseconds(5));
    EXPECT_EQ(clock.now() - before, std::chrono::milliseconds(5));
}

}  // namespace
}  // namespace kvern
