// SPDX-License-Identifier: Apache-2.0
// Task<T>: a coroutine that starts when it is awaited and resumes its awaiter when it ends.
//
// A task belongs to the thread of one event loop; it is awaited once, and destroyed by its owner. Nothing here knows of
// sockets. There are no exceptions across it: one that escapes a coroutine ends the process.
#pragma once

#include <coroutine>
#include <exception>
#include <optional>
#include <utility>

namespace kvern::http {

template <class T>
class Task;

namespace task_detail {

struct Promise {
    std::coroutine_handle<> awaiter = std::noop_coroutine();

    struct Final {
        bool await_ready() noexcept { return false; }
        template <class P>
        std::coroutine_handle<> await_suspend(std::coroutine_handle<P> ended) noexcept {
            return ended.promise().awaiter;
        }
        void await_resume() noexcept {}
    };
    std::suspend_always initial_suspend() noexcept { return {}; }
    Final final_suspend() noexcept { return {}; }
    void unhandled_exception() noexcept { std::terminate(); }
};

template <class T>
struct ValuePromise : Promise {
    std::optional<T> value;
    Task<T> get_return_object();
    template <class U>
    void return_value(U&& result) {
        value.emplace(std::forward<U>(result));
    }
    T take() { return std::move(*value); }
};

template <>
struct ValuePromise<void> : Promise {
    Task<void> get_return_object();
    void return_void() {}
    void take() {}
};

}  // namespace task_detail

template <class T = void>
class [[nodiscard]] Task {
  public:
    using promise_type = task_detail::ValuePromise<T>;
    using Handle = std::coroutine_handle<promise_type>;

    explicit Task(Handle handle) : handle_(handle) {}
    Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    Task& operator=(Task&&) = delete;
    Task(const Task&) = delete;
    Task& operator=(const Task&) = delete;
    ~Task() {
        if (handle_) handle_.destroy();
    }

    struct Awaiter {
        Handle handle;
        bool await_ready() { return false; }
        // Runs the task at once, below the awaiter on the stack, and suspends this only if that one did: a loop that
        // awaits what is often ready neither pays for a transfer nor, in unoptimised builds, deepens the stack.
        bool await_suspend(std::coroutine_handle<> awaiter) {
            handle.resume();
            if (handle.done()) return false;
            handle.promise().awaiter = awaiter;
            return true;
        }
        T await_resume() { return handle.promise().take(); }
    };
    Awaiter operator co_await() && { return {handle_}; }

  private:
    Handle handle_;
};

namespace task_detail {

template <class T>
Task<T> ValuePromise<T>::get_return_object() {
    return Task<T>(std::coroutine_handle<ValuePromise<T>>::from_promise(*this));
}
inline Task<void> ValuePromise<void>::get_return_object() {
    return Task<void>(std::coroutine_handle<ValuePromise<void>>::from_promise(*this));
}

// Owns itself: started at once, gone when its task is over.
struct Detached {
    struct promise_type {
        Detached get_return_object() { return {}; }
        std::suspend_never initial_suspend() noexcept { return {}; }
        std::suspend_never final_suspend() noexcept { return {}; }
        void return_void() {}
        void unhandled_exception() noexcept { std::terminate(); }
    };
};

}  // namespace task_detail

// Starts a task now, on this thread; it lives until it is over.
inline task_detail::Detached detach(Task<void> task) {
    co_await std::move(task);
}

}  // namespace kvern::http
