// SPDX-License-Identifier: Apache-2.0
// Heads of HTTP/1.1 messages as received. Parsing is Boost.Beast's, behind this header.
//
// Values, for one thread. Nothing is decoded: target and values are the wire's bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "http/header_view.h"
#include "kvern/result.h"

namespace kvern::http {

struct Head {
    std::string_view method, target;  // requests
    unsigned status = 0;              // answers
    std::vector<HeaderView> headers;  // names in lower case, in the order of arrival
    std::optional<std::uint64_t> content_length;
    bool chunked = false;      // the body comes in chunks
    bool until_close = false;  // answers: the body ends with the connection
    bool keep_alive = false;
    bool expects_continue = false;

    // The first value, or nothing; `name` in lower case.
    std::optional<std::string_view> find(std::string_view name) const;

    std::unique_ptr<char[]> text;  // what the views point into
};

enum class HeadKind : bool { request, response };

// Where a complete head ends in `input`, or nothing if more is needed. `searched` remembers between calls how far was
// looked; start it with 0.
std::optional<std::size_t> head_end(std::span<const std::byte> input, std::size_t& searched);

// REQUIRES: `input` is exactly one head, to its empty line. invalid_argument says what is malformed.
Result<Head> parse_head(HeadKind kind, std::span<const std::byte> input);

// A list such as "a, b" has this word, whatever its case.
bool has_token(std::string_view list, std::string_view word);

std::string_view reason_phrase(unsigned status);  // "Not Found"

}  // namespace kvern::http
