// SPDX-License-Identifier: Apache-2.0
// Breaker: after some failures in a row a store is left alone for a while, then one probe decides.
//
// Belongs to one thread, or is guarded by its owner.
#pragma once

#include "base/clock.h"
#include "kvern/limits.h"

namespace kvern {

class Breaker {
  public:
    explicit Breaker(const Clock& clock, unsigned failures_max = limits::breaker_failures,
                     Duration open_for = limits::breaker_open)
        : clock_(clock), failures_max_(failures_max), open_for_(open_for) {}

    // True if work may be tried now. Once the pause is over, one caller gets true (the probe) and the next
    // ones wait another pause or until the probe succeeded.
    bool allow() {
        if (failures_ < failures_max_) return true;
        if (clock_.now() < closed_until_) return false;
        closed_until_ = clock_.now() + open_for_;
        return true;
    }
    bool open() const { return failures_ >= failures_max_; }
    void success() { failures_ = 0; }
    void failure() {
        if (++failures_ >= failures_max_) closed_until_ = clock_.now() + open_for_;
    }

  private:
    const Clock& clock_;
    unsigned failures_max_;
    Duration open_for_;
    unsigned failures_ = 0;
    TimePoint closed_until_{};
};

}  // namespace kvern
