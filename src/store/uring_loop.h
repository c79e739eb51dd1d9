// SPDX-License-Identifier: Apache-2.0
// UringLoop: the reads in flight of one io_uring, as seen by the one thread that owns it.
//
// Not thread-safe: UringReader's thread makes it, calls it and ends it (SINGLE_ISSUER). Opens values and reads them;
// does not know where jobs come from.
#pragma once

#include <liburing.h>

#include <array>
#include <deque>
#include <vector>

#include "store/buffer_walk.h"
#include "store/file/context.h"
#include "store/file/read.h"
#include "store/fixed_buffers.h"

namespace kvern {

// A ring with room for `depth` reads and the wake, its completion queue big enough for twice that. 0 or a negative
// errno value.
int make_ring(io_uring& ring, unsigned depth);

class UringLoop {
  public:
    UringLoop(FileContext& context, FixedBuffers& buffers, unsigned depth)
        : context_(context), buffers_(buffers), depth_(depth), slots_(depth), readings_(depth) {}
    ~UringLoop() {
        if (ring_made_) io_uring_queue_exit(&ring_);
        std::free(bounce_);
    }
    UringLoop(const UringLoop&) = delete;
    UringLoop& operator=(const UringLoop&) = delete;

    // Makes the ring; a write to `event_fd` ends wait(). 0 or a negative errno value.
    int start(int event_fd);
    // How many values may be opened further.
    std::size_t room() const { return free_readings_.size(); }
    bool idle() const { return free_readings_.size() == depth_; }
    // Opens the values. REQUIRES: at most room() jobs. Empties `jobs`.
    void admit(std::deque<Job>& jobs);
    // Fills the depth with pieces, one value after the other.
    void issue();
    // Delivers what is complete, then sleeps until a piece ends or somebody writes the event; with nothing to read it
    // may register a buffer instead.
    void wait();
    void flush();

  private:
    struct Reading {  // a value that is being read
        Job job;
        OpenValue value;
        Outcome outcome;
        BufferWalk walk;
        std::uint64_t offset = 0;  // of the next piece
        std::uint64_t left = 0;    // bytes without a piece yet
        unsigned in_flight = 0;
        bool failed = false;
    };

    struct Slot {  // a piece in flight
        unsigned reading = 0;
        Piece piece;
        std::array<iovec, piece_iovecs_max> iovecs;
        bool direct = false;
        int retries = 0;
    };

    void arm_wake();
    void prepare(unsigned index);
    void reap();
    void piece_ended(unsigned index, int result);
    void fail_reading(Reading& reading, Error error);
    void end_piece(unsigned index);
    void end_reading(unsigned index);

    FileContext& context_;
    FixedBuffers& buffers_;
    const unsigned depth_;
    io_uring ring_{};
    bool ring_made_ = false;
    int event_fd_ = -1;
    std::uint64_t event_count_ = 0;
    std::byte* bounce_ = nullptr;  // a page a slot
    std::vector<Slot> slots_;
    std::vector<unsigned> free_slots_;
    std::vector<Reading> readings_;
    std::vector<unsigned> free_readings_;
    std::deque<unsigned> turn_;  // readings with bytes that have no piece yet, next first
    CompletionBatch completed_;
    std::vector<UsedFile> used_;  // of values read, to be marked once these are delivered
};

}  // namespace kvern
