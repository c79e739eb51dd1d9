// SPDX-License-Identifier: Apache-2.0
#include "store/fault_store.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <unordered_map>

#include "base/log.h"
#include "base/thread.h"
#include "kvern/limits.h"
#include "store/delivery.h"
#include "store/fault_rules.h"
#include "store/op_check.h"

namespace kvern {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;

Outcome injected_failure(std::string message) {
    return failed(ErrorCode::io, "injected fault: " + std::move(message));
}

// Calls `use` with each part of the buffers that lies within the first `size_bytes` bytes.
template <class Use>
void first_bytes(const std::vector<Buffer>& buffers, std::uint64_t size_bytes, Use use) {
    for (const auto& buffer : buffers) {
        const auto part = static_cast<std::size_t>(std::min<std::uint64_t>(size_bytes, buffer.size_bytes));
        if (part == 0) continue;
        use(Buffer{buffer.data, part});
        size_bytes -= part;
    }
}

void flip_bit(const std::vector<Buffer>& buffers, std::uint64_t size_bytes, std::uint64_t random) {
    auto at = random / 8 % size_bytes;
    first_bytes(buffers, size_bytes, [&](const Buffer& part) {
        if (at < part.size_bytes) part.data[at] ^= static_cast<std::byte>(1U << random % 8);
        at -= part.size_bytes;  // wraps once it is done
    });
}

class FaultStore final : public Store {
  public:
    FaultStore(std::unique_ptr<Store> inner, std::unique_ptr<FaultRules> rules)
        : inner_(std::move(inner)),
          rules_(std::move(rules)),
          generation_(rules_->generation()),
          thread_(start_thread("kvern-fault", [this] { work(); })) {}
    ~FaultStore() override { FaultStore::close(limits::close_wait); }

    void submit(std::span<Op> ops, CompletionQueue& queue) override;
    Capabilities capabilities() const override { return inner_->capabilities(); }
    std::string describe() const override { return "fault over " + inner_->describe() + "; " + rules_->describe(); }
    void attach(std::shared_ptr<Region> region) override { inner_->attach(std::move(region)); }
    bool close(std::chrono::milliseconds wait) override;

  private:
    // An operation in the inner store whose answer is changed or held back.
    struct Pending {
        std::uint64_t tag = 0;
        CompletionQueue* queue = nullptr;
        OpKind kind = OpKind::get;
        std::vector<Buffer> buffers;  // the caller's
        Injection injection;
        std::vector<std::byte> copy;  // what the inner store reads or writes instead of them, if anything
        SteadyTime started;
    };
    // Something that is due later: an operation, or the answer to one.
    struct Held {
        Job job;
        Injection injection;
        std::optional<Outcome> answer;
    };
    struct Sorted {
        std::vector<Op> passed;
        std::vector<Completion> answered;
        std::vector<Op> own;
        std::vector<std::pair<SteadyTime, Held>> held;
    };

    void inject(Op&& op, const Injection& injection, CompletionQueue& queue, Sorted& sorted);
    Op changed(Op&& op, const Injection& injection, CompletionQueue& queue);
    void hold(std::vector<std::pair<SteadyTime, Held>>&& held);
    void end_old_stalls();
    void wake() { own_queue_.push(Completion{}); }  // tag 0

    // The thread.
    void work();
    std::chrono::milliseconds until_next();
    bool endless_stalls();
    void take(Completion&& completion);
    void begin_due();
    void begin(Held&& held);
    void spoil(Pending& pending, Outcome& outcome);
    void count(Fault fault) { rules_->count(fault); }

    const std::unique_ptr<Store> inner_;
    const std::unique_ptr<FaultRules> rules_;
    CompletionQueue own_queue_;

    std::shared_mutex submit_mutex_;  // shared by submit, so that close() comes before or after a submit
    bool closed_ = false;             // under submit_mutex_
    std::mutex close_mutex_;
    bool ended_ = false, close_result_ = false;  // under close_mutex_

