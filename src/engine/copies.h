// SPDX-License-Identifier: Apache-2.0
// Copies between KV memory on a device and staging, which only the engine's own runtime can make.
//
// A half hands copies out, the engine's thread starts them in the right order on the device and says which have ended
// (worker_half.h: take_copies, copied). Until then staging and blocks belong to the copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvern {

struct DeviceCopy {
    std::uint64_t ticket = 0;  // names the copy when it has ended
    std::uint32_t group = 0;
    std::vector<std::int32_t> blocks;  // the device's blocks, in the order of the object's pages; no_block: left out
    std::byte* slices = nullptr;       // in staging: a slice a layer, ObjectLayout::slice_stride apart
};

}  // namespace kvern
