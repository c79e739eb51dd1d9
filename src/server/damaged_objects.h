// SPDX-License-Identifier: Apache-2.0
// Objects that were found to be damaged, by the version that was: what a reader saw only as an answer that broke off,
// the next one is told before anything is sent.
//
// Any thread. Knows limits::server_damaged_known_max at most; nothing is written down, so a server that starts again
// finds them again.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace kvern::server {

class DamagedObjects {
  public:
    // Of the store's key, the version of this etag of the store's.
    void add(const std::string& key, const std::string& etag);
    bool holds(const std::string& key, const std::string& etag) const;
    std::uint64_t found() const { return found_.load(std::memory_order_relaxed); }  // since the server started

  private:
    std::atomic<std::uint64_t> found_{0};  // while it is 0, nobody takes the lock
    mutable std::mutex mutex_;
    std::map<std::string, std::string> etags_;  // by key, under mutex_
};

}  // namespace kvern::server
