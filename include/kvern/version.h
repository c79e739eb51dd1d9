// SPDX-License-Identifier: Apache-2.0
// The version of Kvern, as of this build.
#pragma once

#include <string_view>

namespace kvern {

std::string_view version();  // "0.1.0"

}  // namespace kvern
