// SPDX-License-Identifier: Apache-2.0
// The checksums of S3: names, base64 texts, sums of a stream, and sums of objects that were uploaded in parts.
//
// Values are usable from any thread; one Checksum belongs to one thread. Which checksum a request must carry, and what
// happens when it is wrong, is for the caller.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "kvern/result.h"

namespace kvern::http {

enum class ChecksumAlgorithm : std::uint8_t { crc32, crc32c, crc64nvme, sha1, sha256, md5 };

// Those with a header x-amz-checksum-...; md5 has content-md5.
inline constexpr std::array<ChecksumAlgorithm, 5> s3_checksums{ChecksumAlgorithm::crc32, ChecksumAlgorithm::crc32c,
                                                               ChecksumAlgorithm::crc64nvme, ChecksumAlgorithm::sha1,
                                                               ChecksumAlgorithm::sha256};

std::string_view to_string(ChecksumAlgorithm algorithm);     // "CRC32C", as in x-amz-checksum-algorithm
std::string_view header_name(ChecksumAlgorithm algorithm);   // "x-amz-checksum-crc32c"
std::string_view element_name(ChecksumAlgorithm algorithm);  // "ChecksumCRC32C", as in XML documents; md5 has none
std::size_t digest_bytes(ChecksumAlgorithm algorithm);
bool is_crc(ChecksumAlgorithm algorithm);  // sums of parts give that of the whole

std::optional<ChecksumAlgorithm> parse_checksum_algorithm(std::string_view text);  // any case; not md5
std::optional<ChecksumAlgorithm> checksum_of_header(std::string_view name);        // lower case; content-md5 too

struct ChecksumValue {
    ChecksumAlgorithm algorithm = ChecksumAlgorithm::crc32;
    std::array<std::uint8_t, 32> bytes{};  // as many as digest_bytes(), then zeros; a CRC's highest byte first

    std::string_view raw() const { return {reinterpret_cast<const char*>(bytes.data()), digest_bytes(algorithm)}; }
    std::string text() const;  // base64
    bool operator==(const ChecksumValue&) const = default;
};

// Nothing where it is not strict base64 of the right size.
std::optional<ChecksumValue> parse_checksum(ChecksumAlgorithm algorithm, std::string_view text);

// Of a stream of bytes.
class Checksum {
  public:
    // Fails with not_supported where OpenSSL's configuration forbids the algorithm (MD5 under FIPS).
    static Result<Checksum> make(ChecksumAlgorithm algorithm);
    Checksum(Checksum&&) noexcept;
    Checksum& operator=(Checksum&&) noexcept;
    ~Checksum();

    ChecksumAlgorithm algorithm() const { return algorithm_; }
    void update(std::span<const std::byte> bytes);
    ChecksumValue finish();  // once

  private:
    struct Digest;  // OpenSSL's context; null for a CRC
    Checksum(ChecksumAlgorithm algorithm, std::unique_ptr<Digest> digest);

    ChecksumAlgorithm algorithm_;
    std::uint64_t crc_ = 0;
    std::unique_ptr<Digest> digest_;
};

// "FULL_OBJECT": of two parts one after the other. CRCs of one algorithm only.
ChecksumValue combine(const ChecksumValue& first, const ChecksumValue& second, std::uint64_t second_bytes);

// "COMPOSITE": the checksum of the parts' checksums, all of one algorithm, written with the number of parts behind it.
Result<ChecksumValue> composite(ChecksumAlgorithm algorithm, std::span<const ChecksumValue> parts);
std::string composite_text(const ChecksumValue& value, std::size_t parts);  // "base64-N"

}  // namespace kvern::http
