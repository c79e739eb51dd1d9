// SPDX-License-Identifier: Apache-2.0
// Toucher: a thread that makes the kernel supply every page of a shared mapping, low addresses first.
//
// Owned by one Region. Never writes to the memory, so leases that are in use meanwhile keep their bytes. Does not
// register or lock anything.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <string>
#include <thread>

namespace kvern {

class Toucher {
  public:
    // The mapping of `memfd` at `base` must outlive this object. `name` is the region's, for the log.
    Toucher(std::string name, std::byte* base, std::size_t size_bytes, int memfd);
    ~Toucher();  // stops after the step it is in (4 MiB, about a millisecond)

    bool touched() const { return touched_.load(std::memory_order_acquire); }
    // Returns touched(), at the latest after `timeout`; at once when the thread gave up (no memory).
    bool wait(std::chrono::milliseconds timeout) const;

  private:
    void work();
    bool touch(std::size_t offset, std::size_t size_bytes);

    const std::string name_;
    std::byte* const base_;
    const std::size_t size_bytes_;
    const int memfd_;
    std::atomic<bool> stop_{false};
    std::atomic<bool> touched_{false};
    mutable std::mutex mutex_;
    mutable std::condition_variable ended_changed_;
    bool ended_ = false;
    std::thread thread_;
};

}  // namespace kvern
