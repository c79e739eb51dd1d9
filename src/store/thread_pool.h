// SPDX-License-Identifier: Apache-2.0
// ThreadPool: threads for blocking system calls, with lanes, that can be left behind when the kernel hangs.
//
// Any thread may post. Threads start when there is work that no idle one takes. Lane `look` has threads
// of its own, so that a lookup never waits for writes; `read` goes before `write`. Order within a lane is first in,
// first out. Tasks keep alive what they need: a thread that never comes back from a system call is detached.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

namespace kvern {

class Task {
  public:
    virtual ~Task() = default;
    virtual void run() = 0;
    virtual void cancel() = 0;  // instead of run(): the pool was stopped first
};

enum class Lane : std::uint8_t { look, read, write };

class ThreadPool {
  public:
    // At most `threads` run reads and writes; `look_threads` more run looks only.
    ThreadPool(unsigned threads, unsigned look_threads);
    ~ThreadPool();  // REQUIRES: stop() and join_until() were called
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    // After stop() the tasks are cancelled.
    void post(Lane lane, std::vector<std::unique_ptr<Task>>&& tasks);
    void post(Lane lane, std::unique_ptr<Task> task);
    // Cancels what waits. `last`, if any, still runs.
    void stop(std::unique_ptr<Task> last);
    // True: all threads have ended. False: some were detached.
    bool join_until(std::chrono::steady_clock::time_point deadline);

  private:
    struct State;
    std::shared_ptr<State> state_;
};

}  // namespace kvern
