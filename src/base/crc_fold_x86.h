// SPDX-License-Identifier: Apache-2.0
// The kernels of crc_fold.h. Included by it alone.
//
// A register is a few lanes of 128 bits; four registers fold side by side. A lane holds H·x^64 + L (H in its low half:
// bits are reflected) and moves ahead by `bits` when both halves are multiplied by x^(bits + 64) and x^bits modulo the
// polynomial; each factor is one x less, which clmul of reflected values brings. What is left at the end stands for the
// message as if it were its last 16 bytes, and goes through the tables like any other.
#pragma once

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "base/crc32c_x86.h"
#include "base/crc_polynomial.h"

namespace kvern::crc::fold {

#define KVERN_CLMUL128 __attribute__((target("sse4.2,pclmul")))
#define KVERN_CLMUL256 __attribute__((target("sse4.2,pclmul,avx2,vpclmulqdq")))
#define KVERN_CLMUL512 __attribute__((target("sse4.2,pclmul,avx2,vpclmulqdq,avx512f,avx512vl")))

constexpr std::size_t prefetch_bytes = 1 << 10;  // hardware prefetchers stop at the end of a page

inline bool has_128() {
    return __builtin_cpu_supports("sse4.2") != 0 && __builtin_cpu_supports("pclmul") != 0;
}

inline bool has_256() {
    return has_128() && __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("vpclmulqdq") != 0;
}

inline bool has_512() {
    return has_256() && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512vl") != 0;
}

// A value modulo the polynomial, as a reflected polynomial of 64 bits.
template <class P>
constexpr long long wide(typename P::Word value) {
    return static_cast<long long>(std::uint64_t{value} << (64 - P::bits));
}

template <class P, std::size_t bits>
struct Factors {
    static constexpr long long low = wide<P>(P::x_to(bits + 64 - 1));
    static constexpr long long high = wide<P>(P::x_to(bits - 1));
};

// ------------------------------------------------------------------------------------------------------------ 128 bits

template <class P, std::size_t bytes>
KVERN_CLMUL128 inline __m128i ahead_128(__m128i lane) {
    using F = Factors<P, bytes * 8>;
    const __m128i factors = _mm_set_epi64x(F::high, F::low);
    return _mm_xor_si128(_mm_clmulepi64_si128(lane, factors, 0x00), _mm_clmulepi64_si128(lane, factors, 0x11));
}

KVERN_CLMUL128 inline __m128i load_128(const std::byte* data) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(data));
}

// Sums a lane and what follows it.
template <class P>
KVERN_CLMUL128 inline typename P::Word finish(__m128i lane, const std::byte* data, std::size_t size_bytes) {
    for (; size_bytes >= 16; data += 16, size_bytes -= 16) {
        lane = _mm_xor_si128(ahead_128<P, 16>(lane), load_128(data));
    }
    std::byte last[16];
    _mm_storeu_si128(reinterpret_cast<__m128i*>(last), lane);
    return P::sum_by_tables(P::sum_by_tables(0, last, sizeof last), data, size_bytes);
}

template <class P>
KVERN_CLMUL128 typename P::Word sum_128(typename P::Word state, const std::byte* data, std::size_t size_bytes) {
    constexpr std::size_t step_bytes = 64;
    if (size_bytes < 16) return P::sum_by_tables(state, data, size_bytes);
    const __m128i start = _mm_set_epi64x(0, static_cast<long long>(std::uint64_t{state}));
    if (size_bytes < step_bytes) return finish<P>(_mm_xor_si128(load_128(data), start), data + 16, size_bytes - 16);
    __m128i a = _mm_xor_si128(load_128(data), start);
    __m128i b = load_128(data + 16);
    __m128i c = load_128(data + 32);
    __m128i d = load_128(data + 48);
    for (data += step_bytes, size_bytes -= step_bytes; size_bytes >= step_bytes;
         data += step_bytes, size_bytes -= step_bytes) {
        prefetch(data + prefetch_bytes);
        a = _mm_xor_si128(ahead_128<P, step_bytes>(a), load_128(data));
        b = _mm_xor_si128(ahead_128<P, step_bytes>(b), load_128(data + 16));
        c = _mm_xor_si128(ahead_128<P, step_bytes>(c), load_128(data + 32));
        d = _mm_xor_si128(ahead_128<P, step_bytes>(d), load_128(data + 48));
    }
    b = _mm_xor_si128(b, ahead_128<P, 16>(a));
    c = _mm_xor_si128(c, ahead_128<P, 16>(b));
    d = _mm_xor_si128(d, ahead_128<P, 16>(c));
    return finish<P>(d, data, size_bytes);
}

