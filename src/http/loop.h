// SPDX-License-Identifier: Apache-2.0
// Loop: one thread that waits for sockets, timers and stores, and runs the coroutines that wait for them.
//
// post() and spawn() from any thread; everything else, and all that is spawned, on the loop's own thread. A loop knows
// no HTTP.
#pragma once

#include <coroutine>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "base/clock.h"
#include "http/task.h"
#include "kvern/result.h"

namespace boost::asio {
class io_context;
}

namespace kvern::http {

// Something with a time limit that the loop looks at now and then (limits::http_tick): cheaper than a timer a wait.
// Loop's thread, from the first limit on; before it may be made anywhere, and be destroyed when the loop has stopped.
class Watched {
  public:
    virtual void overdue() = 0;  // called on the loop's thread, once the limit has passed; it may set another

  protected:
    explicit Watched(class Loop& loop) : loop_(loop) {}
    virtual ~Watched();
    Watched(const Watched&) = delete;
    Watched& operator=(const Watched&) = delete;
    void limit(TimePoint until) {
        until_ = until;
        if (!known_) make_known();
    }
    void no_limit() { until_ = TimePoint::max(); }

  private:
    friend class Loop;
    void make_known();

    Loop& loop_;
    TimePoint until_ = TimePoint::max();
    bool known_ = false;  // to the loop, by the list
    Watched* next_ = nullptr;
    Watched* previous_ = nullptr;
};

class Loop {
  public:
    explicit Loop(std::string name);  // of the thread, at most 15 characters
    ~Loop();                          // REQUIRES: stopped
    Loop(const Loop&) = delete;
    Loop& operator=(const Loop&) = delete;

    // Runs `work` on the loop's thread, soon. Any thread; after stop() it is dropped.
    void post(std::function<void()> work);
    // Starts a coroutine on the loop's thread, soon. It must be over before stop().
    void spawn(Task<void> task);
    // Ends the thread. What still waits is never resumed. Any thread but the loop's.
    void stop();
    bool on_thread() const { return std::this_thread::get_id() == thread_.get_id(); }

    // co_await loop.sleep(…): resumes after at least that long.
    struct Sleep {
        Loop& loop;
        Duration duration;
        bool await_ready() const { return duration <= Duration::zero(); }
        void await_suspend(std::coroutine_handle<> waiter);
        void await_resume() {}
    };
    Sleep sleep(Duration duration) { return {*this, duration}; }

    // Calls `ready` on the loop's thread whenever the descriptor is readable, until the loop ends. The callback must
    // make it unreadable. The descriptor stays the caller's and must outlive the loop.
    void watch(int fd, std::function<void()> ready);

    // The time as of the latest round; exact enough for deadlines. Loop's thread.
    TimePoint now() const { return Clock::steady().now(); }
    boost::asio::io_context& context();

  private:
    friend class Watched;
    void tick();

    struct Impl;
    std::unique_ptr<Impl> impl_;
    Watched* watched_ = nullptr;
    std::thread thread_;
};

// Wakes one coroutine that waits for something on the same loop: co_await signal.wait(); elsewhere signal.set(). Set
// before it is waited for counts. Loop's thread.
class Signal {
  public:
    void set() {
        set_ = true;
        if (waiter_) std::exchange(waiter_, nullptr).resume();
    }
    struct Wait {
        Signal& signal;
        bool await_ready() const { return signal.set_; }
        void await_suspend(std::coroutine_handle<> waiter) { signal.waiter_ = waiter; }
        void await_resume() { signal.set_ = false; }
    };
    Wait wait() { return {*this}; }

  private:
    bool set_ = false;
    std::coroutine_handle<> waiter_;
};

}  // namespace kvern::http
