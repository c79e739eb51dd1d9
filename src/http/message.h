// SPDX-License-Identifier: Apache-2.0
// MessageReader: heads and bodies of the messages that come in on one stream, one after the other.
//
// Belongs to the stream's loop. A body of known length goes from the socket straight into the caller's memory, except
// for what came in one piece with the head. Says nothing: writing is the caller's.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "http/head.h"
#include "http/stream.h"
#include "http/transfer_chunked.h"

namespace kvern::http {

class MessageReader {
  public:
    MessageReader(Stream& stream, HeadKind kind);

    // The next head. REQUIRES: the body before it was read to its end. Nothing: the stream ended before its first byte.
    // invalid_argument: malformed; resource: longer than limits::http_head_bytes_max.
    // `first_byte_limit` and `head_limit` bound the wait for the first byte, and from there to the end of the head.
    Task<Result<std::optional<Head>>> next_head(Duration first_byte_limit, Duration head_limit);
    // Answers only: the one to this request has no body whatever its head says (HEAD).
    void no_body() { body_ = Body::none; }

    // Fills `into`, or less if the body ends before. `arrived` is told of all bytes in order.
    Task<Result<std::size_t>> read(std::span<std::byte> into, const Arrived* arrived = nullptr);
    // Some next bytes of the body that lie in this reader's memory, read from the stream if there are none; empty at
    // the end of the body. Valid until anything else is called; take() says how many were used.
    Task<Result<std::span<const std::byte>>> look();
    void take(std::size_t size_bytes);

    bool body_ended() const;
    // Bytes of the body that are still to come, where its head gave its length.
    std::optional<std::uint64_t> body_left() const;
    // Whether bytes lie here that nobody has looked at yet: of the body, or of the next message.
    bool holds_bytes() const { return begin_ != end_; }

  private:
    enum class Body : std::uint8_t { none, length, chunked, until_close };

    std::span<std::byte> held() { return std::span(bytes_).subspan(begin_, end_ - begin_); }
    // Reads more into the buffer; 0 is the end of the stream.
    Task<Result<std::size_t>> fill();
    // Chunked: works through framing until payload or the end is next.
    Task<Result<void>> reach_payload();
    void start_body(const Head& head);

    Stream& stream_;
    const HeadKind kind_;
    std::vector<std::byte> bytes_;
    std::size_t begin_ = 0, end_ = 0;
    Body body_ = Body::none;
    std::uint64_t left_ = 0;  // length
    bool closed_ = false;     // until_close
    TransferChunked chunks_;
};

}  // namespace kvern::http
