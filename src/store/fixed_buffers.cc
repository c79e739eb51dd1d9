// SPDX-License-Identifier: Apache-2.0
#include "store/fixed_buffers.h"

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "base/text.h"
#include "kvern/limits.h"

namespace kvern {
namespace {

bool may_lock_any_memory() {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[2]{};
    if (syscall(SYS_capget, &header, data) != 0) return false;
    return (data[CAP_IPC_LOCK / 32].effective & (1U << (CAP_IPC_LOCK % 32))) != 0;
}

std::size_t lockable_bytes() {
    rlimit limit{};
    if (may_lock_any_memory() || getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return ~std::size_t{0};
    return limit.rlim_cur == RLIM_INFINITY ? ~std::size_t{0} : limit.rlim_cur;
}

}  // namespace

void FixedBuffers::attach(std::shared_ptr<Region> region) {
    const std::lock_guard lock(mutex_);
    attached_.push_back(std::move(region));
    ++known_regions_;
    has_attached_ = true;
}

std::string FixedBuffers::describe() const {
    const std::lock_guard lock(mutex_);
    if (known_regions_ == 0) return "buffers unregistered: no region attached";
    if (!refused_why_.empty()) {
        return (noted_bytes_ > 0 ? "buffers registered: " + format_size(noted_bytes_) + ", others unregistered: "
                                 : "buffers unregistered: ") +
               refused_why_;
    }
    if (noted_bytes_ == 0) return "buffers unregistered until their region is touched and read into";
    return "buffers registered: " + format_size(noted_bytes_);
}

void FixedBuffers::take_attached() {
    if (!has_attached_.load(std::memory_order_relaxed)) return;
    const std::lock_guard lock(mutex_);
    for (auto& region : attached_) {
        Entry entry;
        const auto size = region->size_bytes();
        entry.parts =
            static_cast<unsigned>((size + limits::uring_buffer_bytes_max - 1) / limits::uring_buffer_bytes_max);
        entry.region = std::move(region);
        entries_.push_back(std::move(entry));
    }
    attached_.clear();
    has_attached_ = false;
}

bool FixedBuffers::waiting() const {
    if (has_attached_.load(std::memory_order_relaxed)) return true;
    return std::any_of(entries_.begin(), entries_.end(), [](const Entry& entry) {
        return !entry.refused && entry.parts_done < entry.parts && entry.region->touched();
    });
}

void FixedBuffers::register_next(io_uring& ring) {
    take_attached();
    for (auto& entry : entries_) {
        if (entry.refused || entry.parts_done == entry.parts || !entry.region->touched()) continue;
        if (prepare(ring, entry)) register_part(ring, entry);
        return;
    }
}

// Before the first part: the limits, which are compared first because a call that fails has faulted in all pages by
// then.
bool FixedBuffers::prepare(io_uring& ring, Entry& entry) {
    if (entry.parts_done > 0) return true;
    const auto size = entry.region->size_bytes();
    if (const auto lockable = lockable_bytes(); size > lockable - std::min(lockable, registered_bytes_)) {
        refuse(entry, format_size(size) + " are more than this user may lock (ulimit -l: " + format_size(lockable) +
                          "); raise that limit to save a little CPU");
        return false;
    }
    if (next_index_ + entry.parts > limits::uring_buffers_max) {
        refuse(entry, "more than " + std::to_string(limits::uring_buffers_max) + " parts");
        return false;
    }
    if (!table_made_) {
        if (const int error = io_uring_register_buffers_sparse(&ring, limits::uring_buffers_max); error != 0) {
            refuse(entry, "no table of buffers before Linux 5.19: " + std::string(std::strerror(-error)));
            return false;
        }
        table_made_ = true;
    }
    entry.first_index = next_index_;
    next_index_ += entry.parts;
    return true;
}

bool FixedBuffers::register_part(io_uring& ring, Entry& entry) {
    const auto offset = entry.parts_done * limits::uring_buffer_bytes_max;
    const auto size = std::min(limits::uring_buffer_bytes_max, entry.region->size_bytes() - offset);
    const iovec part{entry.region->base() + offset, size};
    const __u64 no_tag = 0;
    const auto index = entry.first_index + entry.parts_done;
    if (const int error = io_uring_register_buffers_update_tag(&ring, index, &part, &no_tag, 1); error < 0) {
        refuse(entry, std::strerror(-error));
        return false;
    }
    ++entry.parts_done;
    registered_bytes_ += size;
    const std::lock_guard lock(mutex_);
    noted_bytes_ = registered_bytes_;
    return true;
}

void FixedBuffers::refuse(Entry& entry, const std::string& why) {
    entry.refused = true;
    log(LogLevel::warning, "store", "reads go on with unregistered buffers: " + why);
    const std::lock_guard lock(mutex_);
    refused_why_ = why;
}

int FixedBuffers::find(const std::byte* data, std::size_t size_bytes) const {
    for (const auto& entry : entries_) {
        const auto* const base = entry.region->base();
        if (data < base || data >= base + entry.region->size_bytes()) continue;
        const auto offset = static_cast<std::size_t>(data - base);
        const auto part = offset / limits::uring_buffer_bytes_max;
        const auto last = (offset + size_bytes - 1) / limits::uring_buffer_bytes_max;
        return part == last && part < entry.parts_done ? static_cast<int>(entry.first_index + part) : -1;
    }
    return -1;
}

}  // namespace kvern
