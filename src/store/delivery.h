// SPDX-License-Identifier: Apache-2.0
// Delivery: counts the operations inside an engine, and is the one gate through which their completions leave.
//
// Any thread. After end() nothing is pushed to a caller's queue any more, whatever threads are still stuck in the
// kernel; completions that come later are dropped. Knows nothing about files.
#pragma once

#include <atomic>
#include <cstddef>
#include <shared_mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kvern/store.h"
#include "store/op_check.h"

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
    // What one submit brings: `take` is called with each operation that may enter, as a job; the others are refused at
    // once, because of `closed`, of what `check` says (a Result<void>), or because the queue is full.
    template <class Check, class Take>
    void enter(std::span<Op> ops, CompletionQueue& queue, bool closed, Check check, Take take);
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

template <class Check, class Take>
void Delivery::enter(std::span<Op> ops, CompletionQueue& queue, bool closed, Check check, Take take) {
    std::vector<Completion> refused;
    auto room = closed ? 0 : admit(ops.size());
    for (auto& op : ops) {
        if (closed) {
            refused.push_back({op.tag, failed(ErrorCode::unavailable, "the store is closed")});
        } else if (auto checked = check(op); !checked) {
            refused.push_back({op.tag, failed(checked.error())});
        } else if (room == 0) {
            refused.push_back(
                {op.tag, busy("the queue of this store is full (" + std::to_string(jobs_max_) + " operations)")});
        } else {
            --room;
            take(Job{std::move(op), &queue});
        }
    }
    leave(room);
    queue.push(std::move(refused));
}

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
