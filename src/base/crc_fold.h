// SPDX-License-Identifier: Apache-2.0
// Sums of any reflected CRC by carry-less multiplication (PCLMULQDQ, or VPCLMULQDQ with 256 and 512 bits), by tables
// where the CPU has none of them, and the choice between these. Inside base/ only.
//
// Pure functions, any thread. They work on the raw register: the inversions before and after are the caller's. CRC32C
// does not use this: it has instructions of its own, and a copy that sums.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/crc_polynomial.h"

#if defined(__x86_64__)
#include "base/crc_fold_x86.h"
#endif

namespace kvern::crc {

template <class Word>
struct SumPath {
    std::string_view name;
    bool (*available)();  // does this CPU have it?
    Word (*sum)(Word state, const std::byte* data, std::size_t size_bytes);
};

// For a polynomial `P` (a Modulo): all paths, from fast to slow.
template <class P>
inline constexpr auto sum_paths = std::to_array<SumPath<typename P::Word>>({
#if defined(__x86_64__)
    {"vpclmulqdq512", fold::has_512, fold::sum_512<P>}, {"vpclmulqdq", fold::has_256, fold::sum_256<P>},
        {"pclmulqdq", fold::has_128, fold::sum_128<P>},
#endif
        {"table", [] { return true; }, P::sum_by_tables},
});

// The fastest one that this CPU has.
template <class P>
const SumPath<typename P::Word>& chosen_path() {
    static const SumPath<typename P::Word>& path = []() -> const auto& {
        for (const auto& candidate : sum_paths<P>) {
            if (candidate.available()) return candidate;
        }
        return sum_paths<P>.back();
    }
    ();
    return path;
}

// Null where the name is unknown or the CPU doesn't have it.
template <class P>
const SumPath<typename P::Word>* find_path(std::string_view name) {
    for (const auto& candidate : sum_paths<P>) {
        if (candidate.name == name) return candidate.available() ? &candidate : nullptr;
    }
    return nullptr;
}

}  // namespace kvern::crc
