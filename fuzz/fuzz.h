// SPDX-License-Identifier: Apache-2.0
// What a fuzz target is: a function that looks at any bytes, and the real values that fuzzing starts from.
//
// Each fuzz/NAME.cc defines both functions and becomes the program kvern_fuzz_NAME (fuzz/main.cc). One thread.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace kvern::fuzz {

// Gives `input` to the parser and checks what must hold whatever it is. Must not depend on earlier calls.
void check(std::string_view input);

// Encoded real values; `kvern_fuzz_NAME --seeds=FOLDER` writes them, one file each.
std::vector<std::string> seeds();

// As many brackets as could exhaust the stack of a parser that calls itself.
inline std::string nested(std::size_t depth, std::string_view inner = {}) {
    return std::string(depth, '[') + std::string(inner) + std::string(depth, ']');
}

}  // namespace kvern::fuzz

// Ends the process, so that the fuzzer keeps the input, if a property does not hold.
#define FUZZ_REQUIRE(property)                                                                 \
    do {                                                                                       \
        if (!(property)) {                                                                     \
            std::fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #property); \
            std::abort();                                                                      \
        }                                                                                      \
    } while (false)
