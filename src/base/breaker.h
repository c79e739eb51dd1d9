// SPDX-License-Identifier: Apache-2.0
// Breaker: after some failures in a row a store is left alone for a while, then one probe at a time decides.
//
// closed: work is allowed. After `failures_max` failures in a row it opens: nothing is allowed until the pause is over.
// Then it is half open: one caller is let through. Its success closes the breaker, its failure opens it again for twice
// the pause, up to `pause_max`, so that a store that has come back is used again within that time. A probe that never
// answers is taken for lost after the pause, and another one is sent.
//
// Belongs to one thread, or is guarded by its owner.
#pragma once

#include <algorithm>

#include "base/clock.h"
#include "kvern/limits.h"

namespace kvern {

class Breaker {
  public:
    explicit Breaker(const Clock& clock, unsigned failures_max = limits::breaker_failures,
                     Duration pause = limits::breaker_open, Duration pause_max = limits::breaker_open_max)
        : clock_(clock), failures_max_(failures_max), first_pause_(pause), pause_max_(pause_max) {}

    // True if work may be tried now; whoever gets true while open() holds the probe.
    bool allow() {
        if (!open()) return true;
        if (clock_.now() < wait_until_) return false;
        probing_ = true;
        wait_until_ = clock_.now() + pause_;
        return true;
    }
    bool open() const { return failures_ >= failures_max_; }
    void success() {
        failures_ = 0;
        probing_ = false;
    }
    // The probe said nothing about the store: the next caller may be one at once.
    void undecided() {
        if (probing_) wait_until_ = clock_.now();
        probing_ = false;
    }
    void failure() {
        if (!open()) {
            if (++failures_ >= failures_max_) pause(first_pause_);
        } else if (probing_) {  // else it is a late answer to something that began before: nothing new
            pause(std::min(2 * pause_, pause_max_));
        }
    }

  private:
    void pause(Duration pause) {
        probing_ = false;
        pause_ = pause;
        wait_until_ = clock_.now() + pause;
    }

    const Clock& clock_;
    const unsigned failures_max_;
    const Duration first_pause_, pause_max_;
    Duration pause_{};  // the present one, while open
    unsigned failures_ = 0;
    bool probing_ = false;
    TimePoint wait_until_{};
};

}  // namespace kvern
