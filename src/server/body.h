// SPDX-License-Identifier: Apache-2.0
// Body: the bytes that a request brings, freed of their framing and held to everything the request says of them.
//
// Loop's thread; a Source for write_object(). What can be verified is: payload hash, chunk signatures, trailers,
// Content-MD5, checksums, lengths.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "http/aws_chunked.h"
#include "http/checksum.h"
#include "server/object_io.h"
#include "server/request.h"

namespace kvern::server {

http::S3Result<http::Checksum> make_sum(http::ChecksumAlgorithm algorithm);  // not_implemented where OpenSSL has it not

// An ETag without an MD5: of the object's sum, the sums of its blocks and its size. 32 hex digits.
std::string fast_etag(const http::ChecksumValue& sum, const ObjectRecord& record);

class Body final : public Source {
  public:
    // Reads what the head says of the body. Errors: missing length, malformed digests, more than the server takes.
    // A completion is the list of an upload's parts: checksums in its head are of the object, not of this body.
    enum class Of : std::uint8_t { object, part, completion };
    // `computed`: the algorithm that an upload chose, to be computed where the request names none.
    static http::S3Result<std::unique_ptr<Body>> create(Request& request, Of of = Of::object,
                                                        std::optional<http::ChecksumAlgorithm> computed = {});

    http::ChecksumAlgorithm algorithm() const { return *algorithm_; }
    // Of the payload; nothing where it ends when it ends.
    std::optional<std::uint64_t> size_bytes() const { return size_bytes_; }
    http::Task<http::S3Result<std::size_t>> read(std::span<std::byte> into) override;
    http::Task<http::S3Result<>> finish(ObjectRecord& record) override;
    // A short body as text: documents of XML. `bytes_max` bounds it.
    http::Task<http::S3Result<std::string>> read_text(std::size_t bytes_max);

  private:
    Body(Request& request, Of of) : request_(request), of_(of) {}
    http::S3Result<> read_promises(std::optional<http::ChecksumAlgorithm> computed);
    http::S3Result<> read_digests();
    http::S3Result<> choose_checksum(std::optional<http::ChecksumAlgorithm> computed);
    void arrived(std::span<const std::byte> bytes);
    http::Task<http::S3Result<std::size_t>> read_window(std::span<std::byte> into);
    http::Task<http::S3Result<std::size_t>> read_chunked(std::span<std::byte> into);
    http::Task<http::S3Result<>> end_of_body();
    http::S3Result<> verify(ObjectRecord& record);

    Request& request_;
    const Of of_;
    std::optional<std::uint64_t> size_bytes_;
    std::uint64_t received_ = 0;
    std::unique_ptr<http::AwsChunked> chunked_;
    // Promises, and what is computed to hold them.
    std::string payload_hash_;  // hex, or empty
    std::string content_md5_;   // raw, or empty
    std::string checksum_;      // base64; empty where it comes as a trailer or not at all
    std::string trailer_name_;  // x-amz-checksum-…, where announced
    bool wants_md5_ = false;
    std::optional<http::ChecksumAlgorithm> algorithm_;
    std::optional<http::Checksum> sum_, sha256_, md5_;
    std::optional<BlockSummer> blocks_;
    std::uint32_t block_bytes_ = 0;
};

}  // namespace kvern::server
