// SPDX-License-Identifier: Apache-2.0
// The map of keys: reversible, in order, good names, exact prefixes. Keys are made of the bytes that mean something.
#include "server/key_map.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kvern/limits.h"
#include "kvern/store.h"

namespace kvern::server {
namespace {

rc::Gen<char> key_byte() {
    return rc::gen::weightedOneOf<char>(
        {{3, rc::gen::elementOf(std::string("/.-#%$&'~a0\x00\x01\xfd\xfe\xff", 16))}, {1, rc::gen::arbitrary<char>()}});
}

// Short ones of any bytes, and long ones of few, which come to where pieces break.
rc::Gen<std::string> any_key() {
    const auto few = rc::gen::container<std::string>(key_byte());
    const auto many = rc::gen::map(
        rc::gen::tuple(rc::gen::inRange<std::size_t>(70, 250), key_byte(), rc::gen::container<std::string>(key_byte())),
        [](const std::tuple<std::size_t, char, std::string>& parts) {
            return std::string(std::get<0>(parts), std::get<1>(parts)) + std::get<2>(parts);
        });
    return rc::gen::map(rc::gen::oneOf(few, few, many), [](std::string key) {
        key.resize(std::min<std::size_t>(key.size(), limits::s3_key_bytes_max));
        return key.empty() ? std::string("/") : key;
    });
}

// A key, and another one that begins like it.
rc::Gen<std::pair<std::string, std::string>> related_keys() {
    return rc::gen::map(rc::gen::tuple(any_key(), any_key(), any_key(), rc::gen::inRange<std::size_t>(0, 300)),
                        [](const std::tuple<std::string, std::string, std::string, std::size_t>& parts) {
                            const auto& [common, first, second, cut] = parts;
                            const std::string start = common.substr(0, std::min(cut, common.size()));
                            return std::pair(start + first, start + second);
                        });
}

void expect_good(const std::string& key) {
    const std::string stored = map_key(key);
    const auto back = unmap_key(stored);
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_EQ(*back, key);
    const auto checked = check_key("object/" + std::string(63, 'b') + "/" + stored);
    EXPECT_TRUE(checked) << checked.error().message;
}

TEST(KeyMap, Examples) {
    EXPECT_EQ(map_key("a"), "a#");
    EXPECT_EQ(map_key("a/b"), "a/b#");
    EXPECT_EQ(map_key("a/"), "a/#");
    EXPECT_EQ(map_key("/"), "-/#");
    EXPECT_EQ(map_key("a//b"), "a/-/b#");
    EXPECT_EQ(map_key("-"), "%2D#");
    EXPECT_EQ(map_key(".."), "%2E.#");
    EXPECT_EQ(map_key(".kvern-tmp/x.y"), "%2Ekvern-tmp/x.y#");
    EXPECT_EQ(map_key("100%#"), "100%25%23#");
    EXPECT_EQ(map_key(std::string_view("\0\xfd\xfe\xff", 4)), "%00\xfd\xfe\xfe\xfe\xff#");
    EXPECT_EQ(map_key(std::string(240, 'a')), std::string(240, 'a') + "#");
    EXPECT_EQ(map_key(std::string(240, 'a') + "/b"), std::string(240, 'a') + "/b#");
    EXPECT_EQ(map_key(std::string(241, 'a')), std::string(240, 'a') + "~/a#");
    EXPECT_EQ(map_key(std::string(240, 'a') + ".b"), std::string(240, 'a') + "%/%2Eb#");
    EXPECT_EQ(map_key(std::string(240, 'a') + "\xff"), std::string(240, 'a') + "~/\xfe\xff#");
}

TEST(KeyMap, HardKeysAreGoodKeys) {
    for (unsigned byte = 0; byte < 256; ++byte) {
        for (const std::size_t size : {1u, 2u, 79u, 80u, 81u, 119u, 120u, 121u, 239u, 240u, 241u, 255u, 480u, 1024u}) {
            expect_good(std::string(size, static_cast<char>(byte)));
            const std::string pair{static_cast<char>(byte), '/'};
            std::string alternating;
            while (alternating.size() + 2 <= size) alternating += pair;
            if (!alternating.empty()) expect_good(alternating);
        }
        for (std::size_t start = 236; start < 243; ++start) {
            expect_good(std::string(start, 'a') + static_cast<char>(byte) + "b");
            expect_good(std::string(start, 'a') + static_cast<char>(byte));
            expect_good(std::string(start, 'a') + static_cast<char>(byte) + "/");
        }
    }
    for (const char* key : {".",  "..",   "./.", "../..", "a/./b", "a/../b", "//",   "///",  "/a",      "#",
                            "a#", "a#/b", "%2F", "-/-",   "~",     "%/",     "a%/b", "a~/b", ".kvern-", "a/.kvern-b"}) {
        expect_good(key);
    }
}

TEST(KeyMap, TheLongestIsAsLongAsDocumented) {
    EXPECT_EQ(map_key(std::string(1024, '\0')).size(), 3097u);
    EXPECT_LT(map_key(std::string(1024, '/')).size(), 3097u);
}

TEST(KeyMap, IsReversible) {
    EXPECT_TRUE(rc::check("unmap(map(key)) == key, and the store takes it", [] {
        const std::string key = *any_key();
        const std::string stored = map_key(key);
        RC_ASSERT(unmap_key(stored).value() == key);
        RC_ASSERT(check_key("object/" + std::string(63, 'b') + "/" + stored).has_value());
    }));
}

TEST(KeyMap, KeepsTheOrder) {
    EXPECT_TRUE(rc::check("a < b as map(a) < map(b)", [] {
        const auto [a, b] = *related_keys();
        RC_ASSERT((a < b) == (map_key(a) < map_key(b)));
        RC_ASSERT((a == b) == (map_key(a) == map_key(b)));
    }));
}

TEST(KeyMap, KeepsTheOrderWherePiecesBreak) {
    for (std::size_t start = 238; start < 242; ++start) {
        std::vector<std::string> keys;
        for (unsigned byte = 0; byte < 256; ++byte) {
            keys.push_back(std::string(start, 'a'));
            keys.push_back(keys.back() + static_cast<char>(byte));
            keys.push_back(keys.back() + "#");
            keys.push_back(keys.back() + "/");
        }
        std::sort(keys.begin(), keys.end());
        EXPECT_TRUE(std::is_sorted(keys.begin(), keys.end(), [](const auto& a, const auto& b) {
            return map_key(a) < map_key(b);
        })) << start;
    }
}

TEST(KeyMap, PrefixesAreExact) {
    EXPECT_TRUE(rc::check("a key has the prefix as its mapped key has the mapped one", [] {
        const auto [base, other] = *related_keys();
        const auto cut = *rc::gen::inRange<std::size_t>(0, base.size() + 1);
        const std::string prefix = base.substr(0, cut);
        const std::string mapped = map_prefix(prefix);
        RC_ASSERT(map_key(base).starts_with(mapped));
        RC_ASSERT(map_key(other).starts_with(mapped) == other.starts_with(prefix));
    }));
}

TEST(KeyMap, AListingGoesOnBehindAPrefix) {
    EXPECT_TRUE(rc::check("keys with the prefix are before, greater ones behind", [] {
        const auto [base, other] = *related_keys();
        const auto cut = *rc::gen::inRange<std::size_t>(0, base.size() + 1);
        const std::string prefix = base.substr(0, cut);
        const std::string after = after_prefix(prefix);
        RC_ASSERT(map_key(base) < after);
        const bool is_before = other < prefix || other.starts_with(prefix);
        RC_ASSERT((map_key(other) < after) == is_before);
    }));
}

TEST(KeyMap, WhatNoKeyHasIsRefused) {
    for (const std::string& stored : {std::string(),
                                      std::string("#"),
                                      std::string("a"),
                                      std::string("a##"),
                                      std::string("a/"),
                                      std::string("%2f#"),
                                      std::string("%2F#"),
                                      std::string("%41#"),
                                      std::string("a%2"),
                                      std::string("a%2#"),
                                      std::string(".#"),
                                      std::string("-#"),
                                      std::string("--/#"),
                                      std::string("//#"),
                                      std::string("\xfe#"),
                                      std::string("\xff#"),
                                      std::string("a~/b/%#"),
                                      std::string(241, 'a') + "#",
                                      std::string(240, 'a') + "~/.#",
                                      std::string(240, 'a') + "%/a#",
                                      std::string(240, 'a') + "~/#",
                                      std::string(240, 'a') + "~#",
                                      std::string(1025, 'a') + "#"}) {
        EXPECT_FALSE(unmap_key(stored)) << stored;
    }
    EXPECT_TRUE(rc::check("what is read is mapped to the same", [] {
        const auto stored = *rc::gen::container<std::string>(key_byte());
        const auto key = unmap_key(stored);
        if (key) RC_ASSERT(map_key(*key) == stored);
    }));
}

}  // namespace
}  // namespace kvern::server
