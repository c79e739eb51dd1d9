// SPDX-License-Identifier: Apache-2.0
#include "keep/client.h"

#include <algorithm>

#include "kvern/limits.h"

namespace kvern {
namespace {

constexpr std::chrono::milliseconds stop_interval{100};  // how often it is asked

}  // namespace

Client::Client(std::unique_ptr<Store> store, Stop stop) : store_(std::move(store)), stop_(std::move(stop)) {}

void Client::submit(std::span<Op> ops) {
    in_flight_ += ops.size();
    store_->submit(ops, queue_);
}

Result<Completion> Client::next() {
    std::chrono::milliseconds waited{0};
    while (arrived_.empty()) {
        arrived_ = queue_.drain();
        std::reverse(arrived_.begin(), arrived_.end());
        if (!arrived_.empty() || queue_.wait(stop_interval)) continue;
        waited = stopped() ? waited + stop_interval : std::chrono::milliseconds(0);
        if (waited >= limits::stop_wait) {
            return fail(ErrorCode::cancelled, "interrupted while the store did not answer");
        }
    }
    auto completion = std::move(arrived_.back());
    arrived_.pop_back();
    --in_flight_;
    return completion;
}

Result<std::vector<Outcome>> Client::call(std::span<Op> ops) {
    for (std::size_t i = 0; i < ops.size(); ++i) ops[i].tag = i;
    std::vector<Outcome> outcomes(ops.size());
    submit(ops);
    while (in_flight_ > 0) {
        auto completion = next();
        if (!completion) return tl::unexpected(completion.error());
        outcomes[completion->tag] = std::move(completion->outcome);
    }
    return outcomes;
}

Result<Outcome> Client::call(Op op) {
    auto outcomes = call({&op, 1});
    if (!outcomes) return tl::unexpected(outcomes.error());
    return std::move(outcomes->front());
}

}  // namespace kvern
