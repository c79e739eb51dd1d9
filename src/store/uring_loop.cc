// SPDX-License-Identifier: Apache-2.0
#include "store/uring_loop.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/log.h"
#include "store/file/look.h"

namespace kvern {
namespace {

constexpr int retries_max = 16;  // of one piece after EAGAIN or EINTR
constexpr std::uint64_t wake_data = ~std::uint64_t{0};

}  // namespace

int make_ring(io_uring& ring, unsigned depth) {
    // DEFER_TASKRUN made reads slower; these two save interrupts. Old kernels know neither.
    for (const unsigned flags : {IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN, 0U}) {
        io_uring_params params{};
        params.flags = flags | IORING_SETUP_CQSIZE;
        params.cq_entries = 2 * (depth + 2);
        const int error = io_uring_queue_init_params(depth + 2, &ring, &params);
        if (error != -EINVAL) return error;
    }
    return -EINVAL;
}

int UringLoop::start(int event_fd) {
    event_fd_ = event_fd;
    if (const int error = make_ring(ring_, depth_); error != 0) return error;
    ring_made_ = true;
    bounce_ = static_cast<std::byte*>(std::aligned_alloc(limits::page_bytes, depth_ * limits::page_bytes));
    if (bounce_ == nullptr) return -ENOMEM;
    for (unsigned index = depth_; index-- > 0;) {
        free_slots_.push_back(index);
        free_readings_.push_back(index);
    }
    arm_wake();
    return 0;
}

void UringLoop::arm_wake() {
    auto* const entry = io_uring_get_sqe(&ring_);
    io_uring_prep_read(entry, event_fd_, &event_count_, sizeof event_count_, 0);
    io_uring_sqe_set_data64(entry, wake_data);
}

void UringLoop::admit(std::deque<Job>& jobs) {
    for (auto& job : jobs) {
        const auto index = free_readings_.back();
        auto& reading = readings_[index];
        reading = Reading{};
        reading.job = std::move(job);
        const auto& op = reading.job.op;
        if (!open_value(*context_.root, context_.facts, op, context_.direct, reading.value, reading.outcome)) {
            completed_.add(reading.job, std::move(reading.outcome));
            reading = Reading{};
            continue;
        }
        free_readings_.pop_back();
        reading.walk = BufferWalk(reading.job.op.buffers);
        reading.offset = op.offset;
        reading.left = reading.value.length;
        turn_.push_back(index);
    }
    jobs.clear();
}

void UringLoop::issue() {
    while (!turn_.empty() && !free_slots_.empty()) {
        const auto index = turn_.front();
        turn_.pop_front();
        auto& reading = readings_[index];
        const auto slot_index = free_slots_.back();
        free_slots_.pop_back();
        auto& slot = slots_[slot_index];
        slot.reading = index;
        slot.retries = 0;
        slot.piece =
            Piece(reading.walk, reading.offset, std::min<std::uint64_t>(reading.left, limits::file_piece_bytes));
        reading.offset += slot.piece.size_bytes();
        reading.left -= slot.piece.size_bytes();
        ++reading.in_flight;
        if (reading.left > 0) turn_.push_back(index);
        prepare(slot_index);
    }
}

void UringLoop::prepare(unsigned index) {
    auto& slot = slots_[index];
    auto& reading = readings_[slot.reading];
    const int fd = reading.value.fd.get();
    slot.direct = reading.value.direct;
    const auto count = slot.piece.prepare(slot.direct, bounce_ + index * limits::page_bytes, slot.iovecs);
    const auto offset = slot.piece.file_offset();
    auto* const entry = io_uring_get_sqe(&ring_);  // never none: the ring has room for all slots and the wake
    const auto& first = slot.iovecs[0];
    const int buffer = count == 1 ? buffers_.find(static_cast<const std::byte*>(first.iov_base), first.iov_len) : -1;
    if (buffer >= 0) {
        io_uring_prep_read_fixed(entry, fd, first.iov_base, static_cast<unsigned>(first.iov_len), offset, buffer);
    } else if (count == 1) {
        io_uring_prep_read(entry, fd, first.iov_base, static_cast<unsigned>(first.iov_len), offset);
    } else {
        io_uring_prep_readv(entry, fd, slot.iovecs.data(), count, offset);
    }
    io_uring_sqe_set_data64(entry, index);
}

void UringLoop::flush() {
    completed_.flush(context_.delivery);
    if (used_.empty()) return;
    context_.mark_later(std::move(used_));  // by the pool: this thread waits for no server
    used_.clear();
}

void UringLoop::wait() {
    flush();
    if (idle() && buffers_.waiting()) {
        // Registering takes tens of milliseconds: while nobody waits for a read, and then the inbox is looked at first.
        buffers_.register_next(ring_);
        return;
    }
    const int result = io_uring_submit_and_wait(&ring_, 1);
    if (result < 0 && result != -EINTR && result != -EAGAIN && result != -EBUSY) {
        log(LogLevel::error, "store", error_from_errno(-result, "io_uring").message);
    }
    reap();
}

void UringLoop::reap() {
    io_uring_cqe* entry = nullptr;
    unsigned head = 0;
    unsigned count = 0;
    bool woken = false;
    io_uring_for_each_cqe(&ring_, head, entry) {
        ++count;
        if (entry->user_data == wake_data) {
            woken = true;
        } else {
            piece_ended(static_cast<unsigned>(entry->user_data), entry->res);
        }
    }
    io_uring_cq_advance(&ring_, count);
    if (woken) arm_wake();
}

void UringLoop::piece_ended(unsigned index, int result) {
    auto& slot = slots_[index];
    auto& reading = readings_[slot.reading];
    if (result >= 0) {
        switch (slot.piece.advance(static_cast<std::size_t>(result))) {
            case Piece::Progress::finished:
                return end_piece(index);
            case Piece::Progress::again:
                return prepare(index);
            case Piece::Progress::ended_early:
                fail_reading(reading, ended_early(*context_.root, reading.job.op.key));
                return end_piece(index);
        }
    }
    if ((result == -EAGAIN || result == -EINTR) && ++slot.retries <= retries_max) return prepare(index);
    if (result == -EINVAL && slot.direct) {
        leave_direct(reading.value.fd.get(), reading.value.direct);  // another piece may have done so already
        if (!reading.value.direct) return prepare(index);
    }
    fail_reading(reading, file_failure(*context_.root, reading.job.op.key, "read", result).error);
    end_piece(index);
}

void UringLoop::fail_reading(Reading& reading, Error error) {
    if (reading.failed) return;
    reading.failed = true;
    reading.left = 0;
    std::erase(turn_, static_cast<unsigned>(&reading - readings_.data()));
    reading.outcome.error = std::move(error);
}

void UringLoop::end_piece(unsigned index) {
    const auto reading_index = slots_[index].reading;
    free_slots_.push_back(index);
    auto& reading = readings_[reading_index];
    --reading.in_flight;
    if (reading.in_flight == 0 && reading.left == 0) end_reading(reading_index);
}

void UringLoop::end_reading(unsigned index) {
    auto& reading = readings_[index];
    if (!reading.failed) {
        reading.outcome.status = Status::ok;
        reading.outcome.bytes = reading.value.length;
        if (reading.value.use) used_.push_back({std::move(reading.value.fd), *reading.value.use});
    }
    completed_.add(reading.job, std::move(reading.outcome));
    reading = Reading{};
    free_readings_.push_back(index);
}

}  // namespace kvern
