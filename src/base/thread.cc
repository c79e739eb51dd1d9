// SPDX-License-Identifier: Apache-2.0
#include "base/thread.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <list>
#include <mutex>

namespace kvern {
namespace {

double seconds(const timespec& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

struct Registry {
    std::mutex mutex;
    std::list<clockid_t> running;
    double ended_seconds = 0;
};

// Never destroyed: threads that are stuck in the kernel outlive main().
Registry& registry() {
    static auto* instance = new Registry;
    return *instance;
}

// A thread's entry in the registry, for as long as it runs.
class Registration {
  public:
    Registration() {
        clockid_t clock;
        if (pthread_getcpuclockid(pthread_self(), &clock) != 0) return;
        const std::lock_guard lock(registry().mutex);
        entry_ = registry().running.insert(registry().running.end(), clock);
        counted_ = true;
    }
    ~Registration() {
        if (!counted_) return;
        timespec time{};
        const std::lock_guard lock(registry().mutex);
        if (clock_gettime(*entry_, &time) == 0) registry().ended_seconds += seconds(time);
        registry().running.erase(entry_);
    }
    Registration(const Registration&) = delete;
    Registration& operator=(const Registration&) = delete;

  private:
    bool counted_ = false;
    std::list<clockid_t>::iterator entry_;
};

// Signals are the host program's business: its own threads take them.
void block_signals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

}  // namespace

std::thread start_thread(const char* name, std::function<void()> body) {
    return std::thread([name, body = std::move(body)] {
        pthread_setname_np(pthread_self(), name);
        block_signals();
        const Registration registration;
        body();
    });
}

double thread_cpu_seconds() {
    const std::lock_guard lock(registry().mutex);
    double total = registry().ended_seconds;
    for (const clockid_t clock : registry().running) {
        timespec time{};
        if (clock_gettime(clock, &time) == 0) total += seconds(time);
    }
    return total;
}

}  // namespace kvern
