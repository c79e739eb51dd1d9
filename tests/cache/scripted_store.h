// SPDX-License-Identifier: Apache-2.0
// A Store whose answers a test controls: values in a map, answers that wait until they are told to come, other
// outcomes.
//
// Any thread. What is not held is answered inside submit().
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "kvern/store.h"

namespace kvern::testing {

inline constexpr std::chrono::seconds patience{30};  // of every wait in a test: only a failure ever needs it

using OpFilter = std::function<bool(const Op&)>;

inline bool any_op(const Op&) {
    return true;
}
inline OpFilter of_kind(OpKind kind) {
    return [kind](const Op& op) { return op.kind == kind; };
}

inline Outcome failed_outcome(ErrorCode code, std::string message, Status status = Status::failed) {
    Outcome outcome;
    outcome.status = status;
    outcome.error = {code, std::move(message)};
    return outcome;
}

class ScriptedStore final : public Store {
    template <class Body>
    auto with_lock(Body body) -> decltype(body()) {
        const std::lock_guard lock(mutex_);
        return body();
    }

  public:
    using Script = std::function<std::optional<Outcome>(const Op&)>;

    explicit ScriptedStore(bool cheap_stat = true) : cheap_stat_(cheap_stat) {}

    // Operations that match wait for release(). No filter: nothing is held.
    void hold(OpFilter filter) {
        with_lock([&] { held_kinds_ = std::move(filter); });
    }
    // What the script returns is the outcome instead of the store's own. It is asked when an operation is answered.
    void script(Script script) {
        with_lock([&] { script_ = std::move(script); });
    }

    // Waits until `count` held operations match.
    bool wait_held(std::size_t count, const OpFilter& filter = any_op) {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, patience, [&] { return count_held(filter) >= count; });
    }
    std::size_t held(const OpFilter& filter = any_op) {
        const std::lock_guard lock(mutex_);
        return count_held(filter);
    }
    // Answers the held operations that match, in the order of their arrival; returns how many.
    std::size_t release(const OpFilter& filter = any_op, const std::optional<Outcome>& outcome = {}) {
        const std::lock_guard lock(mutex_);
        std::size_t released = 0;
        for (auto it = held_.begin(); it != held_.end();) {
            if (!filter(it->op)) {
                ++it;
                continue;
            }
            it->queue->push({it->op.tag, outcome ? *outcome : answer(it->op)});
            it = held_.erase(it);
            ++released;
        }
        return released;
    }

    std::map<std::string, std::string> values() {
        return with_lock([&] { return values_; });
    }
    void set_value(const std::string& key, std::string value) {
        with_lock([&] {
            values_[key] = std::move(value);
            ++versions_[key];
        });
    }
    void erase_value(const std::string& key) {
        with_lock([&] { values_.erase(key); });
    }
    // How many operations came with each submit().
    std::vector<std::size_t> batches() {
        return with_lock([&] { return batches_; });
    }
    // Every operation so far, in order of arrival; buffers are not to be used.
    std::vector<Op> log() {
        return with_lock([&] { return log_; });
    }
    std::size_t count(OpKind kind) {
        const auto ops = log();
        return static_cast<std::size_t>(std::count_if(ops.begin(), ops.end(), of_kind(kind)));
    }

    void submit(std::span<Op> ops, CompletionQueue& queue) override {
        const std::lock_guard lock(mutex_);
        batches_.push_back(ops.size());
        for (Op& op : ops) {
            log_.push_back(op);
            if (closed_)
                queue.push({op.tag, failed_outcome(ErrorCode::cancelled, "the store is closed")});
            else if (held_kinds_ && held_kinds_(op))
                held_.push_back({std::move(op), &queue});
            else
                queue.push({op.tag, answer(op)});
        }
        changed_.notify_all();
    }
    Capabilities capabilities() const override {
        return {.durable = true, .shared = true, .ranged = true, .conditional_put = true, .cheap_stat = cheap_stat_};
    }
    std::string describe() const override { return "scripted"; }
    void attach(std::shared_ptr<Region> region) override { region_ = std::move(region); }
    bool close(std::chrono::milliseconds) override {
        release(any_op, failed_outcome(ErrorCode::cancelled, "the store is closed"));
        with_lock([&] { closed_ = true; });
        return true;
    }

  private:
    struct Held {
        Op op;
        CompletionQueue* queue;
    };
    std::size_t count_held(const OpFilter& filter) const {
        return static_cast<std::size_t>(
            std::count_if(held_.begin(), held_.end(), [&](const Held& held) { return filter(held.op); }));
    }
    Outcome answer(const Op& op) {
        if (script_)
            if (auto outcome = script_(op)) return *outcome;
        const auto found = values_.find(op.key);
        const bool exists = found != values_.end();
        Outcome outcome;
        outcome.status = Status::ok;
        if (exists) outcome.stat = {found->second.size(), 0, std::to_string(versions_[op.key]), {}};
        if (op.kind == OpKind::put) {
            if (exists && op.condition == Condition::absent) {
                outcome.status = Status::failed;
                outcome.error = {ErrorCode::precondition, "it exists"};
                return outcome;
            }
            std::string& value = values_[op.key];
            value.clear();
            for (const Buffer& buffer : op.buffers)
                value.append(reinterpret_cast<const char*>(buffer.data), buffer.size_bytes);
            outcome.stat = {value.size(), 0, std::to_string(++versions_[op.key]), {}};
            outcome.bytes = value.size();
        } else if (!exists) {
            outcome.status = Status::miss;
        } else if (op.kind == OpKind::get) {
            std::string_view rest = found->second;
            std::size_t room = 0;
            for (const Buffer& buffer : op.buffers) {
                const auto part = std::min(buffer.size_bytes, rest.size());
                std::memcpy(buffer.data, rest.data(), part);
                rest.remove_prefix(part);
                room += buffer.size_bytes;
            }
            outcome.bytes = found->second.size();
            if (outcome.bytes > room) {
                outcome.status = Status::failed;
                outcome.error = {ErrorCode::io, "more than the buffers hold"};
            }
        } else if (op.kind == OpKind::remove) {
            if (op.condition == Condition::etag && op.etag != outcome.stat.etag) {
                outcome.status = Status::failed;
                outcome.error = {ErrorCode::precondition, "another version"};
            } else {
                values_.erase(found);
            }
        }
        return outcome;
    }

    const bool cheap_stat_;
    std::mutex mutex_;
    std::condition_variable changed_;
    OpFilter held_kinds_;
    Script script_;
    std::vector<Held> held_;
    std::map<std::string, std::string> values_;
    std::map<std::string, std::uint64_t> versions_;
    std::vector<std::size_t> batches_;
    std::vector<Op> log_;
    bool closed_ = false;
    std::shared_ptr<Region> region_;
};

}  // namespace kvern::testing
