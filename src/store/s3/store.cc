// SPDX-License-Identifier: Apache-2.0
#include "store/s3/store.h"

#include <algorithm>
#include <shared_mutex>

#include "base/text.h"
#include "base/thread.h"
#include "kvern/limits.h"
#include "store/op_check.h"
#include "store/s3/worker.h"
#include "store/s3/writes.h"

namespace kvern {
namespace {

class S3Store final : public Store {
  public:
    explicit S3Store(std::shared_ptr<S3Shared> shared) : shared_(std::move(shared)) {
        for (unsigned i = 0; i < shared_->options.threads; ++i) {
            workers_.push_back(std::make_unique<S3Worker>(shared_, i));
        }
    }
    ~S3Store() override { S3Store::close(limits::close_wait); }

    void submit(std::span<Op> ops, CompletionQueue& queue) override;
    Capabilities capabilities() const override;
    std::string describe() const override;
    void attach(std::shared_ptr<Region> region) override;
    bool close(std::chrono::milliseconds wait) override;

  private:
    std::size_t worker_for(const Op& op, std::size_t turn);
    std::size_t key_bytes_max() const { return limits::s3_key_bytes_max - shared_->options.prefix.size(); }
    Result<void> check(const Op& op) const;
    bool wait_idle(std::chrono::steady_clock::time_point until);

    const std::shared_ptr<S3Shared> shared_;
    std::vector<std::unique_ptr<S3Worker>> workers_;
    std::atomic<std::size_t> turn_{0};
    std::atomic<std::uint64_t> next_upload_{1};

