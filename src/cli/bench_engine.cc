// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_engine.h"

#include <sys/resource.h>

#include <algorithm>

#include "cli/interrupt.h"
#include "kvern/limits.h"

namespace kvern::cli {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;

double cpu_now() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& time) {
        return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double percentile(std::vector<double>& values, double part) {
    if (values.empty()) return 0;
    const auto rank = static_cast<std::size_t>(part * static_cast<double>(values.size() - 1));
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(rank), values.end());
    return values[rank];
}

// One job. Slot i of the memory belongs to the operation with tag i while that is in flight.
class Runner {
  public:
    Runner(Store& store, const StoreJob& job) : store_(store), job_(job), started_(job.depth) {
        latencies_us_.reserve(job.keys.size());
    }

    StoreResult run() {
        const double cpu_start = cpu_now();
        const SteadyTime start = std::chrono::steady_clock::now();
        end_ = start + job_.bound;
        for (unsigned slot = 0; slot < job_.depth; ++slot) free_.push_back(slot);
        submit(start);
        while (in_flight_ > 0) {
            queue_.wait(std::chrono::milliseconds(-1));
            const auto completions = queue_.drain();
            const SteadyTime now = std::chrono::steady_clock::now();
            for (const Completion& completion : completions) take(completion, now);
            if (result_.error.empty() && now < end_ && !interrupted()) submit(now);
        }
        result_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        result_.cpu_seconds = cpu_now() - cpu_start;
        result_.p50_us = percentile(latencies_us_, 0.5);
        result_.p99_us = percentile(latencies_us_, 0.99);
        return std::move(result_);
    }

  private:
    void submit(SteadyTime now) {
        ops_.clear();
        while (!free_.empty() && next_ < job_.keys.size()) {
            const std::size_t slot = free_.back();
            free_.pop_back();
            Op& op = ops_.emplace_back();
            op.kind = job_.kind;
            op.tag = slot;
            op.key = job_.keys[next_++];
            if (job_.kind != OpKind::remove) op.buffers = {{job_.memory + slot * job_.size_bytes, job_.size_bytes}};
            if (job_.kind == OpKind::put) op.condition = Condition::absent;
            if (job_.kind == OpKind::get) op.length = job_.size_bytes;
            started_[slot] = now;
        }
        if (ops_.empty()) return;
        in_flight_ += ops_.size();
        store_.submit(ops_, queue_);
    }

    void take(const Completion& completion, SteadyTime now) {
        --in_flight_;
        free_.push_back(completion.tag);
        const Outcome& outcome = completion.outcome;
        if (outcome.status == Status::ok) {
            result_.bytes += job_.kind == OpKind::remove ? 0 : job_.size_bytes;
            ++result_.operations;
            latencies_us_.push_back(std::chrono::duration<double, std::micro>(now - started_[completion.tag]).count());
        } else if (job_.kind != OpKind::remove || outcome.status != Status::miss) {
            Op op;
            op.kind = job_.kind;
            op.key = "benchmark object";
            result_.error = explain(op, outcome);
        }
    }

    Store& store_;
    const StoreJob& job_;
    CompletionQueue queue_;
    std::vector<SteadyTime> started_;
    std::vector<std::size_t> free_;
    std::vector<Op> ops_;
    std::vector<double> latencies_us_;
    SteadyTime end_;
    std::size_t next_ = 0;
    std::size_t in_flight_ = 0;
    StoreResult result_;
};

}  // namespace

StoreResult run_job(Store& store, const StoreJob& job) {
    return Runner(store, job).run();
}

std::string remove_all(Store& store, const std::string& prefix) {
    // Not by run_job(): after an interrupt that would stop at once, and this is what has to happen then.
    Op list;
    list.kind = OpKind::list;
    list.key = prefix;
    list.limit = limits::list_entries_max;
    for (;;) {
        const Outcome page = kvern::run(store, list);
        if (page.status != Status::ok) return explain(list, page);
        for (const Entry& entry : page.entries) {
            Op remove;
            remove.kind = OpKind::remove;
            remove.key = entry.key;
            const Outcome removed = kvern::run(store, remove);
            if (removed.status != Status::ok && removed.status != Status::miss) return explain(remove, removed);
        }
        if (!page.more || page.entries.empty()) return "";
        list.after = page.entries.back().key;
    }
}

}  // namespace kvern::cli
