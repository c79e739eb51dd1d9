// SPDX-License-Identifier: Apache-2.0
// Small text tools: hex, base64, URL escapes, sizes, durations, depth of JSON, and "did you mean". Pure functions.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "kvern/result.h"

namespace kvern {

std::string to_hex(std::span<const std::uint8_t> bytes);     // lower case
std::string to_hex(std::string_view bytes);                  // the bytes of a string
std::optional<std::string> from_hex(std::string_view text);  // bytes; nothing if odd or not hex

std::string to_base64(std::string_view bytes);  // with padding, on one line
// Strict: padding where it belongs, no line ends, no bits beyond the last byte. Nothing if it is anything else.
std::optional<std::string> from_base64(std::string_view text);

// %XX escapes: every byte except A-Z a-z 0-9 - . _ ~ and '/' is escaped.
std::string url_escape(std::string_view bytes);
Result<std::string> url_unescape(std::string_view text);  // error names the position of a broken escape

// "64KiB", "1MiB", "2GiB", "1TiB", "4096" -> bytes. Only these suffixes (powers of two).
Result<std::uint64_t> parse_size(std::string_view text);
std::string format_size(std::uint64_t size_bytes);  // "16 MiB", "1.5 GiB", "300 B"

// "500ms", "30s", "10m", "12h", "7d" -> milliseconds. A whole number with one of these suffixes.
Result<std::chrono::milliseconds> parse_duration(std::string_view text);
std::string format_duration(std::chrono::milliseconds duration);  // the same way: "90m", "1500ms", "0s"

// A string of JSON with its quotes. Bytes that are not UTF-8 become U+FFFD.
std::string json_text(std::string_view text);

// Whether the brackets and braces of a JSON text (valid or not) nest deeper than `depth_max`. Ask before parsing what
// comes from outside: copying or printing a parsed document calls itself once a level.
bool json_deeper_than(std::string_view text, std::size_t depth_max);

// The candidate nearest to `word` by edit distance, if it is near enough to be meant.
std::optional<std::string_view> nearest(std::string_view word, std::span<const std::string_view> candidates);
// " (did you mean 'depth'?)", or " (known: a, b, c)".
std::string suggestion(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace kvern
