// SPDX-License-Identifier: Apache-2.0
// MemoryGate: the memory that all requests of a server share; who finds none waits in line, up to a limit.
//
// Any thread returns leases; a coroutine waits on its own loop. First come, first served: a large request at the head
// of the line is not starved by small ones behind it. Closing the gate ends the waiting.
#pragma once

#include <atomic>
#include <coroutine>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#include "http/loop.h"
#include "kvern/memory.h"

namespace kvern::server {

class MemoryGate {
  public:
    explicit MemoryGate(std::shared_ptr<Region> region) : region_(std::move(region)) {}

    // A lease that tells the gate when it is given back. Move-only.
    class Pass {
      public:
        Pass() = default;
        Pass(MemoryGate& gate, Lease lease) : gate_(&gate), lease_(std::move(lease)) {}
        Pass(Pass&& other) noexcept : gate_(std::exchange(other.gate_, nullptr)), lease_(std::move(other.lease_)) {}
        Pass& operator=(Pass&& other) noexcept {
            if (this != &other) {
                release();
                gate_ = std::exchange(other.gate_, nullptr);
                lease_ = std::move(other.lease_);
            }
            return *this;
        }
        ~Pass() { release(); }
        explicit operator bool() const { return gate_ != nullptr; }
        std::byte* data() const { return lease_.data(); }
        std::size_t size_bytes() const { return lease_.size_bytes(); }
        void release() {
            lease_.release();
            if (gate_ != nullptr) std::exchange(gate_, nullptr)->returned();
        }

      private:
        MemoryGate* gate_ = nullptr;
        Lease lease_;
    };

    // At once or not at all, and never before those who wait.
    std::optional<Pass> try_enter(std::size_t size_bytes);
    // Waits at most `limit`; then nothing.
    http::Task<std::optional<Pass>> enter(http::Loop& loop, std::size_t size_bytes, Duration limit);

    RegionStats stats() const { return region_->stats(); }
    std::size_t waiting() const { return waiting_count_; }

  private:
    struct Waiter;
    void returned();

    std::shared_ptr<Region> region_;
    std::mutex mutex_;
    std::deque<std::shared_ptr<Waiter>> waiting_;  // under mutex_
    std::atomic<std::size_t> waiting_count_{0};
};

}  // namespace kvern::server
