// SPDX-License-Identifier: Apache-2.0
// The record of an object: what is written is read again, and nothing else is taken for a record. The vector is that of
// docs/format.md.
#include "server/object_record.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "base/text.h"
#include "kvern/limits.h"

namespace kvern::server {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
    return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

std::string sealed(std::string body) {
    const auto sum = crc32c(0, body.data(), body.size());
    for (int shift = 0; shift < 32; shift += 8) body += static_cast<char>(sum >> shift);
    return body;
}

// All that a record can hold.
ObjectRecord full_record() {
    ObjectRecord record;
    record.size_bytes = 3 * limits::object_block_bytes_min - 5;
    record.written_ns = 1'700'000'000'123'456'789;
    record.etag = "5eb63bbbe01eeed093cb22bb8f5acdc3-2";
    record.content_type = "application/x-tar";
    record.headers = {{"cache-control", "no-store"}, {"x-amz-meta-empty", ""}, {"x-amz-meta-odd", "\xff\x01\n"}};
    record.algorithm = http::ChecksumAlgorithm::crc64nvme;
    record.checksum = "rosUhgp5mIg=";
    record.composite = true;
    record.upload = "00112233445566778899aabb";
    record.block_bytes = limits::object_block_bytes_min;
    record.block_sums = {1, 0xffffffff, 3};
    record.parts = {{limits::object_block_bytes_min, "AAAAAA=="},
                    {record.size_bytes - limits::object_block_bytes_min, ""}};
    return record;
}

void expect_equal(const ObjectRecord& one, const ObjectRecord& other) {
    EXPECT_EQ(one.size_bytes, other.size_bytes);
    EXPECT_EQ(one.written_ns, other.written_ns);
    EXPECT_EQ(one.etag, other.etag);
    EXPECT_EQ(one.content_type, other.content_type);
    EXPECT_EQ(one.headers, other.headers);
    EXPECT_EQ(one.algorithm, other.algorithm);
    EXPECT_EQ(one.checksum, other.checksum);
    EXPECT_EQ(one.composite, other.composite);
    EXPECT_EQ(one.upload, other.upload);
    EXPECT_EQ(one.block_bytes, other.block_bytes);
    EXPECT_EQ(one.block_sums, other.block_sums);
    ASSERT_EQ(one.parts.size(), other.parts.size());
    for (std::size_t i = 0; i < one.parts.size(); ++i) {
        EXPECT_EQ(one.parts[i].size_bytes, other.parts[i].size_bytes);
        EXPECT_EQ(one.parts[i].checksum, other.parts[i].checksum);
    }
    EXPECT_EQ(one.tail_bytes, other.tail_bytes);
    EXPECT_EQ(one.tail_sum, other.tail_sum);
}

// An object's bytes, and its record with the sums of its blocks.
struct Summed {
    std::string bytes;
    ObjectRecord record;
};
Summed summed(std::size_t size_bytes, std::uint32_t block_bytes) {
    Summed one;
    one.bytes.resize(size_bytes);
    for (std::size_t i = 0; i < size_bytes; ++i) one.bytes[i] = static_cast<char>(i * 131 + i / 251);
    BlockSummer summer(block_bytes);
    summer.update(bytes_of(one.bytes));
    one.record.size_bytes = size_bytes;
    one.record.block_bytes = block_bytes;
    one.record.block_sums = summer.finish();
    return one;
}

TEST(ObjectRecord, IsWhatTheFormatSays) {
    ObjectRecord record;
    record.size_bytes = 11;
    record.written_ns = 1'700'000'000'123'456'789;
    record.etag = "5eb63bbbe01eeed093cb22bb8f5acdc3";
    record.content_type = "text/plain";
    record.headers = {{"x-amz-meta-a", "b"}};
    record.algorithm = http::ChecksumAlgorithm::crc32c;
    record.checksum = "yZRlqg==";
    record.block_bytes = limits::object_block_bytes_min;
    BlockSummer summer(record.block_bytes);
    summer.update(bytes_of("hello world"));
    record.block_sums = summer.finish();
    EXPECT_EQ(to_hex(encode(record)),
              "4b7653330101010b0209959a97ece39fe7cb1703203565623633626262653031656565643039336362323262623866356163"
              "646333040a746578742f706c61696e050f0c782d616d7a2d6d6574612d61016206064352433332430708795a526c71673d3d"
              "09038080100a04aa6594c9287b6a83");
}

TEST(ObjectRecord, ComesBackWhole) {
    const auto record = full_record();
    const auto back = decode_record(encode(record));
    ASSERT_TRUE(back) << back.error().message;
    expect_equal(record, *back);
}

TEST(ObjectRecord, ComesBackWholeWhateverIsInIt) {
    rc::check([] {
        ObjectRecord record;
        record.block_bytes = block_bytes_for(record.size_bytes);
        record.size_bytes = *rc::gen::inRange<std::uint64_t>(0, 40) * record.block_bytes + *rc::gen::inRange(0, 2);
        record.written_ns = *rc::gen::arbitrary<std::int64_t>();
        record.etag = *rc::gen::arbitrary<std::string>();
        record.content_type = *rc::gen::arbitrary<std::string>();
        record.headers = *rc::gen::arbitrary<std::vector<std::pair<std::string, std::string>>>();
        record.checksum = *rc::gen::arbitrary<std::string>();
        record.composite = *rc::gen::arbitrary<bool>();
        record.upload = *rc::gen::arbitrary<std::string>();
        record.block_sums = *rc::gen::container<std::vector<std::uint32_t>>(
            (record.size_bytes + record.block_bytes - 1) / record.block_bytes, rc::gen::arbitrary<std::uint32_t>());
        const auto back = decode_record(encode(record));
        RC_ASSERT(back.has_value());
        expect_equal(record, *back);
    });
}

TEST(ObjectRecord, WithTheLongestHeadersFitsIntoAStoresMetadata) {
    auto record = full_record();
    record.headers.clear();
    for (int i = 0; i < 32; ++i) {
        record.headers.emplace_back("x-amz-meta-" + std::to_string(i),
                                    std::string(limits::user_metadata_bytes_max / 32, 'm'));
    }
    record.parts.assign(limits::upload_parts_max,
                        {limits::object_bytes_max, "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="});
    EXPECT_FALSE(split_tail(record).empty());
    EXPECT_LT(encode(record).size(), limits::metadata_bytes_max);
}

TEST(ObjectRecord, NoBeginningOfOneIsOne) {
    const auto bytes = encode(full_record());
    for (std::size_t size = 0; size < bytes.size(); ++size) {
        const auto record = decode_record(std::string_view(bytes).substr(0, size));
        ASSERT_FALSE(record) << size;
        EXPECT_EQ(record.error().code, ErrorCode::corrupt);
    }
    EXPECT_FALSE(decode_record(bytes + '\0'));
}

TEST(ObjectRecord, NoBitMayBeWrong) {
    const auto bytes = encode(full_record());
    for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
        auto damaged = bytes;
        damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
        EXPECT_FALSE(decode_record(damaged)) << bit;
    }
}

