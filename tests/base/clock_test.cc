// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

#include <gtest/gtest.h>

#include <limits>

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

TEST(WallClock, SystemIsOfThisCentury) {
    const auto years = WallClock::system().now_ns() / 1'000'000'000 / (365 * 86400);
    EXPECT_GT(years, 50);
    EXPECT_LT(years, 130);
}

TEST(WallClock, FakeMovesOnlyWhenTold) {
    FakeWallClock clock;
    const auto before = clock.now_ns();
    EXPECT_EQ(before, clock.now_ns());
    clock.advance(std::chrono::hours(1));
    EXPECT_EQ(clock.now_ns() - before, 3'600'000'000'000);
}

TEST(UnixNanoseconds, TellTheNearestTimeTheyCan) {
    constexpr auto most = std::numeric_limits<std::int64_t>::max();
    const std::chrono::seconds last(most / 1'000'000'000);
    EXPECT_EQ(unix_ns(std::chrono::seconds(1), std::chrono::nanoseconds(2)), 1'000'000'002);
    EXPECT_EQ(unix_ns(std::chrono::seconds(0)), 0);
    EXPECT_EQ(unix_ns(std::chrono::seconds(-1), std::chrono::nanoseconds(999'999'999)), 0);
    EXPECT_EQ(unix_ns(last - std::chrono::seconds(1), std::chrono::nanoseconds(999'999'999)),
              (last.count() - 1) * 1'000'000'000 + 999'999'999);
    EXPECT_EQ(unix_ns(last), most);
    EXPECT_EQ(unix_ns(std::chrono::seconds::max()), most);
    EXPECT_EQ(unix_ns(std::chrono::seconds::min()), 0);
}

}  // namespace
}  // namespace kvern
