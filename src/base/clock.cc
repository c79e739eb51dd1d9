// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

namespace kvern {
namespace {

class SteadyClock final : public Clock {
  public:
    TimePoint now() const override { return std::chrono::steady_clock::now(); }
};

}  // namespace

const Clock& Clock::steady() {
    // Leaked on purpose: threads that outlive main() may still read it.
    static const SteadyClock* const clock = new SteadyClock;
    return *clock;
}

}  // namespace kvern
