// SPDX-License-Identifier: Apache-2.0
// CRC32C (Castagnoli, as in iSCSI and S3's x-amz-checksum-crc32c), and the copy that sums what it moves.
//
// Pure functions, any thread. The fastest path that the CPU has is chosen once at run time: VPCLMULQDQ (fused,
// non-temporal), PCLMULQDQ + SSE4.2 + AVX2 (lagged: sums the destination one block behind the copy), or tables
// anywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kvern {

// The checksum of `size_bytes` bytes that follow bytes whose checksum is `crc` (0 at the start). Standard form: the
// initial and final inversion are inside, so crc32c(0, "123456789") == 0xE3069283 and calls chain.
std::uint32_t crc32c(std::uint32_t crc, const void* data, std::size_t size_bytes);

// Of two messages one after the other, from the checksums of both and the size of the second.
std::uint32_t crc32c_combine(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes);

// Copies and returns the checksum of what was stored, chained as crc32c() is. Each source byte is loaded once, so a
// source that changes meanwhile can't give a sum of other bytes than those in the destination. The ranges must not
// overlap. A thread that hands the destination to another must synchronise as usual; the non-temporal path fences
// before returning.
std::uint32_t copy_crc32c(std::uint32_t crc, void* destination, const void* source, std::size_t size_bytes);

// "vpclmulqdq", "sse4.2+avx2" or "table".
std::string_view crc32c_path();

// For tests and benches: runs one given path, whatever was chosen. Unavailable paths return false and do nothing.
bool crc32c_with(std::string_view path, std::uint32_t& crc, const void* data, std::size_t size_bytes);
bool copy_crc32c_with(std::string_view path, std::uint32_t& crc, void* destination, const void* source,
                      std::size_t size_bytes);

}  // namespace kvern
