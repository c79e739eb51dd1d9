// SPDX-License-Identifier: Apache-2.0
#include "http/checksum.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <string>
#include <vector>

#include "base/text.h"

namespace kvern::http {
namespace {

constexpr std::array<ChecksumAlgorithm, 6> all{ChecksumAlgorithm::crc32,     ChecksumAlgorithm::crc32c,
                                               ChecksumAlgorithm::crc64nvme, ChecksumAlgorithm::sha1,
                                               ChecksumAlgorithm::sha256,    ChecksumAlgorithm::md5};

ChecksumValue sum(ChecksumAlgorithm algorithm, std::string_view text) {
    auto checksum = Checksum::make(algorithm).value();
    checksum.update(std::as_bytes(std::span(text)));
    return checksum.finish();
}

TEST(Checksum, KnownAnswers) {
    const auto hex = [](ChecksumAlgorithm algorithm) { return to_hex(sum(algorithm, "123456789").raw()); };
    EXPECT_EQ(hex(ChecksumAlgorithm::crc32), "cbf43926");
    EXPECT_EQ(hex(ChecksumAlgorithm::crc32c), "e3069283");
    EXPECT_EQ(hex(ChecksumAlgorithm::crc64nvme), "ae8b14860a799888");
    EXPECT_EQ(hex(ChecksumAlgorithm::sha1), "f7c3bc1d808e04732adf679965ccc34ca7ae3441");
    EXPECT_EQ(hex(ChecksumAlgorithm::sha256), "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225");
    EXPECT_EQ(hex(ChecksumAlgorithm::md5), "25f9e794323b453885f5181f1b624d0b");
    EXPECT_EQ(sum(ChecksumAlgorithm::crc32, "123456789").text(), "y/Q5Jg==");
    EXPECT_EQ(sum(ChecksumAlgorithm::crc64nvme, "").text(), "AAAAAAAAAAA=");
}

TEST(Checksum, NamesOfS3) {
    EXPECT_EQ(header_name(ChecksumAlgorithm::crc64nvme), "x-amz-checksum-crc64nvme");
    EXPECT_EQ(element_name(ChecksumAlgorithm::sha256), "ChecksumSHA256");
    for (const ChecksumAlgorithm algorithm : s3_checksums) {
        EXPECT_EQ(parse_checksum_algorithm(to_string(algorithm)), algorithm);
        EXPECT_EQ(checksum_of_header(header_name(algorithm)), algorithm);
    }
    EXPECT_EQ(parse_checksum_algorithm("crc32c"), ChecksumAlgorithm::crc32c);
    EXPECT_EQ(checksum_of_header("content-md5"), ChecksumAlgorithm::md5);
    EXPECT_FALSE(parse_checksum_algorithm("CRC"));
    EXPECT_FALSE(parse_checksum_algorithm(""));
    EXPECT_FALSE(parse_checksum_algorithm("MD5"));
    EXPECT_FALSE(checksum_of_header("x-amz-checksum-algorithm"));
}

TEST(Checksum, StreamsEqualWholes) {
    EXPECT_TRUE(rc::check("update(a), update(b) == sum(a + b)", [](const std::string& a, const std::string& b) {
        for (const ChecksumAlgorithm algorithm : all) {
            auto stream = Checksum::make(algorithm).value();
            stream.update(std::as_bytes(std::span(a)));
            stream.update(std::as_bytes(std::span(b)));
            RC_ASSERT(stream.finish() == sum(algorithm, a + b));
        }
    }));
}

TEST(Checksum, TextsAreReadStrictly) {
    for (const ChecksumAlgorithm algorithm : all) {
        const ChecksumValue value = sum(algorithm, "x");
        EXPECT_EQ(parse_checksum(algorithm, value.text()), value);
        EXPECT_FALSE(parse_checksum(algorithm, value.text() + " "));
        EXPECT_FALSE(parse_checksum(algorithm, to_hex(value.raw())));
        EXPECT_FALSE(parse_checksum(algorithm, "AAAA"));
        EXPECT_FALSE(parse_checksum(algorithm, ""));
    }
}

TEST(Checksum, PartsGiveTheWhole) {
    EXPECT_TRUE(rc::check("combined CRCs", [](const std::vector<std::string>& parts) {
        for (const ChecksumAlgorithm algorithm : s3_checksums) {
            if (!is_crc(algorithm)) continue;
            ChecksumValue combined = sum(algorithm, "");
            std::string whole;
            for (const std::string& part : parts) {
                combined = combine(combined, sum(algorithm, part), part.size());
                whole += part;
            }
            RC_ASSERT(combined == sum(algorithm, whole));
        }
    }));
}

TEST(Checksum, CompositesAreSumsOfSums) {
    for (const ChecksumAlgorithm algorithm : s3_checksums) {
        const std::vector<ChecksumValue> parts{sum(algorithm, "a"), sum(algorithm, "b")};
        const ChecksumValue value = composite(algorithm, parts).value();
        EXPECT_EQ(value, sum(algorithm, std::string(parts[0].raw()) + std::string(parts[1].raw())));
        EXPECT_EQ(composite_text(value, parts.size()), value.text() + "-2");
    }
}

}  // namespace
}  // namespace kvern::http