    std::mutex mutex_;  // guards all below
    std::unordered_map<std::uint64_t, Pending> pending_;
    std::multimap<SteadyTime, Held> held_;
    std::uint64_t next_tag_ = 1;
    std::uint64_t generation_;
    bool closing_ = false;  // nothing is held back any more
    bool ending_ = false;
    std::thread thread_;  // last: it uses all of the above
};

void FaultStore::submit(std::span<Op> ops, CompletionQueue& queue) {
    const std::shared_lock lock(submit_mutex_);
    if (closed_) return inner_->submit(ops, queue);
    std::vector<std::optional<Injection>> injections;
    injections.reserve(ops.size());
    bool any = false;
    for (const auto& op : ops) any |= injections.emplace_back(rules_->decide(op)).has_value();
    end_old_stalls();
    if (!any) return inner_->submit(ops, queue);
    Sorted sorted;
    for (std::size_t i = 0; i < ops.size(); ++i) {
        if (injections[i]) {
            inject(std::move(ops[i]), *injections[i], queue, sorted);
        } else {
            sorted.passed.push_back(std::move(ops[i]));
        }
    }
    queue.push(std::move(sorted.answered));
    if (!sorted.passed.empty()) inner_->submit(sorted.passed, queue);
    if (!sorted.own.empty()) inner_->submit(sorted.own, own_queue_);
    if (!sorted.held.empty()) hold(std::move(sorted.held));  // last: what is held begins after what is not
}

void FaultStore::inject(Op&& op, const Injection& injection, CompletionQueue& queue, Sorted& sorted) {
    const auto answer = [&](Outcome outcome) {
        count(injection.fault);
        sorted.answered.push_back({op.tag, std::move(outcome)});
    };
    switch (injection.fault) {
        case Fault::error:
            return answer(injected_failure("error"));
        case Fault::busy:
            return answer(busy("injected fault: busy"));
        case Fault::lost: {
            Outcome outcome;
            outcome.status = Status::ok;
            if (op.kind == OpKind::put) {
                outcome.bytes = outcome.stat.size_bytes = total_bytes(op.buffers);
                outcome.stat.etag = "lost";
            }
            return answer(std::move(outcome));
        }
        case Fault::stall:
        case Fault::late: {
            const auto due = injection.wait ? std::chrono::steady_clock::now() + *injection.wait : SteadyTime::max();
            sorted.held.emplace_back(due, Held{Job{std::move(op), &queue}, injection, {}});
            return;
        }
        case Fault::cut:
            if (op.kind == OpKind::put)
                return answer(injected_failure("a part of the bytes was written, then no more"));
            break;
        default:
            break;
    }
    sorted.own.push_back(changed(std::move(op), injection, queue));
}

// Enters the operation and returns what the inner store is to do instead.
Op FaultStore::changed(Op&& op, const Injection& injection, CompletionQueue& queue) {
    Pending pending{op.tag, &queue, op.kind, op.buffers, injection, {}, std::chrono::steady_clock::now()};
    const auto size_bytes = total_bytes(op.buffers);
    const auto use_copy = [&] {
        pending.copy.resize(size_bytes);
        op.buffers = {{pending.copy.data(), pending.copy.size()}};
    };
    const bool is_put = op.kind == OpKind::put;
    if (injection.fault == Fault::gone) {
        Op stat;
        stat.kind = OpKind::stat;
        stat.key = std::move(op.key);
        op = std::move(stat);
    } else if (injection.fault == Fault::torn && is_put) {
        std::vector<Buffer> half;
        first_bytes(op.buffers, size_bytes / 2, [&](const Buffer& part) { half.push_back(part); });
        op.buffers = std::move(half);
    } else if (injection.fault == Fault::flip && is_put && size_bytes > 0) {
        use_copy();
        auto* to = pending.copy.data();
        first_bytes(pending.buffers, size_bytes, [&](const Buffer& part) {
            std::memcpy(to, part.data, part.size_bytes);
            to += part.size_bytes;
        });
        flip_bit(op.buffers, size_bytes, injection.random);
    } else if ((injection.fault == Fault::torn || injection.fault == Fault::cut) && !is_put) {
        use_copy();
    }
    const std::lock_guard lock(mutex_);
    op.tag = next_tag_++;
    pending_.emplace(op.tag, std::move(pending));
    return std::move(op);
}

void FaultStore::hold(std::vector<std::pair<SteadyTime, Held>>&& held) {
    for (auto& [due, one] : held) {
        std::unique_lock lock(mutex_);
        if (held_.size() < limits::queued_ops_max) {
            if (one.injection.fault == Fault::stall) count(Fault::stall);
            held_.emplace(due, std::move(one));
            continue;
        }
        lock.unlock();
        one.job.queue->push({one.job.op.tag, busy("too many operations are stalled by the fault rules")});
    }
    wake();
}

// Stalls without an end last as long as the rules that made them.
void FaultStore::end_old_stalls() {
    const auto generation = rules_->generation();
    {
        const std::lock_guard lock(mutex_);
        if (generation == generation_) return;
        generation_ = generation;
        while (!held_.empty() && std::prev(held_.end())->first == SteadyTime::max()) {
            auto node = held_.extract(std::prev(held_.end()));
            node.key() = std::chrono::steady_clock::now();
            held_.insert(std::move(node));
        }
    }
    wake();
}

void FaultStore::work() {
    for (bool ending = false; !ending;) {
        own_queue_.wait(until_next());
        for (auto& completion : own_queue_.drain()) take(std::move(completion));
        if (endless_stalls()) {  // their owner may be waiting for them, and submit nothing meanwhile
            rules_->refresh();
            end_old_stalls();
        }
        begin_due();
        const std::lock_guard lock(mutex_);
        ending = ending_;
    }
    for (auto& completion : own_queue_.drain()) take(std::move(completion));
}

bool FaultStore::endless_stalls() {
    const std::lock_guard lock(mutex_);
    return !held_.empty() && std::prev(held_.end())->first == SteadyTime::max();
}

std::chrono::milliseconds FaultStore::until_next() {
    using std::chrono::milliseconds;
    const std::lock_guard lock(mutex_);
    if (held_.empty()) return milliseconds(-1);
    auto due = held_.begin()->first;
    const auto now = std::chrono::steady_clock::now();
    if (std::prev(held_.end())->first == SteadyTime::max()) due = std::min(due, now + limits::fault_check);
    return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(due - now));
}

