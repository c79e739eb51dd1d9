// SPDX-License-Identifier: Apache-2.0
// CRC-64/NVME, S3's x-amz-checksum-crc64nvme.
//
// Pure functions, any thread. The fastest path that the CPU has is chosen once at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kvern {

// The checksum of `size_bytes` bytes that follow bytes whose checksum is `crc` (0 at the start). Standard form: the
// initial and final inversion are inside, so crc64nvme(0, "123456789") == 0xAE8B14860A799888 and calls chain.
std::uint64_t crc64nvme(std::uint64_t crc, const void* data, std::size_t size_bytes);

// Of two messages one after the other, from the checksums of both and the size of the second.
std::uint64_t crc64nvme_combine(std::uint64_t first, std::uint64_t second, std::uint64_t second_bytes);

// "vpclmulqdq512", "vpclmulqdq", "pclmulqdq" or "table".
std::string_view crc64nvme_path();

// For tests and benches: runs one given path, whatever was chosen. Unavailable paths return false and do nothing.
bool crc64nvme_with(std::string_view path, std::uint64_t& crc, const void* data, std::size_t size_bytes);

}  // namespace kvern
