// SPDX-License-Identifier: Apache-2.0
#include "http/range.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

namespace kvern::http {
namespace {

// Nothing but digits. What is too large for a number is larger than every object as well.
std::optional<std::uint64_t> number(std::string_view text) {
    if (text.empty() || text.find_first_not_of("0123456789") != text.npos) return std::nullopt;
    std::uint64_t value = 0;
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc::result_out_of_range ? std::numeric_limits<std::uint64_t>::max() : value;
}

bool take_unit(std::string_view& text) {
    constexpr std::string_view unit = "bytes";
    if (text.size() <= unit.size()) return false;
    const bool same = std::equal(unit.begin(), unit.end(), text.begin(),
                                 [](char a, char b) { return a == (b >= 'A' && b <= 'Z' ? b - 'A' + 'a' : b); });
    if (same) text.remove_prefix(unit.size());
    return same;
}

constexpr Range unsatisfiable{RangeKind::unsatisfiable, 0, 0};

Range last_bytes(std::uint64_t count, std::uint64_t size_bytes) {
    const std::uint64_t length = std::min(count, size_bytes);
    if (length == 0) return unsatisfiable;
    return {RangeKind::part, size_bytes - length, length};
}

}  // namespace

Range parse_range(std::string_view header, std::uint64_t size_bytes) {
    if (!take_unit(header) || header.front() != '=') return {};
    header.remove_prefix(1);
    const std::size_t dash = header.find('-');
    if (dash == header.npos) return {};
    const auto first = number(header.substr(0, dash));
    const auto last = number(header.substr(dash + 1));
    const bool open = dash + 1 == header.size();
    if (dash == 0) return last ? last_bytes(*last, size_bytes) : Range{};
    if (!first || (!last && !open) || (last && *last < *first)) return {};
    if (*first >= size_bytes) return unsatisfiable;
    const std::uint64_t end = open ? size_bytes - 1 : std::min(*last, size_bytes - 1);
    return {RangeKind::part, *first, end - *first + 1};
}

std::string content_range(const Range& range, std::uint64_t size_bytes) {
    if (range.kind == RangeKind::unsatisfiable) return fmt::format("bytes */{}", size_bytes);
    return fmt::format("bytes {}-{}/{}", range.offset, range.offset + range.length - 1, size_bytes);
}

std::optional<ContentRange> parse_content_range(std::string_view header) {
    if (!take_unit(header) || header.front() != ' ') return std::nullopt;
    header.remove_prefix(1);
    const std::size_t dash = header.find('-');
    const std::size_t slash = header.find('/');
    if (dash == header.npos || slash == header.npos || slash < dash) return std::nullopt;
    const auto first = number(header.substr(0, dash));
    const auto last = number(header.substr(dash + 1, slash - dash - 1));
    const auto size_bytes = number(header.substr(slash + 1));
    if (!first || !last || !size_bytes || *last < *first || *last >= *size_bytes) return std::nullopt;
    return ContentRange{*first, *last - *first + 1, *size_bytes};
}

}  // namespace kvern::http
