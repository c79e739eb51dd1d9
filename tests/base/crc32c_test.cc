// SPDX-License-Identifier: Apache-2.0
// Every path of CRC32C against a sum of one bit at a time, for sizes around every block and any alignment.
#include "base/crc32c.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <array>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace kvern {
namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::array<std::string_view, 3> all_paths{"vpclmulqdq", "sse4.2+avx2", "table"};

// One byte at a time, by the definition of the polynomial; a table of its own makes it quick enough for megabytes.
std::uint32_t reference(std::uint32_t crc, const std::uint8_t* data, std::size_t size_bytes) {
    static const auto table = [] {
        std::array<std::uint32_t, 256> result{};
        for (std::uint32_t byte = 0; byte < 256; ++byte) {
            std::uint32_t value = byte;
            for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0x82F63B78u : 0u);
            result[byte] = value;
        }
        return result;
    }();
    crc = ~crc;
    for (std::size_t i = 0; i < size_bytes; ++i) crc = (crc >> 8) ^ table[(crc ^ data[i]) & 255];
    return ~crc;
}

Bytes random_bytes(std::size_t size_bytes, unsigned seed) {
    Bytes bytes(size_bytes);
    std::mt19937 random(seed);
    for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
    return bytes;
}

std::vector<std::string_view> available_paths() {
    std::vector<std::string_view> paths;
    for (const std::string_view path : all_paths) {
        std::uint32_t crc = 0;
        if (crc32c_with(path, crc, nullptr, 0)) paths.push_back(path);
    }
    return paths;
}

// Sums, and copies into the middle of a buffer of marks: exact sum, exact bytes, nothing beside them.
::testing::AssertionResult agrees(std::string_view path, std::uint32_t start, const std::uint8_t* source,
                                  std::size_t size_bytes, std::size_t destination_offset) {
    constexpr std::size_t margin_bytes = 128;
    const std::uint32_t expected = reference(start, source, size_bytes);
    std::uint32_t summed = start;
    crc32c_with(path, summed, source, size_bytes);
    if (summed != expected) return ::testing::AssertionFailure() << path << ": sum of " << size_bytes << " bytes";

    Bytes room(destination_offset + size_bytes + margin_bytes, 0xA5);
    std::uint32_t copied = start;
    copy_crc32c_with(path, copied, room.data() + destination_offset, source, size_bytes);
    if (copied != expected) return ::testing::AssertionFailure() << path << ": copy sum of " << size_bytes << " bytes";
    if (size_bytes != 0 && std::memcmp(room.data() + destination_offset, source, size_bytes) != 0) {
        return ::testing::AssertionFailure() << path << ": copied bytes differ, " << size_bytes << " bytes";
    }
    for (std::size_t i = 0; i < room.size(); ++i) {
        const bool inside = i >= destination_offset && i < destination_offset + size_bytes;
        if (!inside && room[i] != 0xA5) return ::testing::AssertionFailure() << path << ": wrote beside, at " << i;
    }
    return ::testing::AssertionSuccess();
}

TEST(Crc32c, KnownAnswers) {
    const std::string zeros(32, '\0');
    const std::string ones(32, '\xff');
    for (const std::string_view path : available_paths()) {
        const auto sum = [&](std::string_view bytes) {
            std::uint32_t crc = 0;
            EXPECT_TRUE(crc32c_with(path, crc, bytes.data(), bytes.size()));
            return crc;
        };
        EXPECT_EQ(sum("123456789"), 0xE3069283u) << path;
        EXPECT_EQ(sum(zeros), 0x8A9136AAu) << path;  // RFC 3720, B.4
        EXPECT_EQ(sum(ones), 0x62A8AB43u) << path;
        EXPECT_EQ(sum(""), 0u) << path;
    }
    EXPECT_EQ(crc32c(0, "123456789", 9), 0xE3069283u);
}

TEST(Crc32c, ChoosesAnAvailablePath) {
    const auto paths = available_paths();
    ASSERT_FALSE(paths.empty());
    EXPECT_EQ(crc32c_path(), paths.front());  // the list goes from fast to slow
    EXPECT_EQ(paths.back(), "table");
}

