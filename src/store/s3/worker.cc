// SPDX-License-Identifier: Apache-2.0
#include "store/s3/worker.h"

#include <algorithm>
#include <future>

#include "base/text.h"
#include "store/op_check.h"
#include "store/s3/reads.h"
#include "store/s3/writes.h"

namespace kvern {
namespace {

constexpr std::chrono::milliseconds idle_check{5};

bool is_transfer(OpKind kind) {
    return kind == OpKind::get || kind == OpKind::put;
}

}  // namespace

S3Worker::S3Worker(std::shared_ptr<S3Shared> shared, unsigned index)
    : shared_(std::move(shared)), loop_("kvern-s3-" + std::to_string(index)) {
    const auto made = std::make_shared<std::promise<void>>();
    loop_.post([this, made] {
        auto& common = *shared_;
        keys_ = std::make_unique<S3KeyRing>(loop_, common.keys, *common.seams.wall);
        for (std::size_t i = 0; i < common.options.places.size(); ++i) {
            Place place;
            place.endpoint = std::make_unique<S3Endpoint>(loop_, common.options, common.options.places[i], common.tls,
                                                          *keys_, *common.facts[i], common.regions, common.seams);
            endpoints_.push_back(place.endpoint.get());
            places_.push_back(std::move(place));
        }
        uploads_ = std::make_unique<S3Uploads>(
            common.open_uploads, [this](Job& job, Outcome&& outcome) { finish(job, std::move(outcome)); });
        made->set_value();
    });
    made->get_future().wait();
}

S3Worker::~S3Worker() {
    loop_.stop();
}

void S3Worker::submit(std::vector<Job>&& jobs) {
    if (jobs.empty()) return;
    bool first = false;
    {
        const std::lock_guard lock(inbox_mutex_);
        first = inbox_.empty();
        if (first) {
            inbox_ = std::move(jobs);
        } else {
            std::move(jobs.begin(), jobs.end(), std::back_inserter(inbox_));
        }
    }
    if (first) loop_.post([this] { take_inbox(); });
}

void S3Worker::take_inbox() {
    std::vector<Job> jobs;
    {
        const std::lock_guard lock(inbox_mutex_);
        jobs.swap(inbox_);
    }
    const auto now = loop_.now();
    std::vector<std::vector<Job>> stats(places_.size()), removes(places_.size());
    for (auto& job : jobs) sort(std::move(job), now, stats, removes);
    for (std::size_t i = 0; i < places_.size(); ++i) {
        auto& place = places_[i];
        group(place.looks, std::move(stats[i]), place.endpoint->answers_exists() ? limits::s3_exists_keys_max : 1, now);
        group(place.looks, std::move(removes[i]), limits::delete_objects_max, now);
    }
    if (closing_) cancel_waiting();
    for (auto& place : places_) pump(place);
}

void S3Worker::sort(Job&& job, TimePoint now, std::vector<std::vector<Job>>& stats,
                    std::vector<std::vector<Job>>& removes) {
    const auto kind = job.op.kind;
    if (kind == OpKind::append || kind == OpKind::commit || kind == OpKind::abort)
        return uploads_->take(std::move(job));
    const bool of_all = kind == OpKind::list || kind == OpKind::space;
    const auto index = of_all ? 0 : shared_->owner(job.op.key);
    auto& place = places_[index];
    if (kind == OpKind::begin) return uploads_->begin(*place.endpoint, std::move(job));
    if (kind == OpKind::stat && !job.op.with_metadata) {
        stats[index].push_back(std::move(job));
    } else if (kind == OpKind::remove && job.op.condition == Condition::any) {
        removes[index].push_back(std::move(job));
    } else {
        Work work{{}, now};
        work.jobs.push_back(std::move(job));
        (is_transfer(kind) ? place.transfers : place.looks).push_back(std::move(work));
    }
}

void S3Worker::group(std::deque<Work>& to, std::vector<Job>&& jobs, std::size_t most, TimePoint now) {
    for (std::size_t at = 0; at < jobs.size(); at += most) {
        Work work{{}, now};
        const auto begin = jobs.begin() + static_cast<std::ptrdiff_t>(at);
        const auto end = jobs.begin() + static_cast<std::ptrdiff_t>(std::min(at + most, jobs.size()));
        std::move(begin, end, std::back_inserter(work.jobs));
        to.push_back(std::move(work));
    }
}

void S3Worker::pump(Place& place) {
    if (place.pumping) return;  // the loop below goes on
    place.pumping = true;
    const auto all = shared_->options.connections;
    const auto kept_free = static_cast<unsigned>(all * limits::s3_look_share);
    while (place.running < all) {
        const bool transfer = place.looks.empty();
        if (transfer && (place.transfers.empty() || place.transfers_running >= all - kept_free)) break;
        auto& queue = transfer ? place.transfers : place.looks;
        auto work = std::move(queue.front());
        queue.pop_front();
        ++place.running;
        if (transfer) ++place.transfers_running;
        http::detach(run(place, std::move(work), transfer));
    }
    place.pumping = false;
}

http::Task<void> S3Worker::run(Place& place, Work work, bool transfer) {
    const auto waited = loop_.now() - work.since;
    if (waited > shared_->options.timeout) {
        const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(waited);
        for (auto& job : work.jobs) {
            finish(job, busy("waited " + format_duration(ms) + " for a connection to " + place.endpoint->place().url));
        }
    } else if (work.jobs.size() == 1) {
        co_await run_one(place, work.jobs.front());
    } else {
        co_await run_many(place, work.jobs);
    }
    --place.running;
    if (transfer) --place.transfers_running;
    pump(place);
}

http::Task<void> S3Worker::run_one(Place& place, Job& job) {
    auto& endpoint = *place.endpoint;
    Outcome outcome;
    switch (job.op.kind) {
        case OpKind::get:
            outcome = co_await s3_get(endpoint, job.op);
            break;
        case OpKind::put:
            outcome = co_await s3_put(endpoint, job.op);
            break;
        case OpKind::stat:
            outcome = co_await s3_stat(endpoint, job.op);
            break;
        case OpKind::remove:
            outcome = co_await s3_remove(endpoint, job.op);
            break;
        case OpKind::list: {
            const S3Owner owner = [this](std::string_view key) { return shared_->owner(key); };
            outcome = co_await s3_list(endpoints_, owner, job.op);
            break;
        }
        case OpKind::space:
            outcome = co_await s3_space(endpoints_);
            break;
        default:
            outcome = failed(ErrorCode::internal, "unknown operation");
    }
    finish(job, std::move(outcome));
}

http::Task<void> S3Worker::run_many(Place& place, std::vector<Job>& jobs) {
    std::vector<const Op*> ops;
    ops.reserve(jobs.size());
    for (const auto& job : jobs) ops.push_back(&job.op);
    std::vector<Outcome> outcomes;
    if (jobs.front().op.kind == OpKind::stat) {
        outcomes = co_await s3_stats(*place.endpoint, ops);
    } else {
        outcomes = co_await s3_removes(*place.endpoint, ops);
    }
    for (std::size_t i = 0; i < jobs.size(); ++i) finish(jobs[i], std::move(outcomes[i]));
}

// -------------------------------------------------------------------------------------------------------- completions

void S3Worker::finish(Job& job, Outcome&& outcome) {
    completions_.add(job, std::move(outcome));
    if (flushing_) return;
    flushing_ = true;
    loop_.post([this] { flush(); });  // after what else is ready in this round
}

void S3Worker::flush() {
    flushing_ = false;
    completions_.flush(shared_->delivery);
}

// ------------------------------------------------------------------------------------------------------------- the end

void S3Worker::cancel_waiting() {
    for (auto& place : places_) {
        for (auto* const queue : {&place.looks, &place.transfers}) {
            for (auto& work : std::exchange(*queue, {})) {
                for (auto& job : work.jobs) finish(job, cancelled_by_close());
            }
        }
    }
}

void S3Worker::close() {
    loop_.post([this] {
        closing_ = true;
        take_inbox();
        uploads_->close();
    });
}

void S3Worker::abort() {
    loop_.post([this] {
        keys_->abort();
        for (auto& place : places_) place.endpoint->abort();
    });
}

bool S3Worker::idle() const {
    if (!closing_ || flushing_ || !uploads_->idle() || keys_->busy()) return false;
    return std::all_of(places_.begin(), places_.end(), [](const auto& place) { return place.running == 0; });
}

bool S3Worker::wait_idle(std::chrono::steady_clock::time_point until) {
    for (;;) {
        const auto asked = std::make_shared<std::promise<bool>>();
        auto answer = asked->get_future();
        loop_.post([this, asked] { asked->set_value(idle()); });
        if (answer.wait_until(std::max(until, std::chrono::steady_clock::now() + idle_check)) !=
            std::future_status::ready) {
            return false;
        }
        if (answer.get()) return true;
        if (std::chrono::steady_clock::now() >= until) return false;
        std::this_thread::sleep_for(idle_check);
    }
}

}  // namespace kvern
