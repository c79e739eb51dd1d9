// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

namespace kvern {
namespace {

constexpr std::string_view digits_lower = "0123456789abcdef";
constexpr std::string_view digits_upper = "0123456789ABCDEF";

std::optional<unsigned> hex_value(char c) {
    if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
    if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a' + 10);
    if (c >= 'A' && c <= 'F') return static_cast<unsigned>(c - 'A' + 10);
    return std::nullopt;
}

std::optional<char> hex_byte(std::string_view two) {
    if (two.size() != 2) return std::nullopt;
    const auto high = hex_value(two[0]);
    const auto low = hex_value(two[1]);
    if (!high || !low) return std::nullopt;
    return static_cast<char>(*high << 4 | *low);
}

constexpr std::string_view base64_digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

// 255 for what is no digit.
constexpr std::array<std::uint8_t, 256> base64_values = [] {
    std::array<std::uint8_t, 256> values{};
    values.fill(255);
    for (std::size_t i = 0; i < base64_digits.size(); ++i) {
        values[static_cast<unsigned char>(base64_digits[i])] = static_cast<std::uint8_t>(i);
    }
    return values;
}();

bool stays_in_url(char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
           c == '_' || c == '~' || c == '/';
}

struct Unit {
    std::string_view suffix;
    unsigned shift;
};
constexpr std::array<Unit, 4> units{{{"TiB", 40}, {"GiB", 30}, {"MiB", 20}, {"KiB", 10}}};

struct TimeUnit {
    std::string_view suffix;
    std::uint64_t milliseconds;
};
constexpr std::array<TimeUnit, 5> time_units{
    {{"d", 86'400'000}, {"h", 3'600'000}, {"m", 60'000}, {"s", 1000}, {"ms", 1}}};
constexpr std::uint64_t duration_max_ms = std::uint64_t{100} * 365 * 86'400'000;  // a century: nanoseconds still fit

// Edit distance with swaps of neighbours (optimal string alignment). Words here are option names: tens of bytes.
std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::vector<std::size_t>> cost(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
    for (std::size_t i = 0; i <= a.size(); ++i) {
        for (std::size_t j = 0; j <= b.size(); ++j) {
            if (i == 0 || j == 0) {
                cost[i][j] = i + j;
                continue;
            }
            const std::size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
            cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + change});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
            }
        }
    }
    return cost[a.size()][b.size()];
}

constexpr std::size_t comparable_bytes_max = 64;  // longer words are no typing errors, and would cost n * m

}  // namespace

std::string to_hex(std::span<const std::uint8_t> bytes) {
    std::string text;
    text.reserve(bytes.size() * 2);
    for (const std::uint8_t byte : bytes) {
        text += digits_lower[byte >> 4];
        text += digits_lower[byte & 15];
    }
    return text;
}

std::string to_hex(std::string_view bytes) {
    std::string text;
    text.reserve(bytes.size() * 2);
    for (const char c : bytes) {
        const auto byte = static_cast<unsigned char>(c);
        text += digits_lower[byte >> 4];
        text += digits_lower[byte & 15];
    }
    return text;
}

std::optional<std::string> from_hex(std::string_view text) {
    if (text.size() % 2 != 0) return std::nullopt;
    std::string bytes;
    bytes.reserve(text.size() / 2);
    for (std::size_t i = 0; i < text.size(); i += 2) {
        const auto byte = hex_byte(text.substr(i, 2));
        if (!byte) return std::nullopt;
        bytes += *byte;
    }
    return bytes;
}

std::string to_base64(std::string_view bytes) {
    std::string text;
    text.reserve((bytes.size() + 2) / 3 * 4);
    for (std::size_t i = 0; i < bytes.size(); i += 3) {
        const std::string_view group = bytes.substr(i, 3);
        std::uint32_t word = 0;
        for (std::size_t k = 0; k < 3; ++k) {
            word = word << 8 | (k < group.size() ? static_cast<unsigned char>(group[k]) : 0u);
        }
        for (std::size_t k = 0; k < 4; ++k) {
            text += k <= group.size() ? base64_digits[word >> (18 - 6 * k) & 63] : '=';
        }
    }
    return text;
}

std::optional<std::string> from_base64(std::string_view text) {
    if (text.size() % 4 != 0) return std::nullopt;
    std::size_t padding = 0;
    while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
    std::string bytes;
    bytes.reserve(text.size() / 4 * 3);
    for (std::size_t i = 0; i < text.size(); i += 4) {
        const std::size_t missing = i + 4 == text.size() ? padding : 0;
        std::uint32_t word = 0;
        for (std::size_t k = 0; k < 4; ++k) {
            const std::uint8_t value = k < 4 - missing ? base64_values[static_cast<unsigned char>(text[i + k])] : 0;
            if (value == 255) return std::nullopt;
            word = word << 6 | value;
        }
        if ((word & ((1u << (8 * missing)) - 1)) != 0) return std::nullopt;
        for (std::size_t k = 0; k < 3 - missing; ++k) bytes += static_cast<char>(word >> (16 - 8 * k) & 255);
    }
    return bytes;
}

std::string url_escape(std::string_view bytes) {
    std::string text;
    text.reserve(bytes.size());
    for (const char c : bytes) {
        if (stays_in_url(c)) {
            text += c;
            continue;
        }
        const auto byte = static_cast<unsigned char>(c);
        text += '%';
        text += digits_upper[byte >> 4];
        text += digits_upper[byte & 15];
    }
    return text;
}

Result<std::string> url_unescape(std::string_view text) {
    std::string bytes;
    bytes.reserve(text.size());
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '%') {
            bytes += text[i];
            continue;
        }
        const auto byte = hex_byte(text.substr(i + 1, 2));
        if (!byte) {
            return fail(ErrorCode::invalid_argument,
                        fmt::format("'{}': broken escape at position {}: '%' needs two hex digits (a plain '%' is %25)",
                                    text, i));
        }
        bytes += *byte;
        i += 2;
    }
    return bytes;
}

