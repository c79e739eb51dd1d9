// SPDX-License-Identifier: Apache-2.0
// A process that owns memory which others reach by libfabric: window_owner PROVIDER ADDRESS SIZE_BYTES FILL. Prints a
// token of all of it; for each line on its input, prints the SHA-256 of the memory; ends with its input.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "base/sha256.h"
#include "base/text.h"
#include "fabric/ofi_guest.h"

int main(int argc, char** argv) {
    using namespace kvern;
    if (argc != 5) return 2;
    RegionOptions options;
    options.size_bytes = std::strtoull(argv[3], nullptr, 10);
    const auto region = Region::create(options);
    const auto guest = fabric::OfiGuest::shared(argv[1], argv[2]);
    if (!region || !guest) {
        std::cout << "none: " << (region ? guest.error().message : region.error().message) << std::endl;
        return 1;
    }
    const auto size = (*region)->size_bytes();
    std::memset((*region)->base(), std::atoi(argv[4]), size);
    const auto windows = (*guest)->hand_over(*region);
    if (!windows) {
        std::cout << "none: " << windows.error().message << std::endl;
        return 1;
    }
    std::cout << (*guest)->token(windows->front(), 0, size, fabric::Direction::into)->text << std::endl;
    for (std::string line; std::getline(std::cin, line);) {
        const auto sum = sha256({reinterpret_cast<const char*>((*region)->base()), size});
        std::cout << to_hex(sum) << std::endl;
    }
    return 0;
}