TEST(ObjectRecord, OfAnotherVersionIsRefusedWithThatReason) {
    auto body = encode(full_record());
    body.resize(body.size() - 4);
    body[4] = 2;
    const auto record = decode_record(sealed(body));
    ASSERT_FALSE(record);
    EXPECT_EQ(record.error().message, "a record of another version of this server");
}

TEST(ObjectRecord, WithAFieldThatNobodyKnowsIsRefused) {
    auto body = encode(full_record());
    body.resize(body.size() - 4);
    EXPECT_TRUE(decode_record(sealed(body)));
    EXPECT_FALSE(decode_record(sealed(body + std::string("\x63\x01x", 3))));
    EXPECT_FALSE(decode_record(sealed(body + std::string("\x00\x00", 2))));
    EXPECT_FALSE(decode_record(sealed(body + std::string("\x01\x02\x05", 3))));            // ends within a field
    EXPECT_FALSE(decode_record(sealed(body + std::string("\x01\x02\x05\x05", 4))));        // a number, and more
    EXPECT_FALSE(decode_record(sealed(body + "\x01\x0b" + std::string(11, '\xff'))));      // a number without an end
    EXPECT_FALSE(decode_record(sealed(body + "\x0a\x03" + "abc")));                        // no whole sums
    EXPECT_FALSE(decode_record(sealed(body + "\x06\x05" + "CRC99")));                      // no such algorithm
    EXPECT_FALSE(decode_record(sealed(body + "\x03" + std::string(9, '\xff') + '\x01')));  // longer than anything
}

TEST(ObjectRecord, MustHaveASumForEachBlock) {
    for (const int more : {-1, 1}) {
        auto record = full_record();
        record.block_sums.resize(record.block_sums.size() + static_cast<std::size_t>(more));
        EXPECT_FALSE(decode_record(encode(record)));
    }
    auto record = full_record();
    record.block_bytes = 0;
    record.block_sums.clear();
    EXPECT_FALSE(decode_record(encode(record)));
    record = {};
    record.block_bytes = limits::object_block_bytes_min;
    EXPECT_TRUE(decode_record(encode(record))) << "an empty object has no block";
}

