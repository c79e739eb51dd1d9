// SPDX-License-Identifier: Apache-2.0
// Memory for tests of the fabric.
#pragma once

#include <memory>

#include "kvern/memory.h"

namespace kvern::fabric {

inline std::shared_ptr<Region> region_of(std::size_t size_bytes) {
    RegionOptions options;
    options.size_bytes = size_bytes;
    options.touch_in_background = false;
    return *Region::create(options);
}

}  // namespace kvern::fabric
