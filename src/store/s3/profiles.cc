// SPDX-License-Identifier: Apache-2.0
#include "store/s3/profiles.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>

#include "kvern/limits.h"

namespace kvern {
namespace {

constexpr std::string_view blanks = " \t\r\f\v";

std::string_view trimmed(std::string_view text) {
    const auto begin = std::min(text.find_first_not_of(blanks), text.size());
    text.remove_prefix(begin);
    const auto end = text.find_last_not_of(blanks);
    return text.substr(0, end == std::string_view::npos ? 0 : end + 1);
}

std::string lower(std::string_view text) {
    std::string result(text);
    for (char& c : result) {
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    return result;
}

// "profile x" and "x"; quotes around a name with spaces are dropped.
std::string section_name(std::string_view text) {
    text = trimmed(text);
    if (text.starts_with("profile") && text.size() > 7 && blanks.find(text[7]) != std::string_view::npos) {
        text = trimmed(text.substr(7));
    }
    if (text.size() >= 2 && text.front() == text.back() && (text.front() == '"' || text.front() == '\'')) {
        text = text.substr(1, text.size() - 2);
    }
    return std::string(text);
}

std::string_view without_comment(std::string_view value) {
    for (std::size_t i = 1; i < value.size(); ++i) {
        const bool after_blank = value[i - 1] == ' ' || value[i - 1] == '\t';
        if (after_blank && (value[i] == '#' || value[i] == ';')) return value.substr(0, i);
    }
    return value;
}

tl::unexpected<Error> broken_line(std::size_t number, const std::string& what) {
    return fail(ErrorCode::invalid_argument, "line " + std::to_string(number) + ": " + what);
}

}  // namespace

Result<Profiles> parse_profiles(std::string_view text) {
    Profiles profiles;
    Profile* profile = nullptr;
    bool after_pair = false;
    for (std::size_t number = 1; !text.empty(); ++number) {
        const auto end = std::min(text.find('\n'), text.size());
        const auto raw = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        const auto line = trimmed(raw);
        if (line.empty() || line.front() == '#' || line.front() == ';') continue;
        if (after_pair && (raw.front() == ' ' || raw.front() == '\t')) continue;
        after_pair = false;
        if (line.front() == '[') {
            const auto close = line.find(']');
            if (close == std::string_view::npos) return broken_line(number, "a ']' is missing");
            profile = &profiles[section_name(line.substr(1, close - 1))];
            continue;
        }
        const auto equals = line.find('=');
        if (equals == std::string_view::npos || equals == 0) return broken_line(number, "expected name = value");
        if (profile == nullptr) return broken_line(number, "a pair before the first [section]");
        (*profile)[lower(trimmed(line.substr(0, equals)))] = trimmed(without_comment(line.substr(equals + 1)));
        after_pair = true;
    }
    return profiles;
}

Result<std::optional<Profiles>> read_profiles(const std::string& path) {
    errno = 0;
    std::ifstream file(path, std::ios::binary);
    if (!file) {
        if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
        return tl::unexpected(error_from_errno(errno == 0 ? EIO : errno, path));
    }
    std::string text(limits::s3_profile_bytes_max + 1, '\0');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    if (file.bad()) return tl::unexpected(error_from_errno(errno == 0 ? EIO : errno, path));
    text.resize(static_cast<std::size_t>(file.gcount()));
    if (text.size() > limits::s3_profile_bytes_max) {
        return fail(ErrorCode::invalid_argument,
                    path + ": longer than " + std::to_string(limits::s3_profile_bytes_max) + " bytes");
    }
    auto profiles = parse_profiles(text);
    if (!profiles) return fail(profiles.error().code, path + ": " + profiles.error().message);
    return std::optional<Profiles>(std::move(*profiles));
}

}  // namespace kvern
