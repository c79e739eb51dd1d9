// SPDX-License-Identifier: Apache-2.0
// CRC32C by carry-less multiplication of 256-bit registers, and the fused copy: each register is loaded once, folded
// into the running remainder, and stored as it is. Large copies are stored past the caches (non-temporally): the
// destination is not read into them first, which saves a third of the memory traffic of a plain copy.
#if defined(__x86_64__)

#include <immintrin.h>

#include <cstring>

#include "base/crc32c_path.h"
#include "base/crc32c_x86.h"

namespace kvern::crc {
namespace {

#define KVERN_VPCLMUL __attribute__((target("sse4.2,pclmul,avx2,vpclmulqdq")))
#define KVERN_VPCLMUL_INLINE __attribute__((target("sse4.2,pclmul,avx2,vpclmulqdq"), always_inline)) inline

constexpr std::size_t register_bytes = 32;
constexpr std::size_t registers = 8;
constexpr std::size_t step_bytes = registers * register_bytes;

// Below this size a copy goes through the caches. From one page on, storing past them wins even for scattered pages.
constexpr std::size_t nontemporal_bytes_min = 4 << 10;
// Hardware prefetchers stop at the end of a 4 KiB page; asking this far ahead bridges it (0.73 -> 0.65 of a memcpy).
constexpr std::size_t prefetch_bytes = 1 << 10;
constexpr std::size_t fold_bytes_min = 2 * step_bytes;  // below, crc32q alone is as fast

// A register holds two 128-bit lanes; each lane's remainder moves ahead by the same number of bits. For a lane H·x^64 +
// L (H in the low half: bits are reflected) the factors are x^(bits+64) and x^bits, each one less by the x that clmul
// of reflected values brings, and less 32 because a 32-bit factor stands in the low half of 64 bits.
template <std::size_t bits>
KVERN_VPCLMUL_INLINE __m256i factors() {
    static constexpr long long low = x_to(bits + 64 - 33);
    static constexpr long long high = x_to(bits - 33);
    return _mm256_set_epi64x(high, low, high, low);
}

KVERN_VPCLMUL_INLINE __m256i fold(__m256i remainder, __m256i factors, __m256i data) {
    const __m256i low = _mm256_clmulepi64_epi128(remainder, factors, 0x00);
    const __m256i high = _mm256_clmulepi64_epi128(remainder, factors, 0x11);
    return _mm256_xor_si256(_mm256_xor_si256(low, high), data);
}

enum class Keep : std::uint8_t { nothing, temporal, nontemporal };

template <Keep keep>
KVERN_VPCLMUL_INLINE __m256i take(std::byte* destination, const std::byte* source, std::size_t offset) {
    __m256i moved = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source + offset));
    // What is stored and what is summed must come from one load: the compiler may not repeat it.
    asm("" : "+x"(moved));
    if constexpr (keep == Keep::temporal) _mm256_storeu_si256(reinterpret_cast<__m256i*>(destination + offset), moved);
    if constexpr (keep == Keep::nontemporal)
        _mm256_stream_si256(reinterpret_cast<__m256i*>(destination + offset), moved);
    return moved;
}