TEST(ObjectRecord, KeepsShortSumsAndPutsLongOnesBehindTheBytes) {
    auto record = full_record();
    EXPECT_TRUE(split_tail(record).empty());
    EXPECT_EQ(record.block_sums.size(), 3U);
    EXPECT_EQ(record.tail_bytes, 0U);

    record.block_sums.resize(300);
    std::iota(record.block_sums.begin(), record.block_sums.end(), 7U);
    record.size_bytes = 300ULL * record.block_bytes;
    const auto whole = record;
    const auto tail = split_tail(record);
    EXPECT_EQ(tail.size(), record.tail_bytes);
    EXPECT_TRUE(record.block_sums.empty() && record.parts.empty());
    auto back = decode_record(encode(record));
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_EQ(back->tail_bytes, tail.size());
    ASSERT_TRUE(join_tail(*back, bytes_of(tail)));
    EXPECT_EQ(back->block_sums, whole.block_sums);
    EXPECT_EQ(back->parts.size(), whole.parts.size());
}

TEST(ObjectRecord, TakesNoOtherTail) {
    auto record = full_record();
    record.block_sums.resize(300);
    record.size_bytes = 300ULL * record.block_bytes;
    const auto tail = split_tail(record);
    const auto refused = [&](std::string_view other) {
        auto copy = record;
        const auto joined = join_tail(copy, bytes_of(other));
        return !joined && joined.error().code == ErrorCode::corrupt;
    };
    for (std::size_t size = 0; size < tail.size(); ++size)
        EXPECT_TRUE(refused(std::string_view(tail).substr(0, size))) << size;
    EXPECT_TRUE(refused(tail + '\0'));
    for (std::size_t bit = 0; bit < tail.size() * 8; ++bit) {
        auto damaged = tail;
        damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
        EXPECT_TRUE(refused(damaged)) << bit;
    }
    auto longer = record;  // a good tail, of an object with more blocks
    longer.size_bytes += longer.block_bytes;
    EXPECT_FALSE(join_tail(longer, bytes_of(tail)));
}

TEST(Blocks, GrowWithTheObjectSoThatTheirNumberDoesNot) {
    EXPECT_EQ(block_bytes_for(0), limits::object_block_bytes_min);
    std::uint32_t before = 0;
    for (std::uint64_t size = 1; size <= limits::object_bytes_max; size *= 2) {
        const auto block = block_bytes_for(size);
        EXPECT_GE(block, before);
        EXPECT_GE(block, limits::object_block_bytes_min);
        EXPECT_LE(block, limits::object_block_bytes_max);
        if (block < limits::object_block_bytes_max) {
            EXPECT_LT(size / block, limits::object_blocks_wanted_max);
        }
        before = block;
    }
    EXPECT_EQ(before, limits::object_block_bytes_max);
}

TEST(Blocks, HaveTheSameSumsInAnySplit) {
    const auto whole = summed(1000, 64);
    EXPECT_EQ(whole.record.block_sums.size(), 16U);
    rc::check([&] {
        BlockSummer summer(64);
        for (auto rest = bytes_of(whole.bytes); !rest.empty();) {
            const auto part = std::min(rest.size(), *rc::gen::inRange<std::size_t>(1, 200));
            summer.update(rest.first(part));
            rest = rest.subspan(part);
        }
        RC_ASSERT(summer.finish() == whole.record.block_sums);
    });
    BlockSummer none(64);
    EXPECT_TRUE(none.finish().empty());
}

TEST(Blocks, HoldWhereverTheyBeginAndNotWithOneWrongBit) {
    for (const std::size_t size : {1, 63, 64, 65, 1000, 1024}) {
        const auto whole = summed(size, 64);
        const auto blocks = whole.record.block_sums.size();
        for (std::size_t first = 0; first < blocks; ++first) {
            const auto rest = bytes_of(whole.bytes).subspan(first * 64);
            EXPECT_TRUE(blocks_hold(whole.record, first, rest)) << size << " from " << first;
            EXPECT_TRUE(blocks_hold(whole.record, first, rest.first(std::min<std::size_t>(64, rest.size()))));
            auto damaged = whole.bytes.substr(first * 64);
            damaged.back() = static_cast<char>(damaged.back() ^ 4);
            EXPECT_FALSE(blocks_hold(whole.record, first, bytes_of(damaged))) << size << " from " << first;
        }
    }
}

TEST(Blocks, AreRefusedWhereTheyAreNotThoseOfThatPlace) {
    const auto whole = summed(1000, 64);
    const auto bytes = bytes_of(whole.bytes);
    EXPECT_FALSE(blocks_hold(whole.record, 1, bytes.first(64)));              // of another place
    EXPECT_FALSE(blocks_hold(whole.record, 0, bytes.first(63)));              // cut
    EXPECT_FALSE(blocks_hold(whole.record, 0, bytes.first(64 + 10)));         // the second is cut
    EXPECT_FALSE(blocks_hold(whole.record, 16, bytes.first(64)));             // behind the end
    EXPECT_FALSE(blocks_hold(whole.record, 15, bytes.subspan(15 * 64 - 1)));  // longer than the last one
    EXPECT_TRUE(blocks_hold(whole.record, 3, {}));
}

}  // namespace
}  // namespace kvern::server
