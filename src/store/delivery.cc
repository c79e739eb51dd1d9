// SPDX-License-Identifier: Apache-2.0
#include "store/delivery.h"

#include <algorithm>
#include <mutex>

#include "store/op_check.h"

namespace kvern {

std::size_t Delivery::admit(std::size_t wanted) {
    auto now = jobs_.load(std::memory_order_relaxed);
    for (;;) {
        const auto granted = std::min(wanted, jobs_max_ - std::min(now, jobs_max_));
        if (granted == 0) return 0;
        if (jobs_.compare_exchange_weak(now, now + granted, std::memory_order_relaxed)) return granted;
    }
}

void Delivery::leave(std::size_t jobs) {
    jobs_.fetch_sub(jobs, std::memory_order_relaxed);
}

void Delivery::finish(CompletionQueue& queue, std::vector<Completion>&& batch) {
    jobs_.fetch_sub(batch.size(), std::memory_order_relaxed);  // before the push: its receiver may submit again at once
    const std::shared_lock lock(mutex_);
    if (!ended_) queue.push(std::move(batch));
}

void Delivery::finish(Job& job, Outcome&& outcome) {
    jobs_.fetch_sub(1, std::memory_order_relaxed);
    const std::shared_lock lock(mutex_);
    if (!ended_) job.queue->push(Completion{job.op.tag, std::move(outcome)});
}

void Delivery::cancel(std::vector<Job>& jobs) {
    CompletionBatch batch;
    for (auto& job : jobs) batch.add(job, cancelled_by_close());
    batch.flush(*this);
}

void Delivery::end() {
    const std::unique_lock lock(mutex_);
    ended_ = true;
}

void CompletionBatch::add(Job& job, Outcome&& outcome) {
    auto* const queue = job.queue;
    auto entry = std::find_if(queues_.begin(), queues_.end(), [&](const auto& one) { return one.first == queue; });
    if (entry == queues_.end()) entry = queues_.emplace(queues_.end(), queue, std::vector<Completion>());
    entry->second.push_back(Completion{job.op.tag, std::move(outcome)});
}

void CompletionBatch::flush(Delivery& delivery) {
    for (auto& [queue, completions] : queues_) delivery.finish(*queue, std::move(completions));
    queues_.clear();
}

Outcome cancelled_by_close() {
    return failed(ErrorCode::cancelled, "the store was closed before this was started");
}

}  // namespace kvern
