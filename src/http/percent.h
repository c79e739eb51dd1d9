// SPDX-License-Identifier: Apache-2.0
// Percent-encoding as S3 and SigV4 want it: every byte except A-Z a-z 0-9 - . _ ~ becomes %XX, upper case, exactly
// once.
//
// Pure functions, any thread. They know nothing of paths and queries but the two choices below, which the caller makes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kvern/result.h"

namespace kvern::http {

enum class Slash : std::uint8_t { keep, encode };   // '/' stays in a path, not in a query
enum class Plus : std::uint8_t { literal, space };  // '+' is a plain byte in a path, a space in a query

void append_percent_encoded(std::string& to, std::string_view bytes, Slash slash);
std::string percent_encode(std::string_view bytes, Slash slash);

// Appends the decoded bytes. False where a '%' is not followed by two hex digits; `to` then holds what stood before it.
bool append_percent_decoded(std::string& to, std::string_view text, Plus plus);
// The error (invalid_argument) names the position.
Result<std::string> percent_decode(std::string_view text, Plus plus);

}  // namespace kvern::http