void FaultStore::take(Completion&& completion) {
    Pending pending;
    {
        const std::lock_guard lock(mutex_);
        auto node = pending_.extract(completion.tag);
        if (node.empty()) return;  // a wake
        pending = std::move(node.mapped());
    }
    auto& outcome = completion.outcome;
    if (outcome.status == Status::ok) spoil(pending, outcome);
    if (pending.injection.fault == Fault::drip && outcome.status == Status::ok) {
        const std::chrono::duration<double> needed(static_cast<double>(outcome.bytes) /
                                                   pending.injection.bytes_per_second);
        const auto due = pending.started + std::chrono::duration_cast<std::chrono::steady_clock::duration>(needed);
        const std::lock_guard lock(mutex_);
        if (!closing_) {
            Held held{Job{Op{}, pending.queue}, pending.injection, std::move(outcome)};
            held.job.op.tag = pending.tag;
            held_.emplace(due, std::move(held));
            return;
        }
    }
    pending.queue->push({pending.tag, std::move(outcome)});
}

// Makes the answer wrong.
void FaultStore::spoil(Pending& pending, Outcome& outcome) {
    const auto fault = pending.injection.fault;
    const auto size_bytes = outcome.bytes;
    const bool is_put = pending.kind == OpKind::put;
    if (fault == Fault::torn && is_put) {
        outcome.bytes = outcome.stat.size_bytes = total_bytes(pending.buffers);
    } else if (fault == Fault::torn || fault == Fault::cut) {
        const auto* from = pending.copy.data();
        first_bytes(pending.buffers, size_bytes / 2, [&](const Buffer& part) {
            std::memcpy(part.data, from, part.size_bytes);
            from += part.size_bytes;
        });
    } else if (fault == Fault::flip && !is_put) {
        if (size_bytes == 0) return;
        flip_bit(pending.buffers, size_bytes, pending.injection.random);
    } else if (fault == Fault::gone) {
        outcome = missed();
    }
    count(fault);
    if (fault != Fault::cut && fault != Fault::late) return;
    auto stat = std::move(outcome.stat);
    outcome = injected_failure(fault == Fault::cut ? std::to_string(size_bytes / 2) + " of " +
                                                         std::to_string(size_bytes) + " bytes came"
                                                   : "the bytes came late");
    outcome.stat = std::move(stat);
}

