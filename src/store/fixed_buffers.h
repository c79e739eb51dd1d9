// SPDX-License-Identifier: Apache-2.0
// FixedBuffers: the registered buffers of one io_uring. Used by the ring's thread only; describe() by any.
//
// A region is registered in parts of at most 1 GiB, a part a call, once it is touched. Registering saves a little CPU
// and no time, so nothing depends on it: what can't be registered is used unregistered, and describe() says why.
#pragma once

#include <liburing.h>

#include <atomic>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kvern/memory.h"

namespace kvern {

class FixedBuffers {
  public:
    // Any thread.
    void attach(std::shared_ptr<Region> region);
    std::string describe() const;

    // Whether register_next() would do something.
    bool waiting() const;
    // Registers one more part if a touched region waits for it. Costs 25 ms for 1 GiB.
    void register_next(io_uring& ring);
    // The index of the registered buffer that holds all of [data, data + size_bytes), or -1.
    int find(const std::byte* data, std::size_t size_bytes) const;

  private:
    struct Entry {
        std::shared_ptr<Region> region;
        unsigned first_index = 0;
        unsigned parts = 0;
        unsigned parts_done = 0;
        bool refused = false;
    };
    void take_attached();
    bool prepare(io_uring& ring, Entry& entry);
    bool register_part(io_uring& ring, Entry& entry);
    void refuse(Entry& entry, const std::string& why);

    std::vector<Entry> entries_;
    bool table_made_ = false;
    unsigned next_index_ = 0;
    std::size_t registered_bytes_ = 0;

    mutable std::mutex mutex_;  // guards all below
    std::vector<std::shared_ptr<Region>> attached_;
    std::atomic<bool> has_attached_{false};
    std::size_t known_regions_ = 0;
    std::size_t noted_bytes_ = 0;
    std::string refused_why_;
};

}  // namespace kvern
