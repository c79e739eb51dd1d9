// SPDX-License-Identifier: Apache-2.0
// ObjectRecord: what S3 keeps of an object beside its bytes, and the sums that prove these when they are read
// (docs/format.md, Objects of the S3 server).
//
// Pure values, any thread. A record is the metadata of the object's value in the store. Sums of blocks and the list of
// parts stand in it while they are short; longer ones follow the object's bytes in the value, as its tail.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "http/checksum.h"
#include "kvern/result.h"

namespace kvern::server {

struct PartRecord {
    std::uint64_t size_bytes = 0;
    std::string checksum;  // base64, of the object's algorithm; may be empty
};

struct ObjectRecord {
    std::uint64_t size_bytes = 0;  // of the object; the value is longer by tail_bytes
    std::int64_t written_ns = 0;   // Last-Modified, since the epoch
    std::string etag;              // without quotes
    std::string content_type;
    // content-encoding and the like, and x-amz-meta-…: names in lower case, values as they came.
    std::vector<std::pair<std::string, std::string>> headers;
    std::optional<http::ChecksumAlgorithm> algorithm;
    std::string checksum;    // base64; of a composite with "-N"
    bool composite = false;  // the checksum is one of the parts' checksums
    std::string upload;      // which multipart upload made it, so that completing twice is the same as once
    std::uint32_t block_bytes = 0;
    std::vector<std::uint32_t> block_sums;  // CRC32C of each block of the object
    std::vector<PartRecord> parts;          // of a multipart object
    std::uint64_t tail_bytes = 0;           // block_sums and parts are in the tail, and empty here until it is read
    std::uint32_t tail_sum = 0;
};

// The size of a block: small enough that a short range costs little, large enough that a record stays short.
std::uint32_t block_bytes_for(std::uint64_t size_bytes);

// Moves sums and parts into a tail if they are too long for a record. The tail (often empty) follows the object's
// bytes.
std::string split_tail(ObjectRecord& record);
// Takes them back. corrupt: these bytes are not that tail.
Result<void> join_tail(ObjectRecord& record, std::span<const std::byte> tail);

std::string encode(const ObjectRecord& record);  // at most limits::metadata_bytes_max for what a server admits
// corrupt: not a record, or of a version that this program does not know.
Result<ObjectRecord> decode_record(std::string_view bytes);

// Sums the blocks of an object while its bytes come, in order and in any split.
class BlockSummer {
  public:
    explicit BlockSummer(std::uint32_t block_bytes) : block_bytes_(block_bytes) {}
    void update(std::span<const std::byte> bytes);
    std::vector<std::uint32_t> finish();

  private:
    const std::uint32_t block_bytes_;
    std::uint32_t sum_ = 0, filled_ = 0;
    std::vector<std::uint32_t> sums_;
};

// Whether `bytes`, which begin at the object's block `first`, have the sums that the record gives. The last block may
// be short only at the object's end.
bool blocks_hold(const ObjectRecord& record, std::uint64_t first, std::span<const std::byte> bytes);

}  // namespace kvern::server
