// SPDX-License-Identifier: Apache-2.0
#include "store/buffer_walk.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "kvern/limits.h"

namespace kvern {

std::size_t BufferWalk::take(std::size_t size_bytes_max, std::span<iovec> iovecs, unsigned& count) {
    count = 0;
    std::size_t taken = 0;
    while (taken < size_bytes_max && index_ < buffers_.size()) {
        const auto& buffer = buffers_[index_];
        const auto part = std::min(buffer.size_bytes - inner_, size_bytes_max - taken);
        auto* const data = buffer.data + inner_;
        if (part > 0) {
            auto* const last = count > 0 ? &iovecs[count - 1] : nullptr;
            if (last != nullptr && static_cast<std::byte*>(last->iov_base) + last->iov_len == data) {
                last->iov_len += part;
            } else {
                if (count == iovecs.size()) return taken;
                iovecs[count++] = iovec{data, part};
            }
            taken += part;
            inner_ += part;
        }
        if (inner_ == buffer.size_bytes) {
            ++index_;
            inner_ = 0;
        }
    }
    return taken;
}

void BufferWalk::skip(std::size_t size_bytes) {
    while (size_bytes > 0 && index_ < buffers_.size()) {
        const auto part = std::min(buffers_[index_].size_bytes - inner_, size_bytes);
        inner_ += part;
        size_bytes -= part;
        if (inner_ == buffers_[index_].size_bytes) {
            ++index_;
            inner_ = 0;
        }
    }
}

bool fits_direct(std::uint64_t offset, std::uint64_t length, std::span<const Buffer> buffers) {
    constexpr auto mask = limits::page_bytes - 1;
    if ((offset & mask) != 0) return false;
    for (const auto& buffer : buffers) {
        if (length == 0) break;
        if (buffer.size_bytes == 0) continue;
        if ((reinterpret_cast<std::uintptr_t>(buffer.data) & mask) != 0) return false;
        if (length > buffer.size_bytes && (buffer.size_bytes & mask) != 0) return false;
        length -= std::min<std::uint64_t>(length, buffer.size_bytes);
    }
    return true;
}

Piece::Piece(BufferWalk& walk, std::uint64_t file_offset, std::size_t size_bytes_max)
    : start_(walk), file_offset_(file_offset) {
    std::array<iovec, piece_iovecs_max - 1> iovecs;
    unsigned count = 0;
    size_bytes_ = walk.take(size_bytes_max, iovecs, count);
}

unsigned Piece::prepare(bool direct, std::byte* bounce, std::span<iovec> iovecs) {
    direct_ = direct;
    bounce_ = bounce;
    const auto missing = size_bytes_ - done_;
    const auto tail = direct ? missing % limits::page_bytes : 0;
    auto walk = start_;
    walk.skip(done_);
    unsigned count = 0;
    walk.take(missing - tail, iovecs.first(piece_iovecs_max - 1), count);
    if (tail > 0) iovecs[count++] = iovec{bounce, limits::page_bytes};
    return count;
}

Piece::Progress Piece::advance(std::size_t moved) {
    const auto reached = done_ + moved;
    if (reached < size_bytes_) {
        // A direct read goes on at a page: it reads the page again in which it stopped. No new whole page means that
        // the file ends here.
        const auto next = direct_ ? reached & ~(limits::page_bytes - 1) : reached;
        if (next <= done_) return Progress::ended_early;
        done_ = next;
        return Progress::again;
    }
    const auto tail = direct_ ? size_bytes_ % limits::page_bytes : 0;
    if (tail > 0) {
        auto walk = start_;
        walk.skip(size_bytes_ - tail);
        iovec last{};
        unsigned count = 0;
        walk.take(tail, {&last, 1}, count);
        std::memcpy(last.iov_base, bounce_, tail);
    }
    done_ = size_bytes_;
    return Progress::finished;
}

}  // namespace kvern
