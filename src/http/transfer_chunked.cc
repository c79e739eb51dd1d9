// SPDX-License-Identifier: Apache-2.0
#include "http/transfer_chunked.h"

#include "kvern/limits.h"

namespace kvern::http {
namespace {

int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

Result<std::uint64_t> chunk_size(std::string_view line) {
    std::uint64_t size = 0;
    std::size_t digits = 0;
    for (; digits < line.size(); ++digits) {
        const int digit = hex_digit(line[digits]);
        if (digit < 0) break;
        if (digits == 15) return fail(ErrorCode::invalid_argument, "chunked body: a chunk's size is absurd");
        size = size * 16 + static_cast<std::uint64_t>(digit);
    }
    const auto rest = line.substr(digits);
    const bool ended = rest.empty() || rest[0] == ';' || rest[0] == ' ' || rest[0] == '\t';
    if (digits == 0 || !ended) return fail(ErrorCode::invalid_argument, "chunked body: a chunk's size is not hex");
    return size;
}

}  // namespace

void TransferChunked::start() {
    need_ = Need::framing;
    line_ = Line::size;
    text_.clear();
    left_ = 0;
    trailer_bytes_ = 0;
}

Result<std::size_t> TransferChunked::framing(std::span<const std::byte> bytes) {
    std::size_t used = 0;
    while (used < bytes.size() && need_ == Need::framing) {
        const char c = static_cast<char>(bytes[used++]);
        if (c != '\n') {
            text_ += c;
            if (text_.size() > limits::chunk_line_bytes_max) {
                return fail(ErrorCode::invalid_argument, "chunked body: a line is too long");
            }
            continue;
        }
        if (!text_.ends_with('\r')) return fail(ErrorCode::invalid_argument, "chunked body: a line ends without CR");
        text_.pop_back();
        if (auto over = line_over(); !over) return tl::unexpected(over.error());
        text_.clear();
    }
    return used;
}

Result<void> TransferChunked::line_over() {
    switch (line_) {
        case Line::size: {
            const auto size = chunk_size(text_);
            if (!size) return tl::unexpected(size.error());
            left_ = *size;
            line_ = left_ > 0 ? Line::after_payload : Line::trailer;
            if (left_ > 0) need_ = Need::payload;
            return {};
        }
        case Line::after_payload:
            if (!text_.empty())
                return fail(ErrorCode::invalid_argument, "chunked body: a chunk is longer than it says");
            line_ = Line::size;
            return {};
        case Line::trailer:
            trailer_bytes_ += text_.size() + 2;
            if (trailer_bytes_ > limits::trailer_bytes_max) {
                return fail(ErrorCode::invalid_argument, "chunked body: its trailers are too long");
            }
            if (text_.empty()) need_ = Need::end;
            return {};
    }
    return fail(ErrorCode::internal, "chunked body: unknown state");
}

void TransferChunked::payload(std::uint64_t size_bytes) {
    left_ -= size_bytes;
    if (left_ == 0) need_ = Need::framing;
}

}  // namespace kvern::http
