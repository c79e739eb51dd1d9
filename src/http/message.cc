// SPDX-License-Identifier: Apache-2.0
#include "http/message.h"

#include <algorithm>
#include <cstring>

#include "kvern/limits.h"

namespace kvern::http {

namespace {
constexpr std::byte tls_handshake{0x16};  // the first byte of a TLS connection
}

MessageReader::MessageReader(Stream& stream, HeadKind kind)
    : stream_(stream), kind_(kind), bytes_(limits::http_head_bytes_max) {}

Task<Result<std::size_t>> MessageReader::fill() {
    if (begin_ == end_) begin_ = end_ = 0;
    if (end_ == bytes_.size() && begin_ > 0) {
        std::memmove(bytes_.data(), bytes_.data() + begin_, end_ - begin_);
        end_ -= begin_;
        begin_ = 0;
    }
    auto moved = co_await stream_.read_some(std::span(bytes_).subspan(end_));
    if (moved) end_ += *moved;
    co_return moved;
}

void MessageReader::start_body(const Head& head) {
    body_ = Body::none;
    left_ = 0;
    if (head.chunked) {
        body_ = Body::chunked;
        chunks_.start();
    } else if (head.content_length) {
        body_ = Body::length;
        left_ = *head.content_length;
    } else if (head.until_close) {
        body_ = Body::until_close;
        closed_ = false;
    }
}

Task<Result<std::optional<Head>>> MessageReader::next_head(Duration first_byte_limit, Duration head_limit) {
    std::size_t searched = 0;
    bool started = begin_ != end_;
    stream_.stall_limit(first_byte_limit);
    if (started) stream_.deadline(Clock::steady().now() + head_limit);
    for (;;) {
        const auto end = head_end(held(), searched);
        if (end) {
            stream_.deadline(TimePoint::max());
            auto head = parse_head(kind_, held().first(*end));
            begin_ += *end;
            if (!head) co_return tl::unexpected(head.error());
            start_body(*head);
            co_return std::optional<Head>(std::move(*head));
        }
        if (end_ - begin_ == bytes_.size()) {
            co_return fail(ErrorCode::resource,
                           "HTTP head longer than " + std::to_string(limits::http_head_bytes_max) + " bytes");
        }
        const auto moved = co_await fill();
        if (!moved) co_return tl::unexpected(moved.error());
        if (*moved == 0) {
            if (!started) co_return std::optional<Head>();
            co_return fail(ErrorCode::unavailable,
                           "connection to " + stream_.peer() + ": closed in the middle of a head");
        }
        if (!started) {
            started = true;
            stream_.deadline(Clock::steady().now() + head_limit);
            // Its client waits for an answer, and no end of a head will come.
            if (bytes_[begin_] == tls_handshake) {
                co_return fail(ErrorCode::invalid_argument, "this port speaks plain HTTP, and TLS was begun");
            }
        }
    }
}

bool MessageReader::body_ended() const {
    switch (body_) {
        case Body::none:
            return true;
        case Body::length:
            return left_ == 0;
        case Body::chunked:
            return chunks_.need() == TransferChunked::Need::end;
        case Body::until_close:
            return closed_;
    }
    return true;
}

std::optional<std::uint64_t> MessageReader::body_left() const {
    if (body_ == Body::none) return 0;
    if (body_ == Body::length) return left_;
    return std::nullopt;
}

Task<Result<void>> MessageReader::reach_payload() {
    while (body_ == Body::chunked && chunks_.need() == TransferChunked::Need::framing) {
        if (begin_ == end_) {
            const auto moved = co_await fill();
            if (!moved) co_return tl::unexpected(moved.error());
            if (*moved == 0) {
                co_return fail(ErrorCode::unavailable,
                               "connection to " + stream_.peer() + ": closed in the middle of a chunked body");
            }
        }
        const auto used = chunks_.framing(held());
        if (!used) co_return tl::unexpected(used.error());
        begin_ += *used;
    }
    co_return Result<void>{};
}

Task<Result<std::span<const std::byte>>> MessageReader::look() {
    const auto reached = co_await reach_payload();
    if (!reached) co_return tl::unexpected(reached.error());
    if (body_ended()) co_return std::span<const std::byte>();
    if (begin_ == end_) {
        const auto moved = co_await fill();
        if (!moved) co_return tl::unexpected(moved.error());
        if (*moved == 0) {
            closed_ = true;
            if (body_ == Body::until_close) co_return std::span<const std::byte>();
            co_return fail(ErrorCode::unavailable,
                           "connection to " + stream_.peer() + ": closed in the middle of a body");
        }
    }
    std::uint64_t size = end_ - begin_;
    if (body_ == Body::length) size = std::min(size, left_);
    if (body_ == Body::chunked) size = std::min(size, chunks_.payload_left());
    co_return std::span<const std::byte>(held().first(size));
}

void MessageReader::take(std::size_t size_bytes) {
    begin_ += size_bytes;
    if (body_ == Body::length) left_ -= size_bytes;
    if (body_ == Body::chunked) chunks_.payload(size_bytes);
}

Task<Result<std::size_t>> MessageReader::read(std::span<std::byte> into, const Arrived* arrived) {
    std::size_t done = 0;
    while (done < into.size()) {
        const auto reached = co_await reach_payload();
        if (!reached) co_return tl::unexpected(reached.error());
        if (body_ended()) break;
        const auto rest = into.subspan(done);
        if (begin_ != end_ || body_ == Body::until_close) {
            const auto seen = co_await look();
            if (!seen) co_return tl::unexpected(seen.error());
            const auto size = std::min(seen->size(), rest.size());
            std::memcpy(rest.data(), seen->data(), size);
            if (arrived != nullptr && size > 0) (*arrived)(rest.first(size));
            take(size);
            done += size;
            continue;
        }
        // Straight from the socket, and not a byte beyond this body or chunk.
        const auto known = body_ == Body::length ? left_ : chunks_.payload_left();
        const auto size = std::min<std::uint64_t>(known, rest.size());
        const auto moved = co_await stream_.read_exact(rest.first(size), arrived);
        if (!moved) co_return tl::unexpected(moved.error());
        if (body_ == Body::length) {
            left_ -= size;
        } else {
            chunks_.payload(size);
        }
        done += size;
    }
    co_return done;
}

}  // namespace kvern::http
