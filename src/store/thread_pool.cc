// SPDX-License-Identifier: Apache-2.0
#include "store/thread_pool.h"

#include <semaphore.h>

#include <array>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/log.h"
#include "base/thread.h"
#include "store/file/root.h"

namespace kvern {
namespace {

// Tokens, one a queued task. Not a condition variable: glibc before 2.41 can lose a signal where many threads wait (its
// bug 25847), and a pool that has lost one stands still.
class Semaphore {
  public:
    Semaphore() { sem_init(&semaphore_, 0, 0); }
    ~Semaphore() { sem_destroy(&semaphore_); }
    Semaphore(const Semaphore&) = delete;
    Semaphore& operator=(const Semaphore&) = delete;
    void post(std::size_t count) {
        for (; count > 0; --count) sem_post(&semaphore_);
    }
    void wait() {
        while (sem_wait(&semaphore_) != 0 && errno == EINTR) {
        }
    }

  private:
    sem_t semaphore_;
};

// Threads with queues of their own. All but `tokens` is guarded by the pool's mutex.
struct Crew {
    unsigned threads_max = 0;
    unsigned live = 0;
    unsigned busy = 0;
    std::array<std::deque<std::unique_ptr<Task>>, 2> queues;  // the first one goes first
    Semaphore tokens;

    std::size_t queued() const { return queues[0].size() + queues[1].size(); }
    std::unique_ptr<Task> next() {
        for (auto& queue : queues) {
            if (queue.empty()) continue;
            auto task = std::move(queue.front());
            queue.pop_front();
            return task;
        }
        return nullptr;
    }
};

}  // namespace

struct ThreadPool::State : std::enable_shared_from_this<State> {
    State(unsigned transfer_threads, unsigned look_threads) {
        transfers.threads_max = transfer_threads;
        looks.threads_max = look_threads;
    }

    void work(Crew& crew);
    void call(Crew& crew);
    bool add_thread(Crew& crew);
    Crew& crew_of(Lane lane) { return lane == Lane::look ? looks : transfers; }

    std::mutex mutex;  // guards all below
    std::condition_variable thread_ended;
    Crew looks;
    Crew transfers;
    std::vector<std::thread> threads;
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
    Crew& crew = state_->crew_of(lane);
    std::size_t count = 0;
    {
        const std::lock_guard lock(state_->mutex);
        if (!state_->stopped) {
            count = tasks.size();
            auto& queue = crew.queues[lane == Lane::write ? 1 : 0];
            for (auto& task : tasks) queue.push_back(std::move(task));
            tasks.clear();
            state_->call(crew);
        }
    }
    crew.tokens.post(count);
    for (auto& task : tasks) task->cancel();
}

// REQUIRES the mutex. Starts threads until there is an idle one for each queued task, or there are as many as there may
// be.
void ThreadPool::State::call(Crew& crew) {
    while (crew.live - crew.busy < crew.queued() && crew.live < crew.threads_max && add_thread(crew)) {
    }
}

bool ThreadPool::State::add_thread(Crew& crew) {
    try {
        threads.push_back(start_thread("kvern-io", [self = shared_from_this(), &crew] { self->work(crew); }));
    } catch (const std::system_error& error) {
        log(LogLevel::warning, "store", std::string("no further I/O thread: ") + error.what());
        return false;
    }
    ++crew.live;
    return true;
}

void ThreadPool::State::work(Crew& crew) {
    take_own_umask();
    for (;;) {
        crew.tokens.wait();
        std::unique_lock lock(mutex);
        auto task = crew.next();
        if (!task && stopped) {
            --crew.live;
            thread_ended.notify_all();
            return;
        }
        if (!task) continue;
        ++crew.busy;
        lock.unlock();
        task->run();
        task.reset();
        lock.lock();
        --crew.busy;
    }
}

void ThreadPool::stop(std::unique_ptr<Task> last) {
    std::vector<std::unique_ptr<Task>> waiting;
    {
        const std::lock_guard lock(state_->mutex);
        state_->stopped = true;
        for (Crew* crew : {&state_->looks, &state_->transfers}) {
            while (auto task = crew->next()) waiting.push_back(std::move(task));
        }
        Crew& looks = state_->looks;
        if (last && (looks.live > 0 || state_->add_thread(looks))) {
            looks.queues[0].push_back(std::move(last));
        } else if (last) {
            waiting.push_back(std::move(last));
        }
        // A token for each thread, and for the last task the one that its thread needs to come back for.
        looks.tokens.post(looks.live + 1);
        state_->transfers.tokens.post(state_->transfers.live);
    }
    for (auto& task : waiting) task->cancel();
}

bool ThreadPool::join_until(std::chrono::steady_clock::time_point deadline) {
    std::vector<std::thread> threads;
    bool all = false;
    {
        std::unique_lock lock(state_->mutex);
        all = state_->thread_ended.wait_until(lock, deadline,
                                              [this] { return state_->looks.live + state_->transfers.live == 0; });
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
