// SPDX-License-Identifier: Apache-2.0
#include "cache/group.h"

#include <array>

namespace kvern {
namespace {

constexpr std::array<std::string_view, 3> names = {"full", "window", "state"};

}  // namespace

std::string_view to_string(GroupKind kind) {
    return names[static_cast<std::size_t>(kind)];
}

std::optional<GroupKind> group_kind(std::string_view name) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) return std::nullopt;
    return static_cast<GroupKind>(found - names.begin());
}

}  // namespace kvern
