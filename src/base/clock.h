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

class FakeWallClock final : public WallClock {
  public:
    std::int64_t now_ns() const override { return now_ns_; }
    void advance(std::chrono::nanoseconds by) { now_ns_ += by.count(); }

  private:
    std::int64_t now_ns_ = 1'700'000'000'000'000'000;
};

}  // namespace kvern
