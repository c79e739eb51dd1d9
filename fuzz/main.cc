// SPDX-License-Identifier: Apache-2.0
// The two entrances of libFuzzer, for every target.
#include <cstdint>
#include <fstream>

#include "fuzz.h"

namespace {

// kvern_fuzz_NAME --seeds=FOLDER: writes the seeds and ends.
void write_seeds(const std::string& folder) {
    std::size_t number = 0;
    for (const std::string& seed : kvern::fuzz::seeds()) {
        std::ofstream file(folder + "/seed-" + std::to_string(number++), std::ios::binary);
        file << seed;
        if (!file.flush()) {
            std::fprintf(stderr, "seeds can't be written to %s: does the folder exist?\n", folder.c_str());
            std::exit(1);
        }
    }
    std::exit(0);
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
    constexpr std::string_view option = "--seeds=";
    const std::string_view first = *argc == 2 ? (*argv)[1] : "";
    if (first.substr(0, option.size()) == option) write_seeds(std::string(first.substr(option.size())));
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
    kvern::fuzz::check({reinterpret_cast<const char*>(data), size_bytes});
    return 0;
}