// Sums (and copies) size_bytes, a multiple of step_bytes and at least one step.
template <Keep keep>
KVERN_VPCLMUL std::uint32_t fold_all(std::uint32_t state, std::byte* destination, const std::byte* source,
                                     std::size_t size_bytes) {
    __m256i remainders[registers];  // std::array would drop the type's alignment attribute
#pragma GCC unroll 8
    for (std::size_t i = 0; i < registers; ++i) remainders[i] = take<keep>(destination, source, i * register_bytes);
    remainders[0] = _mm256_xor_si256(remainders[0], _mm256_set_epi64x(0, 0, 0, static_cast<long long>(state)));
    const __m256i ahead = factors<step_bytes * 8>();
    for (std::size_t done = step_bytes; done < size_bytes; done += step_bytes) {
#pragma GCC unroll 4
        for (std::size_t line = 0; line < step_bytes; line += 64) {
            prefetch(source + done + prefetch_bytes + line);
        }
#pragma GCC unroll 8
        for (std::size_t i = 0; i < registers; ++i) {
            remainders[i] = fold(remainders[i], ahead, take<keep>(destination, source, done + i * register_bytes));
        }
    }
    const __m256i next = factors<register_bytes * 8>();
    __m256i remainder = remainders[0];
#pragma GCC unroll 8
    for (std::size_t i = 1; i < registers; ++i) remainder = fold(remainder, next, remainders[i]);
    // The remainder now stands for the message as if it were its last 32 bytes.
    std::uint64_t wide = 0;
    wide = _mm_crc32_u64(wide, static_cast<std::uint64_t>(_mm256_extract_epi64(remainder, 0)));
    wide = _mm_crc32_u64(wide, static_cast<std::uint64_t>(_mm256_extract_epi64(remainder, 1)));
    wide = _mm_crc32_u64(wide, static_cast<std::uint64_t>(_mm256_extract_epi64(remainder, 2)));
    wide = _mm_crc32_u64(wide, static_cast<std::uint64_t>(_mm256_extract_epi64(remainder, 3)));
    return static_cast<std::uint32_t>(wide);
}

// A few bytes: one crc32q or crc32b a load.
template <Keep keep>
KVERN_VPCLMUL std::uint32_t few(std::uint32_t state, std::byte* destination, const std::byte* source,
                                std::size_t size_bytes) {
    std::uint64_t wide = state;
    for (; size_bytes >= 8; source += 8, size_bytes -= 8) {
        std::uint64_t word = load8(source);
        asm("" : "+r"(word));
        wide = _mm_crc32_u64(wide, word);
        if constexpr (keep != Keep::nothing) {
            std::memcpy(destination, &word, sizeof word);
            destination += 8;
        }
    }
    auto narrow = static_cast<std::uint32_t>(wide);
    for (; size_bytes > 0; ++source, --size_bytes) {
        auto byte = std::to_integer<std::uint8_t>(*source);
        asm("" : "+r"(byte));
        narrow = _mm_crc32_u8(narrow, byte);
        if constexpr (keep != Keep::nothing) *destination++ = std::byte{byte};
    }
    return narrow;
}

template <Keep keep>
KVERN_VPCLMUL std::uint32_t pass(std::uint32_t state, std::byte* destination, const std::byte* source,
                                 std::size_t size_bytes) {
    if (size_bytes >= fold_bytes_min) {
        const std::size_t whole_bytes = size_bytes / step_bytes * step_bytes;
        state = fold_all<keep>(state, destination, source, whole_bytes);
        if constexpr (keep != Keep::nothing) destination += whole_bytes;
        source += whole_bytes;
        size_bytes -= whole_bytes;
    }
    return few < keep == Keep::nontemporal ? Keep::temporal : keep > (state, destination, source, size_bytes);
}

std::uint32_t sum(std::uint32_t state, const std::byte* data, std::size_t size_bytes) {
    return pass<Keep::nothing>(state, nullptr, data, size_bytes);
}

KVERN_VPCLMUL std::uint32_t copy(std::uint32_t state, std::byte* destination, const std::byte* source,
                                 std::size_t size_bytes) {
    if (size_bytes < nontemporal_bytes_min) return pass<Keep::temporal>(state, destination, source, size_bytes);
    // Non-temporal stores need their own alignment, and write whole cache lines best.
    const std::size_t head_bytes = -reinterpret_cast<std::uintptr_t>(destination) % 64;
    state = few<Keep::temporal>(state, destination, source, head_bytes);
    state = pass<Keep::nontemporal>(state, destination + head_bytes, source + head_bytes, size_bytes - head_bytes);
    _mm_sfence();  // the caller may hand the destination to another thread: order the weak stores before that
    return state;
}

bool available() {
    return __builtin_cpu_supports("vpclmulqdq") != 0 && sse42_path.available();
}

}  // namespace

constinit const Path vpclmulqdq_path{"vpclmulqdq", available, sum, copy};

}  // namespace kvern::crc

#endif
