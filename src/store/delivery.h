// SPDX-License-Identifier: Apache-2.0
// Delivery: counts the operations inside an engine, and is the one gate through which their completions leave.
//
// Any thread. After end() nothing is pushed to a caller's queue any more, whatever threads are still stuck in the
// kernel; completions that come later are dropped. Knows nothing about files.
#pragma once

#include <atomic>
#include <cstddef>
#include <shared_mutex>
#include <utility>
#include <vector>

#include "kvern/store.h"

namespace kvern {

// An operation with the queue that waits for it.
struct Job {
    Op op;
    CompletionQueue* queue = nullptr;
};

class Delivery {
  public:
    explicit Delivery(std::size_t jobs_max) : jobs_max_(jobs_max) {}

    // How many of `wanted` further jobs may enter now. Each must come out by finish() once.
    std::size_t admit(std::size_t wanted);
    void leave(std::size_t jobs);  // entered, but there is nothing to deliver
    void finish(CompletionQueue& queue, std::vector<Completion>&& batch);
    void finish(Job& job, Outcome&& outcome);
    void cancel(std::vector<Job>& jobs);
    // Waits for pushes in progress; none follow.
    void end();

  private:
    const std::size_t jobs_max_;
    std::atomic<std::size_t> jobs_{0};
    std::shared_mutex mutex_;
    bool ended_ = false;  // under mutex_
};

// Completions of one round of work, kept together by queue so that each queue is locked once. One thread.
class CompletionBatch {
  public:
    void add(Job& job, Outcome&& outcome);
    void flush(Delivery& delivery);

  private:
    std::vector<std::pair<CompletionQueue*, std::vector<Completion>>> queues_;
};

// For what close() found waiting.
Outcome cancelled_by_close();

}  // namespace kvern
