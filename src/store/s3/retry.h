// SPDX-License-Identifier: Apache-2.0
// When another attempt is made: never more retries than a share of all requests, and never two clients in step.
//
// One thread, or guarded by its owner. Waits for nothing itself.
#pragma once

#include <algorithm>
#include <random>

#include "base/clock.h"
#include "kvern/limits.h"

namespace kvern {

// A store of tokens: each request adds a share of one, each retry takes one. A server in trouble thus gets at most that
// share of traffic on top, instead of four times as much.
class RetryBudget {
  public:
    void request() { tokens_ = std::min(tokens_ + limits::s3_retry_share, limits::s3_retries_saved_max); }
    bool retry() {
        if (tokens_ < 1) return false;
        tokens_ -= 1;
        return true;
    }

  private:
    double tokens_ = limits::s3_retries_saved_max;
};

// Before attempt `attempt` + 1, the first being 1: anything up to base * 2^(attempt-1), at most the cap.
class Backoff {
  public:
    explicit Backoff(std::uint64_t seed) : random_(seed) {}
    Duration after(unsigned attempt) {
        const auto most =
            std::min<Duration>(limits::s3_backoff * (1LL << std::min(attempt - 1, 20U)), limits::s3_backoff_max);
        return Duration(std::uniform_int_distribution<Duration::rep>(0, most.count())(random_));
    }
    std::uint64_t number() { return random_(); }

  private:
    std::mt19937_64 random_;
};

}  // namespace kvern
