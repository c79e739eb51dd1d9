// SPDX-License-Identifier: Apache-2.0
// BufferWalk and Piece: the buffers of an operation as the iovecs of one system call after another.
//
// Plain values that point into the operation's buffers, which must outlive them. One thread at a time. Does no I/O.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "kvern/store.h"

namespace kvern {

inline constexpr unsigned piece_iovecs_max = 17;  // of one system call; the last is kept free for a bounce page

// A position in a list of buffers.
class BufferWalk {
  public:
    BufferWalk() = default;
    explicit BufferWalk(std::span<const Buffer> buffers) : buffers_(buffers) {}

    // Fills `iovecs` with the next bytes, at most `size_bytes_max`, joining parts that are neighbours in memory, and
    // moves on. Returns the bytes; `count` is the iovecs used. Stops early when all iovecs are used.
    std::size_t take(std::size_t size_bytes_max, std::span<iovec> iovecs, unsigned& count);
    void skip(std::size_t size_bytes);

  private:
    std::span<const Buffer> buffers_;
    std::size_t index_ = 0;
    std::size_t inner_ = 0;
};

// Whether bytes [offset, offset + length) of a file can move directly between the device and the buffers: all starts
// are 4 KiB aligned, and all sizes but the last.
bool fits_direct(std::uint64_t offset, std::uint64_t length, std::span<const Buffer> buffers);

// A part of a file that one system call reads. A direct read needs whole pages, and a range may end inside one: that
// last page is read into a bounce page, so that no byte behind a buffer's end is ever written.
class Piece {
  public:
    enum class Progress { finished, again, ended_early };

    Piece() = default;
    // Takes the next bytes of `walk`, at most `size_bytes_max`, that stand at `file_offset`.
    Piece(BufferWalk& walk, std::uint64_t file_offset, std::size_t size_bytes_max);

    std::uint64_t file_offset() const { return file_offset_ + done_; }  // of what is missing
    std::size_t size_bytes() const { return size_bytes_; }
    // The iovecs for what is missing. `bounce` is a page aligned page of the caller's, used if direct. Returns the
    // count.
    unsigned prepare(bool direct, std::byte* bounce, std::span<iovec> iovecs);
    // After a system call that moved `moved` bytes as prepared.
    Progress advance(std::size_t moved);

  private:
    BufferWalk start_;
    std::uint64_t file_offset_ = 0;
    std::size_t size_bytes_ = 0;
    std::size_t done_ = 0;
    bool direct_ = false;
    const std::byte* bounce_ = nullptr;
};

}  // namespace kvern
