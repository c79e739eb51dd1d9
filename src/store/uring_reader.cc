// SPDX-License-Identifier: Apache-2.0
#include "store/uring_reader.h"

#include <sys/eventfd.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/log.h"
#include "base/thread.h"
#include "store/uring_loop.h"

namespace kvern {
std::string UringReader::unusable_why() {
    io_uring ring{};
    const int error = make_ring(ring, 2);
    if (error == 0) {
        io_uring_queue_exit(&ring);
        return {};
    }
    return error_from_errno(-error, error == -EPERM || error == -ENOSYS ? "io_uring is forbidden here" : "io_uring")
        .message;
}

struct UringReader::Shared {
    Shared(std::shared_ptr<FileContext> file_context, unsigned ring_depth, Fallback to_others)
        : context(std::move(file_context)), depth(ring_depth), fallback(std::move(to_others)) {}
    ~Shared() {
        if (event_fd >= 0) ::close(event_fd);
    }
    Shared(const Shared&) = delete;
    Shared& operator=(const Shared&) = delete;

    bool start(const std::shared_ptr<Shared>& self);  // REQUIRES the mutex
    void work();
    bool over();
    void hand_over(int error);
    void end();
    // Moves at most `count` jobs out of the inbox.
    std::size_t take(std::deque<Job>& jobs, std::size_t count);
    void wake() const {
        const std::uint64_t one = 1;
        if (write(event_fd, &one, sizeof one) < 0) log(LogLevel::error, "store", "the ring can't be woken");
    }

    const std::shared_ptr<FileContext> context;
    const unsigned depth;
    const Fallback fallback;
    const int event_fd = eventfd(0, EFD_CLOEXEC);  // blocking: io_uring would not wait on a non-blocking one
    FixedBuffers buffers;

    std::mutex mutex;  // guards all below
    std::condition_variable thread_ended;
    std::deque<Job> inbox;  // jobs stay here until they start, so that stop() can cancel them whatever the thread does
    std::thread thread;
    bool running = false;
    bool broken = false;  // no ring: everything goes to the fallback
    bool stopped = false;
};

std::size_t UringReader::Shared::take(std::deque<Job>& jobs, std::size_t count) {
    const std::lock_guard lock(mutex);
    count = std::min(count, inbox.size());
    for (std::size_t i = 0; i < count; ++i) {
        jobs.push_back(std::move(inbox.front()));
        inbox.pop_front();
    }
    return count;
}

UringReader::UringReader(std::shared_ptr<FileContext> context, unsigned depth, Fallback fallback)
    : shared_(std::make_shared<Shared>(std::move(context), depth, std::move(fallback))) {}

UringReader::~UringReader() = default;

void UringReader::Shared::work() {
    UringLoop loop(*context, buffers, depth);
    if (const int error = loop.start(event_fd); error != 0) return hand_over(error);
    std::deque<Job> jobs;
    for (;;) {
        // Until the inbox is seen empty or there is no room: only a push into an empty inbox wakes this thread.
        while (loop.room() > 0 && take(jobs, loop.room()) > 0) loop.admit(jobs);
        loop.issue();
        if (loop.idle() && over()) break;
        loop.wait();
    }
    loop.flush();
    end();
}

bool UringReader::Shared::over() {
    const std::lock_guard lock(mutex);
    return stopped && inbox.empty();
}

void UringReader::Shared::hand_over(int error) {
    log(LogLevel::warning, "store",
        error_from_errno(-error, "io_uring could not be started, reads take the thread pool").message);
    std::deque<Job> left;
    {
        const std::lock_guard lock(mutex);
        broken = true;
        left.swap(inbox);
    }
    fallback(std::vector<Job>(std::make_move_iterator(left.begin()), std::make_move_iterator(left.end())));
    end();
}

void UringReader::Shared::end() {
    const std::lock_guard lock(mutex);
    running = false;
    thread_ended.notify_all();
}

void UringReader::submit(std::vector<Job>&& jobs) {
    if (jobs.empty()) return;
    auto& shared = *shared_;
    std::unique_lock lock(shared.mutex);
    if (shared.stopped) {
        lock.unlock();
        return shared.context->delivery.cancel(jobs);
    }
    if (!shared.broken && !shared.running && !shared.start(shared_)) shared.broken = true;
    if (shared.broken) {
        lock.unlock();
        return shared.fallback(std::move(jobs));
    }
    const bool was_empty = shared.inbox.empty();
    for (auto& job : jobs) shared.inbox.push_back(std::move(job));
    if (was_empty) shared.wake();
}

bool UringReader::Shared::start(const std::shared_ptr<Shared>& self) {
    try {
        thread = start_thread("kvern-ring", [self] { self->work(); });
    } catch (const std::system_error& error) {
        log(LogLevel::warning, "store", std::string("no thread for io_uring: ") + error.what());
        return false;
    }
    running = true;
    return true;
}

void UringReader::stop() {
    std::vector<Job> waiting;
    {
        const std::lock_guard lock(shared_->mutex);
        shared_->stopped = true;
        waiting.assign(std::make_move_iterator(shared_->inbox.begin()), std::make_move_iterator(shared_->inbox.end()));
        shared_->inbox.clear();
        if (shared_->running) shared_->wake();
    }
    shared_->context->delivery.cancel(waiting);
}

bool UringReader::join_until(std::chrono::steady_clock::time_point deadline) {
    std::thread thread;
    bool ended = false;
    {
        std::unique_lock lock(shared_->mutex);
        ended = shared_->thread_ended.wait_until(lock, deadline, [this] { return !shared_->running; });
        thread = std::move(shared_->thread);
    }
    if (!thread.joinable()) return ended;
    if (ended) {
        thread.join();
    } else {
        thread.detach();
    }
    return ended;
}

void UringReader::attach(std::shared_ptr<Region> region) {
    shared_->buffers.attach(std::move(region));
}

std::string UringReader::describe() const {
    return shared_->buffers.describe();
}

}  // namespace kvern
