// SPDX-License-Identifier: Apache-2.0
// Ranges of an object: what a Range header asks for, decided as S3 decides it, and what Content-Range says.
//
// Pure functions, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kvern::http {

enum class RangeKind : std::uint8_t {
    whole,         // 200: there is no such header, or none that S3 takes seriously
    part,          // 206
    unsatisfiable  // 416
};

struct Range {
    RangeKind kind = RangeKind::whole;
    std::uint64_t offset = 0;
    std::uint64_t length = 0;  // never beyond the end of the object
    bool operator==(const Range&) const = default;
};

// "bytes=a-b", "bytes=a-" or "bytes=-n" of an object of that size. Several ranges, inverted ones and everything that is
// malformed are ignored; what begins at or after the end, and the last 0 bytes, are unsatisfiable.
Range parse_range(std::string_view header, std::uint64_t size_bytes);

std::string content_range(const Range& range, std::uint64_t size_bytes);  // "bytes 0-9/100", "bytes */100"

struct ContentRange {
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
    std::uint64_t size_bytes = 0;  // of the whole object
};
// What a server says it sends; nothing where that is not one range of an object of known size.
std::optional<ContentRange> parse_content_range(std::string_view header);

}  // namespace kvern::http
