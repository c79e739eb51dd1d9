// SPDX-License-Identifier: Apache-2.0
// CRC-32 as in zlib and Ethernet, S3's x-amz-checksum-crc32: what most clients send unless they are told otherwise.
//
// Pure functions, any thread. The fastest path that the CPU has is chosen once at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kvern {

// The checksum of `size_bytes` bytes that follow bytes whose checksum is `crc` (0 at the start). Standard form: the
// initial and final inversion are inside, so crc32(0, "123456789") == 0xCBF43926 and calls chain.
std::uint32_t crc32(std::uint32_t crc, const void* data, std::size_t size_bytes);

// Of two messages one after the other, from the checksums of both and the size of the second.
std::uint32_t crc32_combine(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes);

// "vpclmulqdq512", "vpclmulqdq", "pclmulqdq" or "table".
std::string_view crc32_path();

// For tests and benches: runs one given path, whatever was chosen. Unavailable paths return false and do nothing.
bool crc32_with(std::string_view path, std::uint32_t& crc, const void* data, std::size_t size_bytes);

}  // namespace kvern
