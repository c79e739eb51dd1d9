// SPDX-License-Identifier: Apache-2.0
// CRC-64/NVME and CRC-32 on every path against sums of one bit at a time, and the sums of messages put together.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <array>
#include <random>
#include <string>
#include <vector>

#include "base/crc32.h"
#include "base/crc32c.h"
#include "base/crc64nvme.h"

namespace kvern {
namespace {

using Bytes = std::vector<std::uint8_t>;

template <class Word>
struct Algorithm {
    Word polynomial;
    Word check;  // of "123456789"
    Word (*sum)(Word, const void*, std::size_t);
    Word (*combine)(Word, Word, std::uint64_t);
    std::string_view (*path)();
    bool (*with)(std::string_view, Word&, const void*, std::size_t);

    // By the definition of the polynomial; a table of its own makes it quick enough.
    Word reference(Word crc, const std::uint8_t* data, std::size_t size_bytes) const {
        static const auto table = [this] {
            std::array<Word, 256> result{};
            for (Word byte = 0; byte < 256; ++byte) {
                Word value = byte;
                for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? polynomial : Word{0});
                result[byte] = value;
            }
            return result;
        }();
        crc = ~crc;
        for (std::size_t i = 0; i < size_bytes; ++i) crc = (crc >> 8) ^ table[(crc ^ data[i]) & 255];
        return ~crc;
    }

    std::vector<std::string_view> available() const {
        std::vector<std::string_view> paths;
        for (const std::string_view name : {"vpclmulqdq512", "vpclmulqdq", "pclmulqdq", "table"}) {
            Word crc = 0;
            if (with(name, crc, nullptr, 0)) paths.push_back(name);
        }
        return paths;
    }
};

const Algorithm<std::uint64_t> nvme{0x9A6C9329AC4BC9B5, 0xAE8B14860A799888, crc64nvme,
                                    crc64nvme_combine,  crc64nvme_path,     crc64nvme_with};
const Algorithm<std::uint32_t> zlib{0xEDB88320, 0xCBF43926, crc32, crc32_combine, crc32_path, crc32_with};

template <class Check>
void for_both(Check check) {
    check(nvme);
    check(zlib);
}

Bytes random_bytes(std::size_t size_bytes, unsigned seed) {
    Bytes bytes(size_bytes);
    std::mt19937 random(seed);
    for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
    return bytes;
}

TEST(CrcFold, KnownAnswers) {
    for_both([](const auto& algorithm) {
        for (const std::string_view path : algorithm.available()) {
            auto crc = algorithm.check;
            crc = 0;
            EXPECT_TRUE(algorithm.with(path, crc, "123456789", 9));
            EXPECT_EQ(crc, algorithm.check) << path;
        }
        EXPECT_EQ(algorithm.sum(0, "123456789", 9), algorithm.check);
        EXPECT_EQ(algorithm.sum(0, nullptr, 0), 0u);
    });
    // NVM Express NVM Command Set Specification, example vectors of its 64b CRC
    const Bytes zeros(4096, 0);
    const Bytes ones(4096, 0xff);
    EXPECT_EQ(crc64nvme(0, zeros.data(), zeros.size()), 0x6482D367EB22B64Eu);
    EXPECT_EQ(crc64nvme(0, ones.data(), ones.size()), 0xC0DDBA7302ECA3ACu);
}

TEST(CrcFold, ChoosesTheFastestAvailablePath) {
    for_both([](const auto& algorithm) {
        const auto paths = algorithm.available();
        ASSERT_FALSE(paths.empty());
        EXPECT_EQ(algorithm.path(), paths.front());
        EXPECT_EQ(paths.back(), "table");
        auto crc = algorithm.check;
        EXPECT_FALSE(algorithm.with("quantum", crc, "abc", 3));
        EXPECT_EQ(crc, algorithm.check);
    });
}

TEST(CrcFold, EverySizeUpToFourSteps) {
    const Bytes source = random_bytes(8192, 1);
    for_both([&](const auto& algorithm) {
        for (const std::string_view path : algorithm.available()) {
            for (std::size_t size_bytes = 0; size_bytes <= 1100; ++size_bytes) {
                for (const std::size_t offset : {std::size_t{0}, size_bytes % 64}) {
                    auto crc = algorithm.check;
                    const auto expected = algorithm.reference(crc, source.data() + offset, size_bytes);
                    algorithm.with(path, crc, source.data() + offset, size_bytes);
                    ASSERT_EQ(crc, expected) << path << ", " << size_bytes << " bytes";
                }
            }
        }
    });
}

TEST(CrcFold, EveryAlignment) {
    const Bytes source = random_bytes(8192, 2);
    for_both([&](const auto& algorithm) {
        for (const std::string_view path : algorithm.available()) {
            for (std::size_t offset = 0; offset < 128; ++offset) {
                auto crc = algorithm.check;
                const auto expected = algorithm.reference(crc, source.data() + offset, 4099);
                algorithm.with(path, crc, source.data() + offset, 4099);
                ASSERT_EQ(crc, expected) << path << ", offset " << offset;
            }
        }
    });
}

TEST(CrcFold, ChainsAndCombinesOverAnyCut) {
    const Bytes source = random_bytes(100000, 3);
    for_both([&](const auto& algorithm) {
        EXPECT_TRUE(rc::check("sum(a + b) from sum(a) and b, or sum(b)", [&] {
            const auto size_bytes = *rc::gen::inRange<std::size_t>(0, source.size() + 1);
            const auto cut = *rc::gen::inRange<std::size_t>(0, size_bytes + 1);
            const auto whole = algorithm.reference(0, source.data(), size_bytes);
            const auto first = algorithm.sum(0, source.data(), cut);
            const auto second = algorithm.sum(0, source.data() + cut, size_bytes - cut);
            RC_ASSERT(algorithm.sum(first, source.data() + cut, size_bytes - cut) == whole);
            RC_ASSERT(algorithm.combine(first, second, size_bytes - cut) == whole);
        }));
    });
}

TEST(CrcFold, CombinesHugeSizes) {
    // (a + b) + c == a + (b + c), with b of sizes that no test could sum.
    constexpr std::uint64_t huge = (std::uint64_t{5} << 40) + 12345;
    for_both([&](const auto& algorithm) {
        const auto a = algorithm.sum(0, "a", 1);
        const auto b = algorithm.check;
        const auto c = algorithm.sum(0, "xyz", 3);
        EXPECT_EQ(algorithm.combine(algorithm.combine(a, b, huge), c, 3),
                  algorithm.combine(a, algorithm.combine(b, c, 3), huge + 3));
        EXPECT_EQ(algorithm.combine(a, 0, 0), a);
        EXPECT_EQ(algorithm.combine(0, b, huge), b);
    });
}

TEST(Crc32cCombine, IsTheSumOfTheWhole) {
    const Bytes source = random_bytes(70000, 4);
    const auto whole = crc32c(0, source.data(), source.size());
    for (const std::size_t cut : {std::size_t{0}, std::size_t{1}, std::size_t{4096}, source.size()}) {
        const auto first = crc32c(0, source.data(), cut);
        const auto second = crc32c(0, source.data() + cut, source.size() - cut);
        EXPECT_EQ(crc32c_combine(first, second, source.size() - cut), whole) << cut;
    }
}

}  // namespace
}  // namespace kvern
