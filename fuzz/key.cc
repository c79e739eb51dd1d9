// SPDX-License-Identifier: Apache-2.0
// Keys: the rules that every store applies, and the keys of objects, which may be any file name below a shared folder.
#include "cache/key.h"

#include <algorithm>

#include "base/text.h"
#include "cache/identity.h"
#include "fuzz.h"
#include "kvern/store.h"

namespace kvern::fuzz {
namespace {

// The rules of kvern/store.h, told another way.
bool good_key(std::string_view key) {
    if (key.empty() || key.size() > limits::key_bytes_max || key.find('\0') != key.npos) return false;
    for (std::size_t start = 0; start <= key.size();) {
        const std::size_t end = std::min(key.find('/', start), key.size());
        const std::string_view name = key.substr(start, end - start);
        if (name.empty() || name == "." || name == ".." || name.size() > limits::key_component_bytes_max) return false;
        if (name.substr(0, 7) == ".kvern-") return false;
        start = end + 1;
    }
    return true;
}

}  // namespace

void check(std::string_view input) {
    const auto checked = check_key(input);
    FUZZ_REQUIRE(checked.has_value() == good_key(input));
    FUZZ_REQUIRE(checked || !checked.error().message.empty());
    // A key goes through a command line and a listing escaped, and comes back.
    const auto back = url_unescape(url_escape(input));
    FUZZ_REQUIRE(back && *back == input);
    if (const auto name = parse_object_key(input)) {
        FUZZ_REQUIRE(checked);
        FUZZ_REQUIRE(object_key(name->namespace_hex, name->chunk, name->group, name->shard.text()) == input);
    }
}

std::vector<std::string> seeds() {
    const std::string name_space = to_hex(namespace_of("{}"));
    return {object_key(name_space, {ChunkHash("0123456789abcdef0123456789abcdef"), 7}, 0, Shard{0, 47, 2, 3}.text()),
            object_key(name_space, {ChunkHash("\x0a"), 0}, 3, Shard{}.text()),
            identity_key(name_space),
            label_key(name_space),
            "a/b.c/..d/.e",
            ".kvern-tmp/x",
            std::string(256, 'a')};
}

}  // namespace kvern::fuzz