    std::shared_mutex mutex_;  // shared by submit, so that close() comes before or after a submit
    bool closed_ = false;
    std::mutex close_mutex_;
    bool ended_ = false;  // under close_mutex_: what close() has returned
    bool close_result_ = false;
};

Result<void> S3Store::check(const Op& op) const {
    if (auto checked = check_op(op); !checked) return checked;
    const bool has_key = op.kind == OpKind::get || op.kind == OpKind::put || op.kind == OpKind::stat ||
                         op.kind == OpKind::remove || op.kind == OpKind::begin;
    if (!has_key || op.key.size() <= key_bytes_max()) return {};
    return fail(ErrorCode::not_supported, "a key of " + std::to_string(op.key.size()) + " bytes: S3 allows " +
                                              std::to_string(limits::s3_key_bytes_max) +
                                              ", of which the prefix takes " +
                                              std::to_string(shared_->options.prefix.size()));
}

// Transfers by turn, one by one; looks of one submit together, since they may become one request; uploads where they
// began.
std::size_t S3Store::worker_for(const Op& op, std::size_t turn) {
    switch (op.kind) {
        case OpKind::get:
        case OpKind::put:
            return turn_.fetch_add(1, std::memory_order_relaxed) % workers_.size();
        case OpKind::begin:
        case OpKind::append:
        case OpKind::commit:
        case OpKind::abort:
            return op.upload % workers_.size();
        default:
            return turn % workers_.size();
    }
}

void S3Store::submit(std::span<Op> ops, CompletionQueue& queue) {
    std::vector<std::vector<Job>> jobs(workers_.size());
    const std::shared_lock lock(mutex_);
    const auto turn = turn_.fetch_add(1, std::memory_order_relaxed);
    shared_->delivery.enter(
        ops, queue, closed_, [this](const Op& op) { return check(op); },
        [&](Job&& job) {
            auto& op = job.op;
            if (op.kind == OpKind::begin) op.upload = next_upload_.fetch_add(1);
            jobs[worker_for(op, turn)].push_back(std::move(job));
        });
    for (std::size_t i = 0; i < workers_.size(); ++i) workers_[i]->submit(std::move(jobs[i]));
}

Capabilities S3Store::capabilities() const {
    const auto& facts = shared_->facts;
    return {.durable = true,
            .shared = true,
            .ranged = true,
            .conditional_put = std::none_of(facts.begin(), facts.end(),
                                            [](const auto& one) { return one->conditions.load() == Known::no; }),
            .cheap_stat = false,
            .key_bytes_max = key_bytes_max(),
            .metadata_bytes_max = s3_metadata_bytes_max()};
}

std::string S3Store::describe() const {
    const auto& options = shared_->options;
    std::string text = "s3: bucket '" + options.bucket + "'";
    if (!options.prefix.empty()) text += ", prefix '" + options.prefix + "'";
    text += options.places.size() > 1 ? " at each key's own of " : " at ";
    for (std::size_t i = 0; i < options.places.size(); ++i) text += (i > 0 ? ", " : "") + options.places[i].url;
    text += options.virtual_hosts ? " (as a host name)" : "";
    text += "; region " + options.region + "; credentials: " + shared_->keys.described;
    text += "; checksum " + (options.checksum ? std::string(http::to_string(*options.checksum)) : "none");
    const auto& facts = shared_->facts;
    const auto count = [&facts](Known known) {
        return std::count_if(facts.begin(), facts.end(),
                             [known](const auto& one) { return one->conditions.load() == known; });
    };
    text += "; conditional put: ";
    text += count(Known::no) > 0 ? "no, looked up before" : count(Known::unknown) > 0 ? "not known yet" : "yes";
    const bool kvern =
        std::any_of(facts.begin(), facts.end(), [](const auto& one) { return one->exists.load() == Known::yes; });
    if (kvern) text += "; many stats in one request";
    const char* provider = nullptr;
    for (const auto& one : facts) provider = provider == nullptr ? one->windows.load() : provider;
    text += provider != nullptr ? "; bytes straight into memory (" + std::string(provider) + ")"
                                : std::string("; bytes in bodies of HTTP");
    text += "; " + std::to_string(options.connections) + " connections" +
            (options.places.size() > 1 ? " to each" : "") + " of " + std::to_string(options.threads) +
            (options.threads == 1 ? " thread" : " threads each");
    return text;
}

void S3Store::attach(std::shared_ptr<Region> region) {
    if (region) shared_->regions.add(std::move(region));
}

bool S3Store::wait_idle(std::chrono::steady_clock::time_point until) {
    bool all = true;
    for (auto& worker : workers_) all = worker->wait_idle(until) && all;
    return all;
}

bool S3Store::close(std::chrono::milliseconds wait) {
    const std::lock_guard close_lock(close_mutex_);
    if (ended_) return close_result_;
    ended_ = true;
    const auto deadline = std::chrono::steady_clock::now() + wait;
    {
        const std::unique_lock lock(mutex_);
        closed_ = true;
    }
    for (auto& worker : workers_) worker->close();
    bool idle = wait_idle(deadline);
    if (!idle) {
        // Connections are ours to end: what was in flight ends as cancelled, but for transfers straight into memory
        // that a server may still write to.
        const auto last = std::chrono::steady_clock::now() + limits::s3_abort_grace;
        while (!idle && std::chrono::steady_clock::now() < last) {
            for (auto& worker : workers_) worker->abort();  // again: one may just have connected
            idle = wait_idle(std::min(last, std::chrono::steady_clock::now() + std::chrono::milliseconds(50)));
        }
    }
    shared_->delivery.end();
    close_result_ = idle;
    if (idle) {
        workers_.clear();
        shared_->regions.clear();
        return true;
    }
    // Something that can't be broken off, such as the resolver of names or such a transfer: it ends when it ends.
    start_thread("kvern-s3-end", [workers =
                                      std::make_shared<std::vector<std::unique_ptr<S3Worker>>>(std::move(workers_))] {
        for (auto& worker : *workers) {
            while (!worker->wait_idle(std::chrono::steady_clock::now() + std::chrono::seconds(1))) worker->abort();
        }
    }).detach();
    workers_.clear();
    return false;
}

}  // namespace

Result<std::unique_ptr<Store>> open_s3_store(const Uri& uri, const S3Seams& seams) {
    auto shared = S3Shared::make(uri, seams);
    if (!shared) return tl::unexpected(shared.error());
    return std::make_unique<S3Store>(std::move(*shared));
}

Result<std::unique_ptr<Store>> open_s3_store(const Uri& uri) {
    return open_s3_store(uri, S3Seams{});
}

}  // namespace kvern
