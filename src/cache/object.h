// SPDX-License-Identifier: Apache-2.0
// The object: one chunk of KV cache of one shard (docs/format.md, section 3): layout, header, verdict.
//
// Pure functions over memory that the caller owns; any thread. Does no I/O and copies no pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "cache/key.h"
#include "kvern/result.h"

namespace kvern {

// Where things lie in the objects of one shard; the same for all of its chunks.
struct ObjectLayout {
    std::uint32_t slice_count = 0;
    std::uint64_t slice_bytes = 0;   // pages of one layer of one chunk, without the gap
    std::uint64_t slice_stride = 0;  // slice_bytes rounded up to 4096
    std::uint64_t header_bytes = 0;
    std::uint64_t object_bytes = 0;

    // REQUIRES: slice_count in 1..limits::slices_max, slice_bytes > 0.
    static ObjectLayout of(std::uint32_t slice_count, std::uint64_t slice_bytes);
    std::uint64_t slice_offset(std::uint32_t slice) const { return header_bytes + slice * slice_stride; }
};

// What both sides know before any byte moves.
struct ObjectFacts {
    Digest name_space{};
    ChunkId chunk;
    std::uint32_t group = 0;
    Shard shard;
    std::uint32_t chunk_tokens = 0, block_tokens = 0;
    std::uint32_t pages = 0;  // blocks of a slice: the last ones of the chunk
};

struct Slice {
    std::uint64_t offset = 0, length = 0;
    std::uint32_t crc = 0, layer = 0;
};

struct ObjectHeader {
    ObjectFacts facts;
    std::uint64_t header_bytes = 0, object_bytes = 0;
    std::vector<Slice> slices;
};

// Writes the whole header (layout.header_bytes bytes at `destination`) with the given checksum of each slice, in order.
void encode_header(std::span<std::byte> destination, const ObjectFacts& facts, const ObjectLayout& layout,
                   std::span<const std::uint32_t> slice_crcs);

// Decodes and proves a header on its own: magic, version, checksum, and that the slices lie inside, in order and apart.
// `bytes` may be the whole object or its beginning. Errors are corrupt, or not_supported for another version.
Result<ObjectHeader> decode_header(std::span<const std::byte> bytes);

// For a load: the checksums of the slices, if the header at `bytes` is whole and is exactly the one expected; else an
// error that says what differs. No allocation beyond `slice_crcs`, which is resized to layout.slice_count.
Result<void> check_header(std::span<const std::byte> bytes, const ObjectFacts& expected, const ObjectLayout& layout,
                          std::vector<std::uint32_t>& slice_crcs);

}  // namespace kvern