TEST(Crc32c, UnknownPathDoesNothing) {
    std::uint32_t crc = 7;
    char destination = 'd';
    EXPECT_FALSE(crc32c_with("quantum", crc, "abc", 3));
    EXPECT_FALSE(copy_crc32c_with("quantum", crc, &destination, "a", 1));
    EXPECT_EQ(crc, 7u);
    EXPECT_EQ(destination, 'd');
}

TEST(Crc32c, EverySizeUpToTwoBlocks) {
    const Bytes source = random_bytes(16384, 1);
    for (const std::string_view path : available_paths()) {
        for (std::size_t size_bytes = 0; size_bytes <= 9300; size_bytes += size_bytes < 1200 ? 1 : 37) {
            ASSERT_TRUE(agrees(path, 0xDEADBEEF, source.data() + size_bytes % 64, size_bytes, size_bytes % 61));
        }
    }
}

TEST(Crc32c, SizesAroundEveryBlock) {
    const Bytes source = random_bytes((std::size_t{256} << 10) + 128, 2);
    for (const std::string_view path : available_paths()) {
        for (const std::size_t block : {256, 512, 1024, 4096, 8192, 12288, 16384, 32768, 65536, 131072, 262144}) {
            for (int difference = -9; difference <= 9; ++difference) {
                const std::size_t size_bytes = block + static_cast<std::size_t>(difference);
                ASSERT_TRUE(agrees(path, 0, source.data() + 3, size_bytes, 5));
                ASSERT_TRUE(agrees(path, 1, source.data(), size_bytes, 64));
            }
        }
    }
}

TEST(Crc32c, AnySizeAndAlignment) {
    const Bytes source = random_bytes((std::size_t{1} << 20) + 64, 3);
    EXPECT_TRUE(rc::check("every path agrees with the reference", [&] {
        // Half of the sizes are small: RapidCheck's own sizes would all be.
        const auto size_bytes = *rc::gen::oneOf(rc::gen::inRange<std::size_t>(0, 5000),
                                                rc::gen::inRange<std::size_t>(0, std::size_t{1} << 20));
        const auto from = *rc::gen::inRange<std::size_t>(0, 64);
        const auto to = *rc::gen::inRange<std::size_t>(0, 64);
        const auto start = *rc::gen::arbitrary<std::uint32_t>();
        for (const std::string_view path : available_paths()) {
            RC_ASSERT(static_cast<bool>(agrees(path, start, source.data() + from, size_bytes, to)));
        }
    }));
}

TEST(Crc32c, ChainsOverAnyCut) {
    const Bytes source = random_bytes(100000, 4);
    EXPECT_TRUE(rc::check("sum(a + b) == sum(b after sum(a))", [&] {
        const auto size_bytes = *rc::gen::inRange<std::size_t>(0, source.size() + 1);
        const auto cut = *rc::gen::inRange<std::size_t>(0, size_bytes + 1);
        Bytes room(size_bytes + 1);
        for (const std::string_view path : available_paths()) {
            std::uint32_t whole = 0;
            crc32c_with(path, whole, source.data(), size_bytes);
            std::uint32_t parts = 0;
            copy_crc32c_with(path, parts, room.data(), source.data(), cut);
            crc32c_with(path, parts, source.data() + cut, size_bytes - cut);
            RC_ASSERT(parts == whole);
        }
    }));
}

TEST(Crc32c, NoticesEveryBitOfAPage) {
    Bytes page = random_bytes(4096, 5);
    const std::uint32_t right = crc32c(0, page.data(), page.size());
    for (std::size_t bit = 0; bit < page.size() * 8; bit += 7) {
        page[bit / 8] ^= static_cast<std::uint8_t>(1u << (bit % 8));
        ASSERT_NE(crc32c(0, page.data(), page.size()), right) << bit;
        page[bit / 8] ^= static_cast<std::uint8_t>(1u << (bit % 8));
    }
}

}  // namespace
}  // namespace kvern
