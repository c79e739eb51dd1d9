// SPDX-License-Identifier: Apache-2.0
// CRC32C by crc32q in four lanes, and the lagged copy: each loop step copies 32 bytes of block j+1 and sums 32 bytes of
// block j where it landed. A loop that only copies waits for memory and one that only sums doesn't use it: in one loop
// the sum is free. (Inline sums after a memcpy of the block cost 1.3 times the memcpy and more.)
#if defined(__x86_64__)

#include <immintrin.h>

#include <cstring>

#include "base/crc32c_path.h"
#include "base/crc32c_x86.h"

namespace kvern::crc {
namespace {

#define KVERN_SSE42 __attribute__((target("sse4.2,pclmul,avx2")))

// A copy's first block is not summed and its last is not copied meanwhile: small copies take smaller blocks.
constexpr std::size_t large_block_bytes = 4096;
constexpr std::size_t small_block_bytes = 1024;
constexpr std::size_t large_copy_bytes_min = 16 << 10;
constexpr std::size_t load_ahead_bytes = 2048;  // hardware prefetchers stop at the end of a page
constexpr std::size_t store_ahead_bytes = 1024;

// Appends zero bytes to three sums and adds them up. clmul of two reflected 32-bit values is their product times x when
// read as 8 message bytes, and crc32q multiplies by x^32 more: so the factor for n bits is x^(n - 33).
template <std::size_t lane_bytes>
KVERN_SSE42 inline std::uint64_t combine(std::uint64_t first, std::uint64_t second, std::uint64_t third,
                                         std::uint64_t fourth) {
    static constexpr std::uint32_t by_three = x_to(3 * lane_bytes * 8 - 33);
    static constexpr std::uint32_t by_two = x_to(2 * lane_bytes * 8 - 33);
    static constexpr std::uint32_t by_one = x_to(lane_bytes * 8 - 33);
    const auto product = [](std::uint64_t value, std::uint32_t factor) KVERN_SSE42 {
        return _mm_clmulepi64_si128(_mm_cvtsi64_si128(static_cast<long long>(value)), _mm_cvtsi64_si128(factor), 0);
    };
    const __m128i sum =
        _mm_xor_si128(_mm_xor_si128(product(first, by_three), product(second, by_two)), product(third, by_one));
    return _mm_crc32_u64(0, static_cast<std::uint64_t>(_mm_cvtsi128_si64(sum))) ^ fourth;
}

// Four lanes side by side: crc32q takes 3 cycles but a new one can start each cycle.
template <std::size_t lane_bytes>
KVERN_SSE42 inline std::uint64_t sum_lanes(std::uint64_t state, const std::byte* data) {
    std::uint64_t second = 0;
    std::uint64_t third = 0;
    std::uint64_t fourth = 0;
    for (std::size_t i = 0; i < lane_bytes; i += 8) {
        state = _mm_crc32_u64(state, load8(data + i));
        second = _mm_crc32_u64(second, load8(data + lane_bytes + i));
        third = _mm_crc32_u64(third, load8(data + 2 * lane_bytes + i));
        fourth = _mm_crc32_u64(fourth, load8(data + 3 * lane_bytes + i));
    }
    return combine<lane_bytes>(state, second, third, fourth);
}

// Copies one block from `source` to `destination` while summing the block before it, which ends at `destination`.
// `next` is where the block after this one will go (or `destination` if there is none): its first lines are asked for
// here, since a store to a line that is not in the cache stalls the sums behind it (1.15 -> 1.0 of a memcpy).
template <std::size_t block_bytes>
KVERN_SSE42 inline std::uint64_t copy_and_sum_before(std::uint64_t state, std::byte* destination,
                                                     const std::byte* source, const std::byte* next) {
    constexpr std::size_t lane_bytes = block_bytes / 4;
    const std::byte* const before = destination - block_bytes;
    std::uint64_t second = 0;
    std::uint64_t third = 0;
    std::uint64_t fourth = 0;
#pragma GCC unroll 2
    for (std::size_t i = 0; i < lane_bytes; i += 8) {
        if (i % 16 == 0) {  // once for each line of 64 bytes
            const std::size_t ahead = 4 * i + store_ahead_bytes;
            prefetch(source + 4 * i + load_ahead_bytes);
            prefetch(ahead < block_bytes ? destination + ahead : next + (ahead - block_bytes));
        }
        const __m256i moved = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source + 4 * i));
        state = _mm_crc32_u64(state, load8(before + i));
        second = _mm_crc32_u64(second, load8(before + lane_bytes + i));
        third = _mm_crc32_u64(third, load8(before + 2 * lane_bytes + i));
        fourth = _mm_crc32_u64(fourth, load8(before + 3 * lane_bytes + i));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(destination + 4 * i), moved);
    }
    return combine<lane_bytes>(state, second, third, fourth);
}

KVERN_SSE42 std::uint32_t sum(std::uint32_t state, const std::byte* data, std::size_t size_bytes) {
    std::uint64_t wide = state;
    for (; size_bytes >= 4096; data += 4096, size_bytes -= 4096) wide = sum_lanes<1024>(wide, data);
    for (; size_bytes >= 512; data += 512, size_bytes -= 512) wide = sum_lanes<128>(wide, data);
    for (; size_bytes >= 8; data += 8, size_bytes -= 8) wide = _mm_crc32_u64(wide, load8(data));
    auto narrow = static_cast<std::uint32_t>(wide);
    for (; size_bytes > 0; ++data, --size_bytes) narrow = _mm_crc32_u8(narrow, std::to_integer<std::uint8_t>(*data));
    return narrow;
}

template <std::size_t block_bytes>
KVERN_SSE42 std::uint32_t lagged_copy(std::uint32_t state, std::byte* destination, const std::byte* source,
                                      std::size_t size_bytes) {
    std::uint64_t wide = state;
    std::memcpy(destination, source, block_bytes);
    std::size_t done = block_bytes;
    for (; size_bytes - done >= block_bytes; done += block_bytes) {
        const bool last = size_bytes - done < 2 * block_bytes;
        std::byte* const block = destination + done;
        wide = copy_and_sum_before<block_bytes>(wide, block, source + done, last ? block : block + block_bytes);
    }
    // The last whole block is copied and not yet summed; what follows it is neither.
    std::memcpy(destination + done, source + done, size_bytes - done);
    return sum(static_cast<std::uint32_t>(wide), destination + done - block_bytes, size_bytes - done + block_bytes);
}

KVERN_SSE42 std::uint32_t copy(std::uint32_t state, std::byte* destination, const std::byte* source,
                               std::size_t size_bytes) {
    if (size_bytes >= large_copy_bytes_min) {
        return lagged_copy<large_block_bytes>(state, destination, source, size_bytes);
    }
    if (size_bytes >= 2 * small_block_bytes) {
        return lagged_copy<small_block_bytes>(state, destination, source, size_bytes);
    }
    std::memcpy(destination, source, size_bytes);
    return sum(state, destination, size_bytes);
}

bool available() {
    return __builtin_cpu_supports("sse4.2") != 0 && __builtin_cpu_supports("pclmul") != 0 &&
           __builtin_cpu_supports("avx2") != 0;
}

}  // namespace

constinit const Path sse42_path{"sse4.2+avx2", available, sum, copy};

}  // namespace kvern::crc

#endif
