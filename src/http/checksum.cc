// SPDX-License-Identifier: Apache-2.0
#include "http/checksum.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>

#include "base/crc32.h"
#include "base/crc32c.h"
#include "base/crc64nvme.h"
#include "base/text.h"

namespace kvern::http {
namespace {

struct Row {
    ChecksumAlgorithm algorithm;
    std::string_view name;
    std::string_view header;
    std::string_view element;
    std::size_t size_bytes;
};

constexpr std::array<Row, 6> rows{{
    {ChecksumAlgorithm::crc32, "CRC32", "x-amz-checksum-crc32", "ChecksumCRC32", 4},
    {ChecksumAlgorithm::crc32c, "CRC32C", "x-amz-checksum-crc32c", "ChecksumCRC32C", 4},
    {ChecksumAlgorithm::crc64nvme, "CRC64NVME", "x-amz-checksum-crc64nvme", "ChecksumCRC64NVME", 8},
    {ChecksumAlgorithm::sha1, "SHA1", "x-amz-checksum-sha1", "ChecksumSHA1", 20},
    {ChecksumAlgorithm::sha256, "SHA256", "x-amz-checksum-sha256", "ChecksumSHA256", 32},
    {ChecksumAlgorithm::md5, "MD5", "content-md5", "", 16},
}};

const Row& row(ChecksumAlgorithm algorithm) {
    return rows[static_cast<std::size_t>(algorithm)];
}

bool equal_in_any_case(std::string_view text, std::string_view upper) {
    return std::equal(text.begin(), text.end(), upper.begin(), upper.end(),
                      [](char a, char b) { return (a >= 'a' && a <= 'z' ? a - 'a' + 'A' : a) == b; });
}

// Null where OpenSSL refuses it. Fetched once and kept for ever: an implicit fetch for each digest costs a microsecond.
const EVP_MD* evp_of(ChecksumAlgorithm algorithm) {
    static const EVP_MD* const sha1 = EVP_MD_fetch(nullptr, "SHA1", nullptr);
    static const EVP_MD* const sha256 = EVP_MD_fetch(nullptr, "SHA256", nullptr);
    static const EVP_MD* const md5 = EVP_MD_fetch(nullptr, "MD5", nullptr);
    if (algorithm == ChecksumAlgorithm::sha1) return sha1;
    return algorithm == ChecksumAlgorithm::sha256 ? sha256 : md5;
}

std::uint64_t sum(ChecksumAlgorithm algorithm, std::uint64_t crc, std::span<const std::byte> bytes) {
    if (algorithm == ChecksumAlgorithm::crc64nvme) return crc64nvme(crc, bytes.data(), bytes.size());
    const auto narrow = static_cast<std::uint32_t>(crc);
    if (algorithm == ChecksumAlgorithm::crc32c) return crc32c(narrow, bytes.data(), bytes.size());
    return crc32(narrow, bytes.data(), bytes.size());
}

ChecksumValue value_of_crc(ChecksumAlgorithm algorithm, std::uint64_t crc) {
    ChecksumValue value{algorithm, {}};
    const std::size_t size_bytes = digest_bytes(algorithm);
    for (std::size_t i = 0; i < size_bytes; ++i) {
        value.bytes[i] = static_cast<std::uint8_t>(crc >> (8 * (size_bytes - 1 - i)));
    }
    return value;
}

std::uint64_t crc_of(const ChecksumValue& value) {
    std::uint64_t crc = 0;
    for (std::size_t i = 0; i < digest_bytes(value.algorithm); ++i) crc = crc << 8 | value.bytes[i];
    return crc;
}

}  // namespace

std::string_view to_string(ChecksumAlgorithm algorithm) {
    return row(algorithm).name;
}

std::string_view header_name(ChecksumAlgorithm algorithm) {
    return row(algorithm).header;
}

std::string_view element_name(ChecksumAlgorithm algorithm) {
    return row(algorithm).element;
}

std::size_t digest_bytes(ChecksumAlgorithm algorithm) {
    return row(algorithm).size_bytes;
}

bool is_crc(ChecksumAlgorithm algorithm) {
    return algorithm <= ChecksumAlgorithm::crc64nvme;
}

std::optional<ChecksumAlgorithm> parse_checksum_algorithm(std::string_view text) {
    for (const ChecksumAlgorithm algorithm : s3_checksums) {
        if (equal_in_any_case(text, to_string(algorithm))) return algorithm;
    }
    return std::nullopt;
}

std::optional<ChecksumAlgorithm> checksum_of_header(std::string_view name) {
    for (const Row& known : rows) {
        if (known.header == name) return known.algorithm;
    }
    return std::nullopt;
}

std::string ChecksumValue::text() const {
    return to_base64(raw());
}

std::optional<ChecksumValue> parse_checksum(ChecksumAlgorithm algorithm, std::string_view text) {
    const auto bytes = from_base64(text);
    if (!bytes || bytes->size() != digest_bytes(algorithm)) return std::nullopt;
    ChecksumValue value{algorithm, {}};
    std::copy(bytes->begin(), bytes->end(), value.bytes.begin());
    return value;
}

struct Checksum::Digest {
    EVP_MD_CTX* evp = EVP_MD_CTX_new();
    Digest() = default;
    Digest(const Digest&) = delete;
    Digest& operator=(const Digest&) = delete;
    ~Digest() { EVP_MD_CTX_free(evp); }
};

Result<Checksum> Checksum::make(ChecksumAlgorithm algorithm) {
    if (is_crc(algorithm)) return Checksum(algorithm, nullptr);
    auto digest = std::make_unique<Digest>();
    const EVP_MD* const evp = evp_of(algorithm);
    if (evp == nullptr || digest->evp == nullptr || EVP_DigestInit_ex2(digest->evp, evp, nullptr) != 1) {
        return fail(ErrorCode::not_supported,
                    fmt::format("OpenSSL offers no {}: check its configuration (OPENSSL_CONF)", to_string(algorithm)));
    }
    return Checksum(algorithm, std::move(digest));
}

Checksum::Checksum(ChecksumAlgorithm algorithm, std::unique_ptr<Digest> digest)
    : algorithm_(algorithm), digest_(std::move(digest)) {}

Checksum::Checksum(Checksum&&) noexcept = default;
Checksum& Checksum::operator=(Checksum&&) noexcept = default;
Checksum::~Checksum() = default;

void Checksum::update(std::span<const std::byte> bytes) {
    if (digest_ == nullptr) {
        crc_ = sum(algorithm_, crc_, bytes);
    } else {
        EVP_DigestUpdate(digest_->evp, bytes.data(), bytes.size());  // can't fail once begun
    }
}

ChecksumValue Checksum::finish() {
    if (digest_ == nullptr) return value_of_crc(algorithm_, crc_);
    ChecksumValue value{algorithm_, {}};
    EVP_DigestFinal_ex(digest_->evp, value.bytes.data(), nullptr);
    return value;
}

ChecksumValue combine(const ChecksumValue& first, const ChecksumValue& second, std::uint64_t second_bytes) {
    const std::uint64_t a = crc_of(first);
    const std::uint64_t b = crc_of(second);
    if (first.algorithm == ChecksumAlgorithm::crc64nvme) {
        return value_of_crc(first.algorithm, crc64nvme_combine(a, b, second_bytes));
    }
    const auto combined = first.algorithm == ChecksumAlgorithm::crc32c ? crc32c_combine : crc32_combine;
    return value_of_crc(first.algorithm,
                        combined(static_cast<std::uint32_t>(a), static_cast<std::uint32_t>(b), second_bytes));
}

Result<ChecksumValue> composite(ChecksumAlgorithm algorithm, std::span<const ChecksumValue> parts) {
    auto checksum = Checksum::make(algorithm);
    if (!checksum) return tl::unexpected(std::move(checksum.error()));
    for (const ChecksumValue& part : parts) checksum->update(std::as_bytes(std::span(part.raw())));
    return checksum->finish();
}

std::string composite_text(const ChecksumValue& value, std::size_t parts) {
    return fmt::format("{}-{}", value.text(), parts);
}

}  // namespace kvern::http
