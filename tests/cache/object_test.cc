// SPDX-License-Identifier: Apache-2.0
#include "cache/object.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstring>
#include <random>

#include "base/crc32c.h"
#include "cache/identity.h"

namespace kvern {
namespace {

// An object of random bytes, with everything that a reader knows about it beforehand.
struct Sample {
    ObjectFacts facts;
    ObjectLayout layout;
    std::vector<std::byte> bytes;
};

Sample sample(std::uint32_t layers, std::uint64_t slice_bytes, unsigned seed = 1) {
    std::mt19937 random(seed);
    Sample made;
    made.facts.name_space = namespace_of("{}");
    made.facts.chunk.hash = ChunkHash("hash-" + std::to_string(seed));
    made.facts.group = 2;
    made.facts.shard = {3, 3 + layers - 1, 4, 5};
    made.facts.chunk_tokens = 32;
    made.facts.block_tokens = 16;
    made.layout = ObjectLayout::of(layers, slice_bytes);
    made.bytes.resize(made.layout.object_bytes);
    std::vector<std::uint32_t> crcs;
    for (std::uint32_t i = 0; i < layers; ++i) {
        std::byte* slice = made.bytes.data() + made.layout.slice_offset(i);
        for (std::uint64_t at = 0; at < slice_bytes; ++at) slice[at] = static_cast<std::byte>(random());
        crcs.push_back(crc32c(0, slice, made.layout.slice_stride));
    }
    encode_header(made.bytes, made.facts, made.layout, crcs);
    return made;
}

// What a load does before it trusts an object: its size, its header, every slice.
bool accepted(std::span<const std::byte> bytes, const ObjectFacts& facts, const ObjectLayout& layout) {
    std::vector<std::uint32_t> crcs;
    if (bytes.size() != layout.object_bytes || !check_header(bytes, facts, layout, crcs)) return false;
    for (std::uint32_t i = 0; i < layout.slice_count; ++i)
        if (crc32c(0, bytes.data() + layout.slice_offset(i), layout.slice_stride) != crcs[i]) return false;
    return true;
}

std::string refusal(const Sample& found, const ObjectFacts& facts, const ObjectLayout& layout) {
    std::vector<std::uint32_t> crcs;
    const auto checked = check_header(found.bytes, facts, layout, crcs);
    return checked ? "accepted" : checked.error().message;
}

TEST(Object, RoundTrip) {
    EXPECT_TRUE(rc::check("decode(encode(x)) == x", [] {
        const auto layers = *rc::gen::inRange(1u, 200u);
        const auto slice_bytes = *rc::gen::inRange(1u, 10000u);
        const Sample made = sample(layers, slice_bytes, *rc::gen::arbitrary<unsigned>());
        RC_ASSERT(accepted(made.bytes, made.facts, made.layout));
        const auto header = decode_header(made.bytes);
        RC_ASSERT(header.has_value());
        RC_ASSERT(header->object_bytes == made.bytes.size());
        RC_ASSERT(header->facts.chunk == made.facts.chunk);
        RC_ASSERT(header->facts.name_space == made.facts.name_space);
        RC_ASSERT(header->facts.shard == made.facts.shard);
        RC_ASSERT(header->facts.group == 2u);
        RC_ASSERT(header->facts.chunk_tokens == 32u);
        RC_ASSERT(header->facts.block_tokens == 16u);
        RC_ASSERT(header->slices.size() == layers);
        for (std::uint32_t i = 0; i < layers; ++i) {
            RC_ASSERT(header->slices[i].offset == made.layout.slice_offset(i));
            RC_ASSERT(header->slices[i].length == slice_bytes);
            RC_ASSERT(header->slices[i].layer == 3 + i);
        }
    }));
}

// I10, and design goal "flipping any bit gives a miss": header, reserved bytes, pages and gaps.
TEST(Object, EveryFlippedBitIsNoticed) {
    Sample made = sample(2, 100);
    for (std::size_t at = 0; at < made.bytes.size(); ++at)
        for (int bit = 0; bit < 8; ++bit) {
            made.bytes[at] ^= static_cast<std::byte>(1 << bit);
            ASSERT_FALSE(accepted(made.bytes, made.facts, made.layout)) << "byte " << at << " bit " << bit;
            ASSERT_TRUE(at >= made.layout.header_bytes || !decode_header(made.bytes)) << at << " bit " << bit;
            made.bytes[at] ^= static_cast<std::byte>(1 << bit);
        }
    EXPECT_TRUE(accepted(made.bytes, made.facts, made.layout));
}

TEST(Object, EveryTruncationIsNoticed) {
    const Sample made = sample(2, 5000);
    for (std::size_t size = 0; size < made.bytes.size(); ++size) {
        // A buffer of exactly this size, so that a sanitizer sees every read beyond it.
        const std::vector<std::byte> cut(made.bytes.begin(), made.bytes.begin() + static_cast<std::ptrdiff_t>(size));
        const auto header = decode_header(cut);
        ASSERT_EQ(header.has_value(), size >= made.layout.header_bytes) << size;
        ASSERT_TRUE(!header || header->object_bytes != size);
        ASSERT_FALSE(accepted(cut, made.facts, made.layout)) << size;
    }
}

TEST(Object, SwappedObjectsAreNoticed) {
    const Sample one = sample(2, 100, 1), other = sample(2, 100, 2);
    EXPECT_TRUE(accepted(other.bytes, other.facts, other.layout));
    EXPECT_FALSE(accepted(other.bytes, one.facts, one.layout));
    EXPECT_EQ(refusal(other, one.facts, one.layout), "another chunk");
}

TEST(Object, AnotherVersionIsNotSupportedAndSaysSo) {
    Sample made = sample(1, 8);
    made.bytes[8] = std::byte{3};
    const auto header = decode_header(made.bytes);
    ASSERT_FALSE(header);
    EXPECT_EQ(header.error().code, ErrorCode::not_supported);
    EXPECT_EQ(header.error().message, "format version 3, this Kvern reads 2");
    EXPECT_EQ(refusal(made, made.facts, made.layout), "format version 3, this Kvern reads 2");
}

TEST(Object, EachDifferenceIsNamed) {
    const Sample made = sample(2, 100);
    const auto expecting = [&](auto change) {
        ObjectFacts facts = made.facts;
        change(facts);
        return refusal(made, facts, made.layout);
    };
    EXPECT_EQ(expecting([](ObjectFacts&) {}), "accepted");
    EXPECT_EQ(expecting([](ObjectFacts& facts) { facts.name_space[31] ^= 1; }), "another namespace");
    EXPECT_EQ(expecting([](ObjectFacts& facts) { facts.chunk.hash = ChunkHash("hash-2"); }), "another chunk");
    EXPECT_EQ(expecting([](ObjectFacts& facts) { facts.chunk.hash = ChunkHash("hash-1x"); }), "another chunk");
    EXPECT_EQ(expecting([](ObjectFacts& facts) { facts.group = 0; }), "group is 2, expected 0");
    EXPECT_EQ(expecting([](ObjectFacts& facts) { facts.shard.first_layer = 2; }), "first layer is 3, expected 2");
    EXPECT_EQ(expecting([](ObjectFacts& facts) { facts.shard.last_layer = 9; }), "last layer is 4, expected 9");
    EXPECT_EQ(expecting([](ObjectFacts& facts) { facts.shard.first_head = 0; }), "first head is 4, expected 0");
    EXPECT_EQ(expecting([](ObjectFacts& facts) { facts.shard.last_head = 7; }), "last head is 5, expected 7");
    EXPECT_EQ(expecting([](ObjectFacts& facts) { facts.chunk_tokens = 64; }), "chunk tokens is 32, expected 64");
    EXPECT_EQ(expecting([](ObjectFacts& facts) { facts.block_tokens = 32; }), "block tokens is 16, expected 32");
    EXPECT_EQ(refusal(made, made.facts, ObjectLayout::of(3, 100)), "slices is 2, expected 3");
    EXPECT_EQ(refusal(made, made.facts, ObjectLayout::of(2, 5000)), "object size is 12288, expected 20480");
    EXPECT_EQ(refusal(made, made.facts, ObjectLayout::of(2, 101)), "slice 0 lies elsewhere than expected");
}

TEST(Object, ForeignBytesAreNoObject) {
    std::vector<std::byte> zeros(8192);
    EXPECT_EQ(decode_header(zeros).error().message, "not a Kvern object: no magic at its start");
    EXPECT_EQ(decode_header({}).error().message, "0 bytes are too short for a header");
}

// The sample's bytes with this number at this place, and a right checksum.
std::vector<std::byte> rewritten(const Sample& made, std::vector<std::byte> bytes, std::size_t at, std::uint64_t value,
                                 std::size_t size) {
    std::memcpy(bytes.data() + at, &value, size);
    std::memset(bytes.data() + 160, 0, 4);
    const std::uint32_t crc = crc32c(0, bytes.data(), made.layout.header_bytes);
    std::memcpy(bytes.data() + 160, &crc, 4);
    return bytes;
}

// A header whose checksum holds and whose content lies: somebody else's code may have written it.
TEST(Object, LyingHeadersWithAValidChecksumAreRefused) {
    const Sample made = sample(2, 100);
    EXPECT_TRUE(decode_header(rewritten(made, made.bytes, 28, 7, 4))) << "the tool that lies works";
    const struct {
        std::size_t at;
        std::uint64_t value;
        std::size_t size;
    } lies[] = {{12, 8192, 4},  {12, 0, 4},      {16, 1 << 20, 8}, {16, ~0ULL, 8},   {24, 9, 4},
                {64, 0, 4},     {64, 65, 4},     {64, ~0U, 4},     {156, 0, 4},      {156, 3, 4},
                {156, ~0U, 4},  {192, 0, 8},     {192, 4097, 8},   {192, ~0ULL, 8},  {200, 0, 8},
                {200, 5000, 8}, {200, ~0ULL, 8}, {224, 4096, 8},   {224, 1 << 20, 8}};
    std::vector<std::uint32_t> crcs;
    for (const auto& lie : lies) {
        const auto bytes = rewritten(made, made.bytes, lie.at, lie.value, lie.size);
        EXPECT_FALSE(decode_header(bytes)) << lie.at << " = " << lie.value;
        EXPECT_FALSE(check_header(bytes, made.facts, made.layout, crcs)) << lie.at << " = " << lie.value;
    }
}

// Numbers near 2^64 once let the second slice begin before the header.
TEST(Object, SlicesThatWrapAroundAreRefused) {
    const Sample made = sample(2, 100);
    const std::uint64_t huge = std::uint64_t{0} - 4096;
    auto bytes = made.bytes;
    for (const auto& [at, value] :
         {std::pair<std::size_t, std::uint64_t>{16, huge}, {200, huge}, {224, 0}, {232, huge}})
        bytes = rewritten(made, std::move(bytes), at, value, 8);
    const auto header = decode_header(bytes);
    ASSERT_FALSE(header);
    EXPECT_EQ(header.error().message, "slice 0 does not end within the object");
}

}  // namespace
}  // namespace kvern
