// SPDX-License-Identifier: Apache-2.0
// Four kinds of text stand where a component goes on, and they sort as what they stand for: '#' (the key ends here),
// %XX (a low byte), '/' (the component ends here), all other bytes.
#include "server/key_map.h"

#include <fmt/format.h>

#include "kvern/limits.h"

namespace kvern::server {
namespace {

constexpr std::string_view digits = "0123456789ABCDEF";
constexpr char key_end = '#';
constexpr char empty_component = '-';        // no other piece begins below '/' without a '%'
constexpr char goes_on_below = '%';          // a piece ends, its component goes on with a byte below '/' ...
constexpr char goes_on_above = '~';          // ... or above
constexpr unsigned escaped_max = '%';        // anywhere: '#' and '%' mean something
constexpr unsigned escaped_first_max = '.';  // at the beginning of a piece: no name is '.', '..' or ".kvern-..."
constexpr char high_escape = '\xfe';
constexpr std::size_t piece_bytes = 240;  // with a last escape and a mark it is a good file name everywhere
static_assert(piece_bytes + 2 + 1 <= limits::key_component_bytes_max);
// Three bytes for each byte, and two for each piece but the last, which has one.
static_assert(3 * limits::s3_key_bytes_max + 2 * (3 * limits::s3_key_bytes_max / piece_bytes) + 1 + 400 <=
              limits::key_bytes_max);

// Writes the mapped text byte by byte.
class Mapper {
  public:
    void add(char c) {
        if (c == '/') {
            end_component();
        } else {
            add_inside(c);
        }
    }

    std::string text;

  private:
    void end_component() {
        if (text.size() == piece_start_) text += empty_component;
        start_piece();
    }

    void add_inside(char c) {
        if (text.size() - piece_start_ >= piece_bytes) {
            text += c < '/' && c >= 0 ? goes_on_below : goes_on_above;
            start_piece();
        }
        const auto byte = static_cast<unsigned char>(c);
        const unsigned limit = text.size() == piece_start_ ? escaped_first_max : escaped_max;
        if (byte <= limit) {
            text += '%';
            text += digits[byte >> 4];
            text += digits[byte & 15];
        } else if (byte >= 0xfe) {
            text += high_escape;
            text += c;
        } else {
            text += c;
        }
    }

    void start_piece() {
        text += '/';
        piece_start_ = text.size();
    }

    std::size_t piece_start_ = 0;
};

Mapper map_all(std::string_view bytes) {
    Mapper mapper;
    mapper.text.reserve(bytes.size() + 8);
    for (const char c : bytes) mapper.add(c);
    return mapper;
}

unsigned hex_value(char c) {
    const std::size_t value = digits.find(c);
    return value == digits.npos ? 16 : static_cast<unsigned>(value);
}

// Takes a mapped text apart; what it gives for a text that no key has is checked by mapping it again.
std::string unmap_loosely(std::string_view stored) {
    std::string key;
    std::size_t piece_start = 0;
    for (std::size_t i = 0; i < stored.size(); ++i) {
        const char c = stored[i];
        const std::string_view rest = stored.substr(i + 1);
        const bool ends_piece = rest.starts_with('/');
        const bool is_mark = i - piece_start >= piece_bytes && (c == goes_on_below || c == goes_on_above);
        if (ends_piece && (is_mark || (c == empty_component && i == piece_start))) {
            if (!is_mark) key += '/';
            piece_start = i + 2;
            ++i;
        } else if (c == '/') {
            key += '/';
            piece_start = i + 1;
        } else if (c == '%' && rest.size() >= 2) {
            key += static_cast<char>(hex_value(rest[0]) << 4 | (hex_value(rest[1]) & 15));
            i += 2;
        } else if (c == high_escape && !rest.empty()) {
            key += rest[0];
            ++i;
        } else {
            key += c;
        }
    }
    return key;
}

}  // namespace

std::string map_key(std::string_view key) {
    std::string text = map_all(key).text;
    text += key_end;
    return text;
}

Result<std::string> unmap_key(std::string_view stored) {
    if (stored.ends_with(key_end)) {
        std::string key = unmap_loosely(stored.substr(0, stored.size() - 1));
        if (!key.empty() && key.size() <= limits::s3_key_bytes_max && map_key(key) == stored) return key;
    }
    return fail(ErrorCode::corrupt, fmt::format("'{}' in the store is no mapped key of S3", stored));
}

std::string map_prefix(std::string_view prefix) {
    return map_all(prefix).text;
}

std::string after_prefix(std::string_view prefix) {
    return map_prefix(prefix) + '\xff';
}

}  // namespace kvern::server
