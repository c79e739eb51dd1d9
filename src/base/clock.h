// SPDX-License-Identifier: Apache-2.0
// The one clock. Logic that compares times takes a Clock, so that tests move time instead of sleeping.
#pragma once

#include <chrono>

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

}  // namespace kvern
