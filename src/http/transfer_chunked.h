// SPDX-License-Identifier: Apache-2.0
// The framing of `Transfer-Encoding: chunked`, as a pure decoder: it says whether framing or payload comes next, and
// never holds payload, so that this can be received straight into its place.
//
// One body after the other, one thread. Trailers are skipped; extensions of chunks are ignored, as the RFC asks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "kvern/result.h"

namespace kvern::http {

class TransferChunked {
  public:
    void start();

    enum class Need : std::uint8_t { framing, payload, end };
    Need need() const { return need_; }

    // Need::framing: looks at the next bytes and says how many were used, which is all of them unless payload or the
    // end is reached. invalid_argument: no chunk size, too long a line, too many trailers.
    Result<std::size_t> framing(std::span<const std::byte> bytes);

    // Need::payload: so many bytes of the chunk are to come; `size_bytes` of them have been taken.
    std::uint64_t payload_left() const { return left_; }
    void payload(std::uint64_t size_bytes);

  private:
    Result<void> line_over();

    enum class Line : std::uint8_t { size, after_payload, trailer };
    Need need_ = Need::end;
    Line line_ = Line::size;
    std::string text_;  // of the line so far
    std::uint64_t left_ = 0;
    std::size_t trailer_bytes_ = 0;
};

}  // namespace kvern::http
