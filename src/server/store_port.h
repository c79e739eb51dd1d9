// SPDX-License-Identifier: Apache-2.0
// StorePort: a loop's way to a store: co_await port.ask(op).
//
// One port a loop, used on its thread. It holds nothing of the operations but their place to return to; their buffers
// stay the caller's. Every ask is answered by the store, so none may be abandoned.
#pragma once

#include <coroutine>
#include <memory>
#include <vector>

#include "http/loop.h"
#include "kvern/store.h"
#include "server/metrics.h"

namespace kvern::server {

class StorePort {
    struct Waiting {
        std::coroutine_handle<> waiter;
        std::vector<Outcome> outcomes;
        std::size_t missing = 0;
    };

  public:
    StorePort(http::Loop& loop, Store& store, Metrics& metrics);  // which count what is answered
    StorePort(const StorePort&) = delete;
    StorePort& operator=(const StorePort&) = delete;

    // Operations under way, awaited once, now or later; destroyed only when all are answered.
    class Asked {
      public:
        Asked() : state_(std::make_unique<Waiting>()) {}
        struct Awaiter {
            Waiting& state;
            bool await_ready() const { return state.missing == 0; }
            void await_suspend(std::coroutine_handle<> waiter) { state.waiter = waiter; }
            std::vector<Outcome> await_resume() { return std::move(state.outcomes); }
        };
        Awaiter operator co_await() const { return {*state_}; }

      private:
        friend class StorePort;
        std::unique_ptr<Waiting> state_;
    };
    // Outcomes in the order of the operations.
    Asked ask_all(std::vector<Op> ops);

    // One operation, one outcome.
    class AskedOne {
      public:
        explicit AskedOne(Asked asked) : asked_(std::move(asked)) {}
        struct Awaiter {
            Asked::Awaiter all;
            bool await_ready() const { return all.await_ready(); }
            void await_suspend(std::coroutine_handle<> waiter) { all.await_suspend(waiter); }
            Outcome await_resume() { return std::move(all.await_resume().front()); }
        };
        Awaiter operator co_await() const { return {asked_.operator co_await()}; }

      private:
        Asked asked_;
    };
    AskedOne ask(Op op);

    bool immediate() const { return immediate_; }  // see Capabilities

  private:
    void collect();

    http::Loop& loop_;
    Store& store_;
    const bool immediate_;
    Metrics& metrics_;
    CompletionQueue queue_;
    // What an operation's tag names: whom it belongs to, and its place there.
    struct Slot {
        Waiting* waiting = nullptr;
        std::size_t index = 0;
        std::uint64_t room = 0;  // of a read of a whole value, whatever its size: a larger one fails by rights
    };
    std::vector<Slot> slots_;
    std::vector<std::size_t> free_slots_;
};

}  // namespace kvern::server
