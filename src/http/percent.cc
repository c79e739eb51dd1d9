// SPDX-License-Identifier: Apache-2.0
#include "http/percent.h"

#include <fmt/format.h>

#include <array>

namespace kvern::http {
namespace {

constexpr std::string_view digits = "0123456789ABCDEF";

constexpr std::array<bool, 256> make_unreserved() {
    std::array<bool, 256> table{};
    for (unsigned c = '0'; c <= '9'; ++c) table[c] = true;
    for (unsigned c = 'A'; c <= 'Z'; ++c) table[c] = table[c + 32] = true;
    for (const char c : {'-', '.', '_', '~'}) table[static_cast<unsigned char>(c)] = true;
    return table;
}

constexpr std::array<bool, 256> unreserved = make_unreserved();

// 16 where it is no hex digit.
unsigned hex_value(char c) {
    if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
    if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a' + 10);
    if (c >= 'A' && c <= 'F') return static_cast<unsigned>(c - 'A' + 10);
    return 16;
}

// Where decoding ended: text.size(), or the position of a broken escape.
std::size_t decode(std::string& to, std::string_view text, Plus plus) {
    const auto means_something = [&](char c) { return c == '%' || (c == '+' && plus == Plus::space); };
    for (std::size_t i = 0; i < text.size(); ++i) {
        std::size_t end = i;
        while (end < text.size() && !means_something(text[end])) ++end;
        to.append(text, i, end - i);
        i = end;
        if (i == text.size()) break;
        if (text[i] == '+') {
            to += ' ';
        } else {
            const unsigned high = text.size() - i > 2 ? hex_value(text[i + 1]) : 16;
            const unsigned low = high < 16 ? hex_value(text[i + 2]) : 16;
            if (low == 16) return i;
            to += static_cast<char>(high << 4 | low);
            i += 2;
        }
    }
    return text.size();
}

}  // namespace

void append_percent_encoded(std::string& to, std::string_view bytes, Slash slash) {
    const auto stays = [&](char c) {
        return unreserved[static_cast<unsigned char>(c)] || (c == '/' && slash == Slash::keep);
    };
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        std::size_t end = i;
        while (end < bytes.size() && stays(bytes[end])) ++end;
        to.append(bytes, i, end - i);
        i = end;
        if (i == bytes.size()) break;
        const auto byte = static_cast<unsigned char>(bytes[i]);
        const char escaped[] = {'%', digits[byte >> 4], digits[byte & 15]};
        to.append(escaped, sizeof escaped);
    }
}

std::string percent_encode(std::string_view bytes, Slash slash) {
    std::string text;
    text.reserve(bytes.size());
    append_percent_encoded(text, bytes, slash);
    return text;
}

bool append_percent_decoded(std::string& to, std::string_view text, Plus plus) {
    return decode(to, text, plus) == text.size();
}

Result<std::string> percent_decode(std::string_view text, Plus plus) {
    std::string bytes;
    bytes.reserve(text.size());
    const std::size_t end = decode(bytes, text, plus);
    if (end == text.size()) return bytes;
    return fail(ErrorCode::invalid_argument,
                fmt::format("broken escape at position {}: '%' needs two hex digits (a plain '%' is %25)", end));
}

}  // namespace kvern::http
