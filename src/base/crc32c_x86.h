// SPDX-License-Identifier: Apache-2.0
// Loads for the x86-64 kernels of all CRCs. Inside base/ only. Pure functions, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace kvern::crc {

// Eight bytes, any alignment.
inline std::uint64_t load8(const std::byte* data) {
    std::uint64_t word = 0;
    std::memcpy(&word, data, sizeof word);
    return word;
}

// Asks for the cache line of `address`, which may lie outside of any object: it is never dereferenced.
inline void prefetch(const std::byte* address) {
    __builtin_prefetch(address);
}

}  // namespace kvern::crc
