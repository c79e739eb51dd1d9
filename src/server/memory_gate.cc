// SPDX-License-Identifier: Apache-2.0
#include "server/memory_gate.h"

#include <algorithm>

namespace kvern::server {

struct MemoryGate::Waiter {
    http::Loop& loop;
    const std::size_t size_bytes;
    std::coroutine_handle<> handle;
    std::optional<Lease> lease;
    bool over = false;  // under the gate's mutex: served, or given up
};

namespace {

// The waiting of one coroutine; the limit is the loop's to watch.
template <class Waiter>
struct Wait final : http::Watched {
    Wait(http::Loop& loop, std::shared_ptr<Waiter> one, TimePoint until, std::function<bool()> abandon)
        : Watched(loop), waiter(std::move(one)), give_up(std::move(abandon)) {
        limit(until);
    }
    void overdue() override {
        if (give_up()) waiter->loop.post([one = waiter] { one->handle.resume(); });
    }
    bool await_ready() const { return false; }
    // The waiter is in line already: it may have been served, but its wake-up is posted to this very thread.
    void await_suspend(std::coroutine_handle<> handle) { waiter->handle = handle; }
    void await_resume() {}

    std::shared_ptr<Waiter> waiter;
    std::function<bool()> give_up;
};

}  // namespace

std::optional<MemoryGate::Pass> MemoryGate::try_enter(std::size_t size_bytes) {
    if (waiting_count_ > 0) return std::nullopt;
    auto lease = region_->try_lease(size_bytes);
    if (!lease) return std::nullopt;
    return Pass(*this, std::move(*lease));
}

http::Task<std::optional<MemoryGate::Pass>> MemoryGate::enter(http::Loop& loop, std::size_t size_bytes,
                                                              Duration limit) {
    if (auto pass = try_enter(size_bytes)) co_return std::move(pass);
    auto waiter = std::make_shared<Waiter>(Waiter{loop, size_bytes, nullptr, std::nullopt});
    Wait<Waiter> wait(loop, waiter, loop.now() + limit, [this, waiter] {
        const std::lock_guard lock(mutex_);
        if (waiter->over) return false;
        waiter->over = true;
        std::erase(waiting_, waiter);
        waiting_count_ = waiting_.size();
        return true;
    });
    {
        const std::lock_guard lock(mutex_);
        waiting_.push_back(waiter);
        waiting_count_ = waiting_.size();
    }
    returned();  // what was given back between the two looks must not be missed
    co_await wait;
    if (!waiter->lease) co_return std::nullopt;
    co_return Pass(*this, std::move(*waiter->lease));
}

void MemoryGate::returned() {
    if (waiting_count_ == 0) return;
    const std::lock_guard lock(mutex_);
    while (!waiting_.empty()) {
        auto lease = region_->try_lease(waiting_.front()->size_bytes);
        if (!lease) break;
        auto one = std::move(waiting_.front());
        waiting_.pop_front();
        one->over = true;
        one->lease = std::move(lease);
        one->loop.post([one] { one->handle.resume(); });
    }
    waiting_count_ = waiting_.size();
}

}  // namespace kvern::server
