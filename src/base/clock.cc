// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

namespace kvern {
namespace {

class SteadyClock final : public Clock {
  public:
    TimePoint now() const override { return std::chrono::steady_clock::now(); }
};

class SystemClock final : public WallClock {
  public:
    std::int64_t now_ns() const override {
        const auto now = std::chrono::system_clock::now().time_since_epoch();
        return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
    }
};

}  // namespace

const Clock& Clock::steady() {
    // Leaked on purpose: threads that outlive main() may still read it.
    static const SteadyClock* const clock = new SteadyClock;
    return *clock;
}

const WallClock& WallClock::system() {
    static const SystemClock* const clock = new SystemClock;
    return *clock;
}

}  // namespace kvern
