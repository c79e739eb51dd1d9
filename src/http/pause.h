// SPDX-License-Identifier: Apache-2.0
// Pause: waiting that somebody else on the loop can end. One coroutine waits at a time; loop's thread.
#pragma once

#include "http/loop.h"

namespace kvern::http {

class Pause final : private Watched {
  public:
    explicit Pause(Loop& loop) : Watched(loop), loop_(loop) {}
    Task<void> wait(Duration duration) {
        if (ended_) co_return;
        limit(loop_.now() + duration);
        co_await over_.wait();
        no_limit();
    }
    // Whoever waits goes on, and nobody waits again.
    void end() {
        ended_ = true;
        over_.set();
    }
    Loop& loop() { return loop_; }

  private:
    void overdue() override {
        loop_.post([this] { over_.set(); });
    }
    Loop& loop_;
    Signal over_;
    bool ended_ = false;
};

}  // namespace kvern::http
