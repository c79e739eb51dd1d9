// SPDX-License-Identifier: Apache-2.0
// What crc32c.cc chooses from: one CRC32C implementation for one kind of CPU. Inside base/ only.
//
// Pure functions, any thread. They work on the raw register: the inversions before and after are the caller's. They do
// not check that the CPU has what they need.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kvern::crc {

using Sum = std::uint32_t (*)(std::uint32_t state, const std::byte* data, std::size_t size_bytes);
using Copy = std::uint32_t (*)(std::uint32_t state, std::byte* destination, const std::byte* source,
                               std::size_t size_bytes);

struct Path {
    std::string_view name;
    bool (*available)();  // does this CPU have it?
    Sum sum;
    Copy copy;  // as kvern::copy_crc32c: the sum is of the bytes that were stored
};

extern const Path table_path;  // anywhere, slicing by 8
#if defined(__x86_64__)
extern const Path sse42_path;       // PCLMULQDQ + SSE4.2 + AVX2
extern const Path vpclmulqdq_path;  // VPCLMULQDQ (256 bit) + those
#endif

// Polynomials over GF(2) modulo the Castagnoli polynomial, bit-reflected: bit 31 is x^0, bit 0 is x^31.
inline constexpr std::uint32_t polynomial = 0x82F63B78;

constexpr std::uint32_t times_x(std::uint32_t value) {
    return (value >> 1) ^ ((value & 1) != 0 ? polynomial : 0);
}

// x^exponent mod P.
constexpr std::uint32_t x_to(std::size_t exponent) {
    std::uint32_t value = 0x80000000;
    for (std::size_t i = 0; i < exponent; ++i) value = times_x(value);
    return value;
}

}  // namespace kvern::crc
