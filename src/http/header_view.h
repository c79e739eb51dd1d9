// SPDX-License-Identifier: Apache-2.0
// One header of a request or answer, as views of memory that somebody else keeps. Pure values, any thread.
#pragma once

#include <span>
#include <string_view>

namespace kvern::http {

struct HeaderView {
    std::string_view name;   // lower case
    std::string_view value;  // as received, without the line end
};

// The value of the first header of that name (lower case); null data where there is none.
inline std::string_view find_header(std::span<const HeaderView> headers, std::string_view name) {
    for (const HeaderView& header : headers) {
        if (header.name == name) return header.value;
    }
    return {};
}

}  // namespace kvern::http
