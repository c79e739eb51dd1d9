// SPDX-License-Identifier: Apache-2.0
#include "server/store_port.h"

#include "store/op_check.h"

namespace kvern::server {

StorePort::StorePort(http::Loop& loop, Store& store, Metrics& metrics)
    : loop_(loop), store_(store), immediate_(store.capabilities().immediate), metrics_(metrics) {
    loop_.watch(queue_.event_fd(), [this] { collect(); });
}

StorePort::Asked StorePort::ask_all(std::vector<Op> ops) {
    Asked asked;
    auto& state = *asked.state_;
    state.outcomes.resize(ops.size());
    state.missing = ops.size();
    for (std::size_t i = 0; i < ops.size(); ++i) {
        if (free_slots_.empty()) {
            free_slots_.push_back(slots_.size());
            slots_.emplace_back();
        }
        const auto slot = free_slots_.back();
        free_slots_.pop_back();
        const bool any_size = ops[i].kind == OpKind::get && ops[i].length == whole_value;
        slots_[slot] = {&state, i, any_size ? total_bytes(ops[i].buffers) : ~std::uint64_t{0}};
        ops[i].tag = slot;
    }
    if (ops.empty()) return asked;
    if (immediate_) queue_.hush();
    store_.submit(ops, queue_);
    if (immediate_) collect();  // it has answered already
    return asked;
}

StorePort::AskedOne StorePort::ask(Op op) {
    std::vector<Op> ops;
    ops.push_back(std::move(op));
    return AskedOne(ask_all(std::move(ops)));
}

void StorePort::collect() {
    std::vector<std::coroutine_handle<>> woken;
    for (auto& completion : queue_.drain()) {
        const auto [waiting, index, room] = slots_[completion.tag];
        free_slots_.push_back(completion.tag);
        const auto& outcome = completion.outcome;
        const bool by_rights = outcome.error.code == ErrorCode::precondition || outcome.stat.size_bytes > room;
        metrics_.store_answered(outcome.status, by_rights);
        waiting->outcomes[index] = std::move(completion.outcome);
        if (--waiting->missing == 0 && waiting->waiter) woken.push_back(waiting->waiter);
    }
    for (const auto waiter : woken) {
        loop_.post([waiter] { waiter.resume(); });
    }
}

}  // namespace kvern::server
