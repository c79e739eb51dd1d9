// SPDX-License-Identifier: Apache-2.0
#include "server/readiness.h"

#include "kvern/limits.h"

namespace kvern::server {

http::Task<void> Readiness::ask() {
    Op op;
    op.kind = OpKind::stat;
    op.key = "bucket/ready";
    outcome_ = co_await port_.ask(std::move(op));
    asking_ = false;
    no_limit();
    waiters_.wake_all();
}

void Readiness::overdue() {
    loop_.post([this] { waiters_.wake_all(); });
}

http::Task<std::string> Readiness::trouble() {
    if (!asking_) {
        asking_ = true;
        asked_ = loop_.now();
        limit(asked_ + limits::server_ready_wait);
        http::detach(ask());
    }
    if (asking_ && loop_.now() < asked_ + limits::server_ready_wait) co_await waiters_.wait();
    if (asking_) {
        const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(loop_.now() - asked_);
        co_return "the store has not answered for " + std::to_string(since.count()) + " ms";
    }
    const bool ready = outcome_.status == Status::ok || outcome_.status == Status::miss;
    co_return ready ? std::string() : outcome_.error.message;
}

}  // namespace kvern::server