// ------------------------------------------------------------------------------------------------------------ 256 bits

template <class P, std::size_t bytes>
KVERN_CLMUL256 inline __m256i ahead_256(__m256i lanes) {
    using F = Factors<P, bytes * 8>;
    const __m256i factors = _mm256_set_epi64x(F::high, F::low, F::high, F::low);
    return _mm256_xor_si256(_mm256_clmulepi64_epi128(lanes, factors, 0x00),
                            _mm256_clmulepi64_epi128(lanes, factors, 0x11));
}

KVERN_CLMUL256 inline __m256i load_256(const std::byte* data) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data));
}

template <class P>
KVERN_CLMUL256 typename P::Word sum_256(typename P::Word state, const std::byte* data, std::size_t size_bytes) {
    constexpr std::size_t step_bytes = 128;
    if (size_bytes < 2 * step_bytes) return sum_128<P>(state, data, size_bytes);
    __m256i a =
        _mm256_xor_si256(load_256(data), _mm256_set_epi64x(0, 0, 0, static_cast<long long>(std::uint64_t{state})));
    __m256i b = load_256(data + 32);
    __m256i c = load_256(data + 64);
    __m256i d = load_256(data + 96);
    for (data += step_bytes, size_bytes -= step_bytes; size_bytes >= step_bytes;
         data += step_bytes, size_bytes -= step_bytes) {
        prefetch(data + prefetch_bytes);
        prefetch(data + prefetch_bytes + 64);
        a = _mm256_xor_si256(ahead_256<P, step_bytes>(a), load_256(data));
        b = _mm256_xor_si256(ahead_256<P, step_bytes>(b), load_256(data + 32));
        c = _mm256_xor_si256(ahead_256<P, step_bytes>(c), load_256(data + 64));
        d = _mm256_xor_si256(ahead_256<P, step_bytes>(d), load_256(data + 96));
    }
    b = _mm256_xor_si256(b, ahead_256<P, 32>(a));
    c = _mm256_xor_si256(c, ahead_256<P, 32>(b));
    d = _mm256_xor_si256(d, ahead_256<P, 32>(c));
    const __m128i lane = _mm_xor_si128(ahead_128<P, 16>(_mm256_castsi256_si128(d)), _mm256_extracti128_si256(d, 1));
    return finish<P>(lane, data, size_bytes);
}

// ------------------------------------------------------------------------------------------------------------ 512 bits

template <class P, std::size_t bytes>
KVERN_CLMUL512 inline __m512i ahead_512(__m512i lanes, __m512i next) {
    using F = Factors<P, bytes * 8>;
    const __m512i factors = _mm512_set4_epi64(F::high, F::low, F::high, F::low);
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(lanes, factors, 0x00),
                                     _mm512_clmulepi64_epi128(lanes, factors, 0x11), next, 0x96);
}

KVERN_CLMUL512 inline __m512i load_512(const std::byte* data) {
    return _mm512_loadu_si512(data);
}

template <class P>
KVERN_CLMUL512 typename P::Word sum_512(typename P::Word state, const std::byte* data, std::size_t size_bytes) {
    constexpr std::size_t step_bytes = 256;
    if (size_bytes < 2 * step_bytes) return sum_256<P>(state, data, size_bytes);
    __m512i a = _mm512_xor_si512(
        load_512(data), _mm512_zextsi128_si512(_mm_set_epi64x(0, static_cast<long long>(std::uint64_t{state}))));
    __m512i b = load_512(data + 64);
    __m512i c = load_512(data + 128);
    __m512i d = load_512(data + 192);
    for (data += step_bytes, size_bytes -= step_bytes; size_bytes >= step_bytes;
         data += step_bytes, size_bytes -= step_bytes) {
        for (std::size_t line = 0; line < step_bytes; line += 64) prefetch(data + prefetch_bytes + line);
        a = ahead_512<P, step_bytes>(a, load_512(data));
        b = ahead_512<P, step_bytes>(b, load_512(data + 64));
        c = ahead_512<P, step_bytes>(c, load_512(data + 128));
        d = ahead_512<P, step_bytes>(d, load_512(data + 192));
    }
    b = ahead_512<P, 64>(a, b);
    c = ahead_512<P, 64>(b, c);
    d = ahead_512<P, 64>(c, d);
    std::byte lanes[64];
    _mm512_storeu_si512(lanes, d);
    __m128i lane = load_128(lanes);
    for (std::size_t i = 16; i < sizeof lanes; i += 16) {
        lane = _mm_xor_si128(ahead_128<P, 16>(lane), load_128(lanes + i));
    }
    return finish<P>(lane, data, size_bytes);
}

}  // namespace kvern::crc::fold

#endif
