// SPDX-License-Identifier: Apache-2.0
// The clocks. Logic that compares times takes a Clock, or a WallClock where times of files are compared, so that tests
// move time instead of sleeping.
#pragma once

#include <chrono>
#include <cstdint>

namespace kvern {

using TimePoint = std::chrono::steady_clock::time_point;
using Duration = std::chrono::steady_clock::duration;

class Clock {
  public:
    virtual ~Clock() = default;
    virtual TimePoint now() const = 0;
    static const Clock& steady();  // the real one, never destroyed
};

class FakeClock final : public Clock {
  public:
    TimePoint now() const override { return now_; }
    void advance(Duration by) { now_ += by; }

  private:
    TimePoint now_{std::chrono::hours(1)};
};

// The time of day, as file systems know it: nanoseconds since the epoch. It may jump.
class WallClock {
  public:
    virtual ~WallClock() = default;
    virtual std::int64_t now_ns() const = 0;
    static const WallClock& system();  // the real one, never destroyed
};

// Nanoseconds since 1970 of a time that someone else tells. What cannot be told so becomes the nearest that can: before
// 1970 that is 0, from April 2262 on the greatest number.
constexpr std::int64_t unix_ns(std::chrono::seconds whole, std::chrono::nanoseconds rest = {}) {
    constexpr auto latest = std::chrono::nanoseconds::max();
    if (whole < std::chrono::seconds(0)) return 0;
    if (whole >= std::chrono::floor<std::chrono::seconds>(latest)) return latest.count();
    return (std::chrono::nanoseconds(whole) + rest).count();
}

class FakeWallClock final : public WallClock {
  public:
    std::int64_t now_ns() const override { return now_ns_; }
    void advance(std::chrono::nanoseconds by) { now_ns_ += by.count(); }

  private:
    std::int64_t now_ns_ = 1'700'000'000'000'000'000;
};

}  // namespace kvern
