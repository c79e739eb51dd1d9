// SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "base/log.h"
#include "kvern/store.h"

namespace kvern {
CompletionQueue::CompletionQueue() : event_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (event_fd_ < 0) {
        log(LogLevel::error, "store", "no eventfd for a completion queue: " + std::string(std::strerror(errno)));
    }
}

CompletionQueue::~CompletionQueue() {
    // An engine may still be inside push() with the completion that its owner has just drained.
    const std::lock_guard lock(mutex_);
    if (event_fd_ >= 0) close(event_fd_);
}

std::vector<Completion> CompletionQueue::drain() {
    std::vector<Completion> drained;
    const std::lock_guard lock(mutex_);
    hushed_ = false;
    drained.swap(completions_);
    if (!std::exchange(signalled_, false)) return drained;
    std::uint64_t count = 0;
    if (read(event_fd_, &count, sizeof count) < 0 && errno != EAGAIN) {
        log(LogLevel::error, "store", "eventfd: " + std::string(std::strerror(errno)));
    }
    return drained;
}

void CompletionQueue::hush() {
    const std::lock_guard lock(mutex_);
    hushed_ = true;
}

bool CompletionQueue::wait(std::chrono::milliseconds timeout) const {
    using Clock = std::chrono::steady_clock;
    const bool for_ever = timeout.count() < 0;
    const auto longest = std::chrono::milliseconds(std::numeric_limits<int>::max());
    const auto deadline = Clock::now() + std::min(timeout, longest);
    for (;;) {
        auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
        left = std::clamp(left, std::chrono::milliseconds(0), longest);
        pollfd event{event_fd_, POLLIN, 0};
        const int ready = poll(&event, 1, for_ever ? -1 : static_cast<int>(left.count()));
        if (ready > 0) return true;
        if (ready == 0) return false;
        if (errno != EINTR) return false;
    }
}

// Under the lock: once its owner has drained the last completion it may destroy the queue, and nothing here may touch
// it after that. Only the first completion after a drain writes the event.
void CompletionQueue::signal() {
    if (hushed_ || signalled_) return;
    signalled_ = true;
    const std::uint64_t one = 1;
    if (write(event_fd_, &one, sizeof one) < 0) {  // can only be a full counter, which is readable as well
        log(LogLevel::debug, "store", "eventfd: " + std::string(std::strerror(errno)));
    }
}

void CompletionQueue::push(Completion completion) {
    const std::lock_guard lock(mutex_);
    completions_.push_back(std::move(completion));
    signal();
}

void CompletionQueue::push(std::vector<Completion>&& batch) {
    if (batch.empty()) return;
    const std::lock_guard lock(mutex_);
    if (completions_.empty()) {
        completions_ = std::move(batch);
    } else {
        completions_.insert(completions_.end(), std::make_move_iterator(batch.begin()),
                            std::make_move_iterator(batch.end()));
    }
    batch.clear();
    signal();
}

}  // namespace kvern
