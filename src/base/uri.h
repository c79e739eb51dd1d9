// SPDX-License-Identifier: Apache-2.0
// Store URIs: scheme, path, parameters. A parameter that nobody asked for is an error, never ignored.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "kvern/result.h"

namespace kvern {

struct Uri {
    std::string text;    // as given, for messages
    std::string scheme;  // lower case, without ':'
    std::string host;    // between "//" and the next '/', unescaped; empty where there is none
    std::string path;    // unescaped; file:///mnt/kv -> "/mnt/kv"
    std::map<std::string, std::string, std::less<>> params;  // unescaped; a repeated name is an error

    static Result<Uri> parse(std::string_view text);

    // Errors if a parameter is not in `known`, naming it, its value and the nearest known one.
    Result<void> only(std::span<const std::string_view> known) const;
    // The value, or `fallback` if absent; errors if it is none of `allowed`.
    Result<std::string> choice(std::string_view name, std::string_view fallback,
                               std::span<const std::string_view> allowed) const;
    Result<std::uint64_t> number(std::string_view name, std::uint64_t fallback, std::uint64_t min,
                                 std::uint64_t max) const;
    Result<std::uint64_t> size(std::string_view name, std::uint64_t fallback, std::uint64_t min) const;  // "256MiB"
};

}  // namespace kvern
