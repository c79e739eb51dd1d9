// SPDX-License-Identifier: Apache-2.0
// One header of an HTTP message, as a view into bytes that belong to somebody else.
#pragma once

#include <string_view>

namespace kvern {

struct HeaderView {
    std::string_view name;  // lower case
    std::string_view value;
};

}  // namespace kvern
