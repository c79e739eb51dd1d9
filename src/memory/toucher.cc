// SPDX-License-Identifier: Apache-2.0
#include "memory/toucher.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "base/log.h"
#include "base/thread.h"
#include "kvern/limits.h"
#include "kvern/result.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace kvern {
namespace {

constexpr std::size_t step_bytes = std::size_t{4} << 20;

// Reads one byte a page, so that pages which the file already has enter the page table. The bytes may be written by
// others at the same time and mean nothing here, hence no sanitizer.
__attribute__((no_sanitize("thread"))) void read_pages(const std::byte* base, std::size_t size_bytes) {
    for (std::size_t offset = 0; offset < size_bytes; offset += limits::page_bytes) {
        static_cast<void>(*static_cast<const volatile std::byte*>(base + offset));
    }
}

}  // namespace

Toucher::Toucher(std::string name, std::byte* base, std::size_t size_bytes, int memfd)
    : name_(std::move(name)),
      base_(base),
      size_bytes_(size_bytes),
      memfd_(memfd),
      thread_(start_thread("kvern-touch", [this] { work(); })) {}

Toucher::~Toucher() {
    stop_ = true;
    thread_.join();
}

bool Toucher::wait(std::chrono::milliseconds timeout) const {
    std::unique_lock lock(mutex_);
    // A year stands for "for ever": the clock would overflow with more.
    ended_changed_.wait_for(lock, std::min<std::chrono::milliseconds>(timeout, std::chrono::hours(24 * 365)),
                            [this] { return ended_; });
    return touched();
}

void Toucher::work() {
    std::size_t offset = 0;
    while (offset < size_bytes_ && !stop_) {
        const auto size_bytes = std::min(step_bytes, size_bytes_ - offset);
        if (!touch(offset, size_bytes)) break;
        offset += size_bytes;
    }
    if (offset == size_bytes_) touched_.store(true, std::memory_order_release);
    const std::lock_guard lock(mutex_);
    ended_ = true;
    ended_changed_.notify_all();
}

bool Toucher::touch(std::size_t offset, std::size_t size_bytes) {
    int error = 0;
    do {
        error = madvise(base_ + offset, size_bytes, MADV_POPULATE_WRITE) == 0 ? 0 : errno;
    } while (error == EINTR || error == EAGAIN);
    if (error == EINVAL) {  // before Linux 5.14: let the file allocate its pages, then map them by reading
        error = fallocate(memfd_, 0, static_cast<off_t>(offset), static_cast<off_t>(size_bytes)) == 0 ? 0 : errno;
        if (error == 0) read_pages(base_ + offset, size_bytes);
    }
    if (error == 0) return true;
    log(LogLevel::warning, "memory",
        error_from_errno(error, "region '" + name_ + "': supplying its memory ahead stopped, so it won't be registered")
            .message);
    return false;
}

}  // namespace kvern