Result<std::uint64_t> parse_size(std::string_view text) {
    std::uint64_t count = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, count);
    const std::string_view suffix(rest, static_cast<std::size_t>(end - rest));
    const auto unit = std::find_if(units.begin(), units.end(), [&](const Unit& u) { return u.suffix == suffix; });
    if (error == std::errc::result_out_of_range) {
        return fail(ErrorCode::invalid_argument, fmt::format("size '{}' is too large", text));
    }
    if (error != std::errc{} || (!suffix.empty() && unit == units.end())) {
        return fail(
            ErrorCode::invalid_argument,
            fmt::format("'{}' is no size: write bytes as a whole number, or with KiB, MiB, GiB or TiB (4MiB)", text));
    }
    const unsigned shift = suffix.empty() ? 0 : unit->shift;
    if (shift != 0 && count >> (64 - shift) != 0) {
        return fail(ErrorCode::invalid_argument, fmt::format("size '{}' is too large", text));
    }
    return count << shift;
}

std::string format_size(std::uint64_t size_bytes) {
    for (const Unit& unit : units) {
        if (size_bytes >> unit.shift == 0) continue;
        const double count = static_cast<double>(size_bytes) / static_cast<double>(std::uint64_t{1} << unit.shift);
        std::string number = fmt::format("{:.2f}", count);
        while (number.back() == '0') number.pop_back();
        if (number.back() == '.') number.pop_back();
        return fmt::format("{} {}", number, unit.suffix);
    }
    return fmt::format("{} B", size_bytes);
}

