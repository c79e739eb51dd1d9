// SPDX-License-Identifier: Apache-2.0
#include "store/thread_pool.h"

#include <array>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/log.h"
#include "base/thread.h"
#include "store/file_root.h"

namespace kvern {

struct ThreadPool::State : std::enable_shared_from_this<State> {
    State(unsigned bulk, unsigned look) : bulk_max(bulk), threads_max(bulk + look) {}

    void work();
    std::unique_ptr<Task> next(std::unique_lock<std::mutex>& lock, bool& bulk);
    bool runnable() const { return !of(Lane::look).empty() || (bulk_running < bulk_max && bulk_waiting() > 0); }
    std::size_t bulk_waiting() const { return of(Lane::read).size() + of(Lane::write).size(); }
    void wake(std::size_t tasks);
    bool add_thread();
    std::deque<std::unique_ptr<Task>>& of(Lane lane) { return lanes[static_cast<std::size_t>(lane)]; }
    const std::deque<std::unique_ptr<Task>>& of(Lane lane) const { return lanes[static_cast<std::size_t>(lane)]; }

    const unsigned bulk_max;
    const unsigned threads_max;
    std::mutex mutex;  // guards all below
    std::condition_variable changed;
    std::condition_variable thread_ended;
    std::array<std::deque<std::unique_ptr<Task>>, 3> lanes;
    std::vector<std::thread> threads;
    unsigned live = 0;
    unsigned idle = 0;
    unsigned woken = 0;  // of the idle ones, not yet running
    unsigned bulk_running = 0;
    bool stopped = false;
};

ThreadPool::ThreadPool(unsigned threads, unsigned look_threads)
    : state_(std::make_shared<State>(threads, look_threads)) {}

ThreadPool::~ThreadPool() = default;

void ThreadPool::post(Lane lane, std::unique_ptr<Task> task) {
    std::vector<std::unique_ptr<Task>> tasks;
    tasks.push_back(std::move(task));
    post(lane, std::move(tasks));
}

void ThreadPool::post(Lane lane, std::vector<std::unique_ptr<Task>>&& tasks) {
    {
        const std::lock_guard lock(state_->mutex);
        if (!state_->stopped) {
            const auto count = tasks.size();
            for (auto& task : tasks) state_->of(lane).push_back(std::move(task));
            tasks.clear();
            state_->wake(count);
        }
    }
    for (auto& task : tasks) task->cancel();
}

// REQUIRES the mutex. Wakes or starts as many threads as there are new tasks, if there are that many.
void ThreadPool::State::wake(std::size_t tasks) {
    for (; tasks > 0 && woken < idle; --tasks) {
        ++woken;
        changed.notify_one();
    }
    for (; tasks > 0 && live < threads_max; --tasks) {
        if (!add_thread()) break;
    }
}

bool ThreadPool::State::add_thread() {
    try {
        threads.push_back(start_thread("kvern-io", [self = shared_from_this()] { self->work(); }));
    } catch (const std::system_error& error) {
        log(LogLevel::warning, "store", std::string("no further I/O thread: ") + error.what());
        return false;
    }
    ++live;
    return true;
}

std::unique_ptr<Task> ThreadPool::State::next(std::unique_lock<std::mutex>& lock, bool& bulk) {
    while (!runnable() && !stopped) {
        ++idle;
        changed.wait(lock);
        --idle;
        if (woken > 0) --woken;
    }
    for (const auto lane : {Lane::look, Lane::read, Lane::write}) {
        bulk = lane != Lane::look;
        if (of(lane).empty() || (bulk && bulk_running >= bulk_max)) continue;
        auto task = std::move(of(lane).front());
        of(lane).pop_front();
        return task;
    }
    return nullptr;
}

void ThreadPool::State::work() {
    take_own_umask();
    std::unique_lock lock(mutex);
    for (;;) {
        bool bulk = false;
        auto task = next(lock, bulk);
        if (!task) {
            if (stopped) break;
            continue;
        }
        if (bulk) ++bulk_running;
        lock.unlock();
        task->run();
        task.reset();
        lock.lock();
        if (bulk) --bulk_running;
    }
    --live;
    thread_ended.notify_all();
}

void ThreadPool::stop(std::unique_ptr<Task> last) {
    std::vector<std::unique_ptr<Task>> waiting;
    {
        const std::lock_guard lock(state_->mutex);
        state_->stopped = true;
        for (auto& lane : state_->lanes) {
            for (auto& task : lane) waiting.push_back(std::move(task));
            lane.clear();
        }
        if (last) {
            if (state_->live > 0 || state_->add_thread()) {
                state_->of(Lane::look).push_back(std::move(last));
            } else {
                waiting.push_back(std::move(last));
            }
        }
        state_->changed.notify_all();
    }
    for (auto& task : waiting) task->cancel();
}

bool ThreadPool::join_until(std::chrono::steady_clock::time_point deadline) {
    std::vector<std::thread> threads;
    bool all = false;
    {
        std::unique_lock lock(state_->mutex);
        all = state_->thread_ended.wait_until(lock, deadline, [this] { return state_->live == 0; });
        threads = std::move(state_->threads);
    }
    for (auto& thread : threads) {
        if (all) {
            thread.join();
        } else {
            thread.detach();
        }
    }
    return all;
}

}  // namespace kvern
