// SPDX-License-Identifier: Apache-2.0
// Coroutines of one loop that wait until something is over, and several that are waited for together.
//
// One loop's thread.
#pragma once

#include <coroutine>
#include <utility>
#include <vector>

#include "http/task.h"

namespace kvern::http {

class Waiters {
  public:
    struct Wait {
        Waiters& waiters;
        bool await_ready() const { return false; }
        void await_suspend(std::coroutine_handle<> waiter) { waiters.waiting_.push_back(waiter); }
        void await_resume() {}
    };
    // Suspends until the next wake_all(). Ask before whether there is anything to wait for.
    Wait wait() { return {*this}; }
    void wake_all() {
        for (const auto waiter : std::exchange(waiting_, {})) waiter.resume();
    }

  private:
    std::vector<std::coroutine_handle<>> waiting_;
};

// Runs tasks side by side. It must outlive them: wait for all of them before it goes.
class Together {
  public:
    void start(Task<void> task) {
        ++running_;
        detach(counted(*this, std::move(task)));
    }
    // Until at most `most` are still running.
    Task<void> at_most(unsigned most) {
        while (running_ > most) co_await waiters_.wait();
    }

  private:
    static Task<void> counted(Together& together, Task<void> task) {
        co_await std::move(task);
        --together.running_;
        together.waiters_.wake_all();
    }
    Waiters waiters_;
    unsigned running_ = 0;
};

}  // namespace kvern::http
