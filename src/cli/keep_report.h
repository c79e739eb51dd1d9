// SPDX-License-Identifier: Apache-2.0
// What gc, du and fsck say alike: foreign files, space, counts. Pure functions.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "base/text.h"
#include "keep/catalogue.h"

namespace kvern::cli {

inline nlohmann::ordered_json foreign_json(const Foreign& foreign) {
    return {{"files", foreign.files}, {"bytes", foreign.bytes}, {"example", url_escape(foreign.example)}};
}

inline nlohmann::ordered_json space_json(const Space& space) {
    return {
        {"capacity_bytes", space.capacity_bytes}, {"free_bytes", space.free_bytes}, {"quota_bytes", space.quota_bytes}};
}

// "1 object", "3 objects"
inline std::string counted(std::uint64_t count, std::string_view noun) {
    return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

inline std::string foreign_line(const Foreign& foreign) {
    return fmt::format("not Kvern's: {}, {}, such as '{}'; these are never removed\n", counted(foreign.files, "file"),
                       format_size(foreign.bytes), url_escape(foreign.example));
}

inline std::string space_line(const Space& space) {
    if (space.capacity_bytes == 0) return "free space: not told by this store\n";
    const auto quota = space.quota_bytes == 0 ? "" : fmt::format(", quota {}", format_size(space.quota_bytes));
    return fmt::format("free space: {} of {}{}\n", format_size(space.free_bytes), format_size(space.capacity_bytes),
                       quota);
}

inline std::string json_line(const nlohmann::ordered_json& document) {
    return document.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace kvern::cli