Result<std::chrono::milliseconds> parse_duration(std::string_view text) {
    std::uint64_t count = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, count);
    const std::string_view suffix(rest, static_cast<std::size_t>(end - rest));
    const auto unit =
        std::find_if(time_units.begin(), time_units.end(), [&](const TimeUnit& u) { return u.suffix == suffix; });
    const bool too_long = error == std::errc::result_out_of_range ||
                          (unit != time_units.end() && count > duration_max_ms / unit->milliseconds);
    if (too_long) return fail(ErrorCode::invalid_argument, fmt::format("duration '{}' is too long", text));
    if (error != std::errc{} || unit == time_units.end()) {
        return fail(ErrorCode::invalid_argument,
                    fmt::format("'{}' is no duration: write a whole number with ms, s, m, h or d (12h)", text));
    }
    return std::chrono::milliseconds(count * unit->milliseconds);
}

std::string format_duration(std::chrono::milliseconds duration) {
    const auto count = static_cast<std::uint64_t>(duration.count());
    for (const TimeUnit& unit : time_units) {
        if (count > 0 && count % unit.milliseconds == 0) {
            return fmt::format("{}{}", count / unit.milliseconds, unit.suffix);
        }
    }
    return "0s";
}

namespace {

// Bytes of the UTF-8 character that begins here, or 0 if none does.
std::size_t utf8_bytes(std::string_view text) {
    const auto first = static_cast<unsigned char>(text.front());
    if (first < 0x80) return 1;
    const std::size_t size = first >= 0xC2 && first < 0xE0   ? 2
                             : first >= 0xE0 && first < 0xF0 ? 3
                             : first >= 0xF0 && first < 0xF5 ? 4
                                                             : 0;
    if (size == 0 || text.size() < size) return 0;
    for (std::size_t i = 1; i < size; ++i) {
        if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) return 0;
    }
    const auto second = static_cast<unsigned char>(text[1]);
    const bool overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
    const bool beyond = (first == 0xED && second >= 0xA0) || (first == 0xF4 && second >= 0x90);
    return overlong || beyond ? 0 : size;
}

}  // namespace

std::string json_text(std::string_view text) {
    std::string json = "\"";
    while (!text.empty()) {
        const auto size = utf8_bytes(text);
        const char c = text.front();
        if (size == 0) {
            json += "\\ufffd";
        } else if (c == '"' || c == '\\') {
            json += '\\';
            json += c;
        } else if (static_cast<unsigned char>(c) < 0x20) {
            json += "\\u00" + to_hex(std::string_view(&c, 1));
        } else {
            json += text.substr(0, size);
        }
        text.remove_prefix(std::max<std::size_t>(size, 1));
    }
    return json + '"';
}

bool json_deeper_than(std::string_view text, std::size_t depth_max) {
    std::size_t depth = 0;
    bool in_string = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (in_string) {
            if (c == '\\') ++i;  // whatever it escapes
            if (c == '"') in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            if (++depth > depth_max) return true;
        } else if ((c == ']' || c == '}') && depth > 0) {
            --depth;
        }
    }
    return false;
}

std::optional<std::string_view> nearest(std::string_view word, std::span<const std::string_view> candidates) {
    if (word.empty() || word.size() > comparable_bytes_max) return std::nullopt;
    // A third of the word may be wrong: 'dpeth' means 'depth', 'io' doesn't mean 'size'.
    std::size_t best_distance = std::max<std::size_t>(1, word.size() / 3) + 1;
    std::optional<std::string_view> best;
    for (const std::string_view candidate : candidates) {
        if (candidate.size() > comparable_bytes_max) continue;
        const std::size_t distance = edit_distance(word, candidate);
        // A candidate of which no byte is right is never meant, however short it is.
        if (distance < best_distance && distance < std::max(word.size(), candidate.size())) {
            best_distance = distance;
            best = candidate;
        }
    }
    return best;
}

std::string suggestion(std::string_view word, std::span<const std::string_view> candidates) {
    if (const auto meant = nearest(word, candidates)) return fmt::format(" (did you mean '{}'?)", *meant);
    if (candidates.empty()) return " (none is known here)";
    return fmt::format(" (known: {})", fmt::join(candidates, ", "));
}

}  // namespace kvern
