// SPDX-License-Identifier: Apache-2.0
#include "cache/key.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "base/sha256.h"
#include "base/text.h"
#include "kvern/store.h"

namespace kvern {
namespace {

const std::string name_space = to_hex(sha256("x"));

TEST(ObjectKey, ParseIsTheInverse) {
    EXPECT_TRUE(rc::check("parse_object_key(object_key(x)) == x", [] {
        const auto size = *rc::gen::inRange<std::size_t>(1, limits::hash_bytes_max + 1);
        const auto bytes = *rc::gen::container<std::string>(size, rc::gen::arbitrary<char>());
        const auto group = *rc::gen::arbitrary<std::uint32_t>();
        const auto number = rc::gen::arbitrary<std::uint32_t>();
        const Shard shard{*number, *number, *number, *number};
        const auto parent = *rc::gen::arbitrary<std::uint64_t>();
        const std::string key = object_key(name_space, {ChunkHash(bytes), parent}, group, shard.text());
        RC_ASSERT(check_key(key).has_value());
        const auto name = parse_object_key(key);
        RC_ASSERT(name.has_value());
        RC_ASSERT(name->namespace_hex == name_space);
        RC_ASSERT(name->chunk == (ChunkId{ChunkHash(bytes), parent}));
        RC_ASSERT(name->group == group);
        RC_ASSERT(name->shard == shard);
    }));
}

TEST(ObjectKey, ForeignNamesAreRefused) {
    const std::string good = name_space + "/0a/0a0b.p00000000000000ff.g0.l0-1.h0-1";
    ASSERT_TRUE(parse_object_key(good));
    std::string upper = name_space;
    for (char& c : upper) c = static_cast<char>(std::toupper(c));
    const std::string ends[] = {"/0a/0a0b.p00000000000000ff.g0.l0-1.h0-1x",
                                "/0a/0a0b.p00000000000000ff.g0.l0-1.h0-1/",
                                "/0a/0a0b.p00000000000000ff.g0.l0-1.h0",
                                "/0a/0a0b.p00000000000000ff.g0.l0-1",
                                "/0a/0a0b",
                                "/0a/0a0b.g0.l0-1.h0-1",
                                "/0a/0a0b.p00000000000000FF.g0.l0-1.h0-1",
                                "/0a/0a0b.pff.g0.l0-1.h0-1",
                                "/0a/0a0b.p000000000000000ff.g0.l0-1.h0-1",
                                "/0a/0a0b.p+0000000000000ff.g0.l0-1.h0-1",
                                "/0a/0a0b.p00000000000000ff.g00.l0-1.h0-1",
                                "/0a/0a0b.p00000000000000ff.g0.l00-1.h0-1",
                                "/0a/0a0b.p00000000000000ff.g0.l0-01.h0-1",
                                "/0a/0a0b.p00000000000000ff.g0.l0-1.h00-1",
                                "/0a/0a0b.p00000000000000ff.g0.l0-1.h0-01",
                                "/0a/0a0b.p00000000000000ff.g.l0-1.h0-1",
                                "/0a/0a0b.p00000000000000ff.g-1.l0-1.h0-1",
                                "/0a/0a0b.p00000000000000ff.g+1.l0-1.h0-1",
                                "/0a/0a0b.p00000000000000ff.g 1.l0-1.h0-1",
                                "/0A/0A0B.p00000000000000ff.g0.l0-1.h0-1",
                                "/0a/0a0B.p00000000000000ff.g0.l0-1.h0-1",
                                "/0b/0a0b.p00000000000000ff.g0.l0-1.h0-1",
                                "/0a/0a0.p00000000000000ff.g0.l0-1.h0-1",
                                "/0a/.p00000000000000ff.g0.l0-1.h0-1",
                                "/0a/0axx.p00000000000000ff.g0.l0-1.h0-1",
                                "/0a/../0a0b.p00000000000000ff.g0.l0-1",
                                "/../0a0b.p00000000000000ff.g0.l0-1.h0-1",
                                "/0a/0a0b.p00000000000000ff.g4294967296.l0-1.h0-1",
                                "/identity.json",
                                "/label",
                                "",
                                "/0a//0a0b.p00000000000000ff.g0.l0-1.h0-1",
                                "/0a/0a0b..p00000000000000ff.g0.l0-1.h0-1",
                                "/0a/" + std::string(130, 'a') + ".p00000000000000ff.g0.l0-1.h0-1"};
    for (const std::string& end : ends) EXPECT_FALSE(parse_object_key(name_space + end)) << end;
    for (const std::string& start : {upper, name_space.substr(1), name_space + "0", "../" + name_space,
                                     std::string(64, 'g'), std::string(64, '.'), std::string()})
        EXPECT_FALSE(parse_object_key(start + "/0a/0a0b.p00000000000000ff.g0.l0-1.h0-1")) << start;
    EXPECT_FALSE(parse_object_key("kvern-start/engine"));
}

TEST(ObjectKey, WhateverParsesIsCanonical) {
    EXPECT_TRUE(rc::check("object_key(parse_object_key(x)) == x, for x near a key", [] {
        std::string key = name_space + "/0a/0a0b.p00000000000000ff.g10.l20-31.h4-5";
        const auto at = *rc::gen::inRange<std::size_t>(0, key.size());
        key[at] = *rc::gen::elementOf(std::string("0123456789abcdefABCDEF./-glh"));
        const auto name = parse_object_key(key);
        if (name) RC_ASSERT(object_key(name->namespace_hex, name->chunk, name->group, name->shard.text()) == key);
    }));
}

TEST(ChunkHash, TagIsItsFirstEightBytes) {
    EXPECT_EQ(ChunkHash("\x01\x02\x03\x04\x05\x06\x07\x08\x09").tag(), 0x0102030405060708U);
    EXPECT_EQ(ChunkHash("\xff").tag(), 0xff00000000000000U);
}

TEST(ChunkHash, ComparesLengthAndBytes) {
    EXPECT_EQ(ChunkHash("ab"), ChunkHash("ab"));
    EXPECT_NE(ChunkHash("ab"), ChunkHash(std::string_view("ab\0", 3)));
    EXPECT_FALSE(ChunkHash::valid(""));
    EXPECT_TRUE(ChunkHash::valid(std::string(64, 'x')));
    EXPECT_FALSE(ChunkHash::valid(std::string(65, 'x')));
    EXPECT_TRUE(ChunkHash().empty());
}

}  // namespace
}  // namespace kvern