void FaultStore::begin_due() {
    const auto now = std::chrono::steady_clock::now();
    for (;;) {
        Held held;
        {
            const std::lock_guard lock(mutex_);
            if (held_.empty() || held_.begin()->first > now) return;
            held = std::move(held_.extract(held_.begin()).mapped());
        }
        begin(std::move(held));
    }
}

void FaultStore::begin(Held&& held) {
    if (held.answer) {
        held.job.queue->push({held.job.op.tag, std::move(*held.answer)});
    } else if (held.injection.fault == Fault::late) {
        auto op = changed(std::move(held.job.op), held.injection, *held.job.queue);
        inner_->submit({&op, 1}, own_queue_);
    } else {
        inner_->submit({&held.job.op, 1}, *held.job.queue);
    }
}

bool FaultStore::close(std::chrono::milliseconds wait) {
    const std::lock_guard close_lock(close_mutex_);
    if (ended_) return close_result_;
    ended_ = true;
    {
        const std::unique_lock lock(submit_mutex_);
        closed_ = true;
    }
    std::multimap<SteadyTime, Held> held;
    {
        const std::lock_guard lock(mutex_);
        closing_ = true;
        held.swap(held_);
    }
    for (auto& [due, one] : held)
        one.job.queue->push({one.job.op.tag, one.answer ? std::move(*one.answer) : cancelled_by_close()});
    close_result_ = inner_->close(wait);
    {
        const std::lock_guard lock(mutex_);
        ending_ = true;
    }
    wake();
    thread_.join();
    if (!pending_.empty()) {  // the inner store may still read or write their copies
        static auto* const mutex = new std::mutex;
        static auto* const kept = new std::vector<std::unordered_map<std::uint64_t, Pending>>;
        const std::lock_guard lock(*mutex);
        kept->push_back(std::move(pending_));
    }
    log(LogLevel::warning, "fault", "closed: " + rules_->describe());
    return close_result_;
}

}  // namespace

Result<std::unique_ptr<Store>> open_fault_store(const Uri& uri) {
    const auto mark = uri.text.find('!');
    if (mark == std::string::npos) {
        return fail(ErrorCode::invalid_argument,
                    "store '" + uri.text + "': name the store behind it: fault:/run/faults.json!file:///mnt/kv");
    }
    const auto control = Uri::parse(std::string_view(uri.text).substr(0, mark));
    if (!control) return tl::unexpected(control.error());
    if (!control->host.empty() || !control->path.starts_with('/') || !control->params.empty()) {
        return fail(ErrorCode::invalid_argument,
                    "store '" + uri.text + "': the path of the control file must be absolute: /run/faults.json");
    }
    auto inner = open_store(std::string_view(uri.text).substr(mark + 1));
    if (!inner) return tl::unexpected(inner.error());
    auto rules = std::make_unique<FaultRules>(control->path);
    if (auto opened = rules->open(); !opened) return tl::unexpected(opened.error());
    return std::make_unique<FaultStore>(std::move(*inner), std::move(rules));
}

}  // namespace kvern
