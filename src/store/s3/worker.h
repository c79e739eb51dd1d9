// SPDX-License-Identifier: Apache-2.0
// S3Worker: one loop of an s3: store, its endpoints, and the operations that wait for one of their connections.
//
// submit() and the ends from any thread; all else on the loop. Gets and puts leave a share of the connections free, so
// that a look never waits for a large transfer.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "store/s3/shared.h"
#include "store/s3/uploads.h"

namespace kvern {

class S3Worker {
  public:
    S3Worker(std::shared_ptr<S3Shared> shared, unsigned index);
    ~S3Worker();  // REQUIRES: idle
    S3Worker(const S3Worker&) = delete;
    S3Worker& operator=(const S3Worker&) = delete;

    // Jobs were admitted by the delivery. Wakes the loop once.
    void submit(std::vector<Job>&& jobs);
    // Cancels what waits; what is in flight goes on.
    void close();
    // Breaks off what is in flight: it ends as cancelled, soon.
    void abort();
    // Whether everything has ended, and all completions are out, by `until`. REQUIRES: close() was called.
    bool wait_idle(std::chrono::steady_clock::time_point until);

  private:
    // Jobs that one coroutine does: one job, or several stats or removes.
    struct Work {
        std::vector<Job> jobs;
        TimePoint since;
    };
    struct Place {
        std::unique_ptr<S3Endpoint> endpoint;
        std::deque<Work> looks, transfers;
        unsigned running = 0, transfers_running = 0;
        bool pumping = false;
    };

    void take_inbox();
    void sort(Job&& job, TimePoint now, std::vector<std::vector<Job>>& stats, std::vector<std::vector<Job>>& removes);
    void group(std::deque<Work>& to, std::vector<Job>&& jobs, std::size_t most, TimePoint now);
    void pump(Place& place);
    http::Task<void> run(Place& place, Work work, bool transfer);
    http::Task<void> run_one(Place& place, Job& job);
    http::Task<void> run_many(Place& place, std::vector<Job>& jobs);
    void finish(Job& job, Outcome&& outcome);
    void flush();
    void cancel_waiting();
    bool idle() const;

    const std::shared_ptr<S3Shared> shared_;
    http::Loop loop_;
    std::mutex inbox_mutex_;
    std::vector<Job> inbox_;  // under inbox_mutex_
    // The loop's from here on.
    std::unique_ptr<S3KeyRing> keys_;
    std::vector<Place> places_;
    std::vector<S3Endpoint*> endpoints_;
    std::unique_ptr<S3Uploads> uploads_;
    CompletionBatch completions_;
    bool flushing_ = false;
    bool closing_ = false;
};

}  // namespace kvern
