// SPDX-License-Identifier: Apache-2.0
// CRC32C by tables, eight bytes a step: for CPUs without the instructions, and for every architecture.
#include <algorithm>
#include <bit>
#include <cstring>

#include "base/crc32c_path.h"

namespace kvern::crc {
namespace {

using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

// tables[k][b]: the byte b followed by k zero bytes.
constexpr Tables make_tables() {
    Tables tables{};
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
        std::uint32_t value = byte;
        for (int bit = 0; bit < 8; ++bit) value = times_x(value);
        tables[0][byte] = value;
    }
    for (std::size_t k = 1; k < 8; ++k) {
        for (std::size_t byte = 0; byte < 256; ++byte) {
            const std::uint32_t before = tables[k - 1][byte];
            tables[k][byte] = (before >> 8) ^ tables[0][before & 255];
        }
    }
    return tables;
}

constexpr Tables tables = make_tables();

std::uint64_t load_little_endian(const std::byte* data) {
    std::uint64_t word = 0;
    std::memcpy(&word, data, sizeof word);
    if constexpr (std::endian::native == std::endian::big) word = __builtin_bswap64(word);
    return word;
}

std::uint32_t sum(std::uint32_t state, const std::byte* data, std::size_t size_bytes) {
    for (; size_bytes >= 8; data += 8, size_bytes -= 8) {
        const std::uint64_t word = load_little_endian(data) ^ state;
        state = 0;
        for (unsigned k = 0; k < 8; ++k) state ^= tables[7 - k][(word >> (8 * k)) & 255];
    }
    for (; size_bytes > 0; ++data, --size_bytes) {
        state = (state >> 8) ^ tables[0][(state ^ std::to_integer<std::uint32_t>(*data)) & 255];
    }
    return state;
}

// Sums each piece where it landed: then the sum is of the destination's bytes, whatever the source does meanwhile.
std::uint32_t copy(std::uint32_t state, std::byte* destination, const std::byte* source, std::size_t size_bytes) {
    constexpr std::size_t piece_bytes_max = 4096;  // still in the first-level cache when it is summed
    while (size_bytes > 0) {
        const std::size_t piece_bytes = std::min(size_bytes, piece_bytes_max);
        std::memcpy(destination, source, piece_bytes);
        state = sum(state, destination, piece_bytes);
        destination += piece_bytes;
        source += piece_bytes;
        size_bytes -= piece_bytes;
    }
    return state;
}

}  // namespace

constinit const Path table_path{"table", [] { return true; }, sum, copy};

}  // namespace kvern::crc
