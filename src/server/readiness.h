// SPDX-License-Identifier: Apache-2.0
// Readiness: whether the store answers, for whoever watches the server.
//
// One loop's thread, but for asking(). One question at a time goes to the store, however many ask: a store that hangs
// holds one operation, and everybody is told so in time.
#pragma once

#include <atomic>
#include <string>

#include "http/loop.h"
#include "http/waiters.h"
#include "server/store_port.h"

namespace kvern::server {

class Readiness final : private http::Watched {
  public:
    Readiness(http::Loop& loop, StorePort& port) : Watched(loop), loop_(loop), port_(port) {}

    // Empty, or why the store is not ready: its own words, or that it said nothing within limits::server_ready_wait.
    http::Task<std::string> trouble();
    bool asking() const { return asking_; }  // the store has not answered yet: this must outlive its answer

  private:
    http::Task<void> ask();
    void overdue() override;

    http::Loop& loop_;
    StorePort& port_;
    std::atomic<bool> asking_{false};
    TimePoint asked_{};
    Outcome outcome_;  // the latest
    http::Waiters waiters_;
};

}  // namespace kvern::server
