// SPDX-License-Identifier: Apache-2.0
// Keys of S3 in a store: reversible, in order, good keys, exact prefixes; and stored texts that no key has are refused.
#include "server/key_map.h"

#include <algorithm>

#include "fuzz.h"
#include "kvern/limits.h"
#include "kvern/store.h"

namespace kvern::fuzz {
namespace {

using namespace server;

void check_key_alone(const std::string& key) {
    const std::string stored = map_key(key);
    const auto back = unmap_key(stored);
    FUZZ_REQUIRE(back && *back == key);
    FUZZ_REQUIRE(check_key("object/" + std::string(63, 'b') + "/" + stored));
}

}  // namespace

// Two keys, the first byte says how much of the first begins the second as well.
void check(std::string_view input) {
    if (const auto key = unmap_key(input)) FUZZ_REQUIRE(map_key(*key) == input);
    if (input.size() < 3) return;
    const auto common = static_cast<std::size_t>(static_cast<unsigned char>(input[0])) * 4;
    const std::size_t half = input.size() / 2;
    const std::string first(input.substr(1, std::min<std::size_t>(half, limits::s3_key_bytes_max)));
    const std::string prefix = first.substr(0, common);
    const std::string second = (prefix + std::string(input.substr(half))).substr(0, limits::s3_key_bytes_max);
    check_key_alone(first);
    check_key_alone(second);
    FUZZ_REQUIRE((first < second) == (map_key(first) < map_key(second)));
    FUZZ_REQUIRE(map_key(first).starts_with(map_prefix(prefix)));
    for (const std::string& other : {second, second.substr(std::min<std::size_t>(1, second.size() - 1))}) {
        FUZZ_REQUIRE(map_key(other).starts_with(map_prefix(prefix)) == other.starts_with(prefix));
        const bool is_before = other < prefix || other.starts_with(prefix);
        FUZZ_REQUIRE((map_key(other) < after_prefix(prefix)) == is_before);
    }
}

std::vector<std::string> seeds() {
    return {
        "\x01"
        "a/b/c.d",
        "a#",
        "a/-/%2E.#",
        std::string(240, 'a') + "~/b#",
        std::string("\x3c") + std::string(500, 'a'),
        std::string("\x3c") + std::string(240, 'a') + "." + std::string(240, 'a') + "\xff",
        std::string(300, '/'),
        std::string(300, '\0')};
}

}  // namespace kvern::fuzz
