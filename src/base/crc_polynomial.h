// SPDX-License-Identifier: Apache-2.0
// Arithmetic modulo the polynomial of a CRC, as far as its sums need it. Inside base/ only. Pure functions, any thread.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace kvern::crc {

// Polynomials over GF(2) modulo x^n + polynomial, n the bits of Word. Bit-reflected: the highest bit is x^0, bit 0 is
// x^(n-1).
template <class W, W polynomial>
struct Modulo {
    using Word = W;
    static constexpr unsigned bits = 8 * sizeof(Word);
    static constexpr Word one = Word{1} << (bits - 1);

    static constexpr Word times_x(Word value) { return (value >> 1) ^ ((value & 1) != 0 ? polynomial : 0); }

    static constexpr Word x_to(std::size_t exponent) {
        Word value = one;
        for (std::size_t i = 0; i < exponent; ++i) value = times_x(value);
        return value;
    }

    static constexpr Word product(Word a, Word b) {
        Word sum = 0;
        for (; a != 0; a <<= 1) {
            if ((a & one) != 0) sum ^= b;
            b = times_x(b);
        }
        return sum;
    }

    // The sum of a message that `size_bytes` bytes follow, `second` being their own sum. Sums are in standard form,
    // with their inversions inside: these cancel out.
    static constexpr Word combine(Word first, Word second, std::uint64_t size_bytes) {
        for (std::size_t i = 0; size_bytes != 0; size_bytes >>= 1, ++i) {
            if ((size_bytes & 1) != 0) first = product(first, shifts[i]);
        }
        return first ^ second;
    }

    // One byte a step, and eight where there are so many. On the raw register.
    static Word sum_by_tables(Word state, const std::byte* data, std::size_t size_bytes) {
        for (; size_bytes >= 8; data += 8, size_bytes -= 8) {
            std::uint64_t word = 0;
            std::memcpy(&word, data, sizeof word);
            if constexpr (std::endian::native == std::endian::big) word = __builtin_bswap64(word);
            word ^= state;
            state = 0;
            for (unsigned k = 0; k < 8; ++k) state ^= tables[7 - k][(word >> (8 * k)) & 255];
        }
        for (; size_bytes > 0; ++data, --size_bytes) {
            state = (state >> 8) ^ tables[0][(state ^ std::to_integer<Word>(*data)) & 255];
        }
        return state;
    }

  private:
    using Tables = std::array<std::array<Word, 256>, 8>;

    // tables[k][b]: the byte b followed by k zero bytes.
    static constexpr Tables make_tables() {
        Tables made{};
        for (Word byte = 0; byte < 256; ++byte) {
            Word value = byte;
            for (int bit = 0; bit < 8; ++bit) value = times_x(value);
            made[0][byte] = value;
        }
        for (std::size_t k = 1; k < 8; ++k) {
            for (std::size_t byte = 0; byte < 256; ++byte) {
                const Word before = made[k - 1][byte];
                made[k][byte] = (before >> 8) ^ made[0][before & 255];
            }
        }
        return made;
    }

    // shifts[i]: what 2^i zero bytes multiply a sum by.
    static constexpr std::array<Word, 64> make_shifts() {
        std::array<Word, 64> made{};
        made[0] = x_to(8);
        for (std::size_t i = 1; i < made.size(); ++i) made[i] = product(made[i - 1], made[i - 1]);
        return made;
    }

    static constexpr Tables tables = make_tables();
    static constexpr std::array<Word, 64> shifts = make_shifts();
};

}  // namespace kvern::crc
