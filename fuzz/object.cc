// SPDX-License-Identifier: Apache-2.0
// The header of an object, as it may lie on a shared disk: decode_header and check_header.
#include "cache/object.h"

#include <cstring>

#include "base/crc32c.h"
#include "cache/identity.h"
#include "fuzz.h"

namespace kvern::fuzz {
namespace {

// Where docs/format.md, section 3.1 puts two fields.
constexpr std::size_t header_bytes_at = 12, header_crc_at = 160;

std::span<const std::byte> bytes_of(std::string_view text) {
    return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// The input with a right checksum, so that fuzzing gets behind the first gate.
std::string with_right_crc(std::string_view input) {
    std::string header(input);
    std::uint32_t header_bytes = 0;
    if (header.size() < header_crc_at + 4) return header;
    std::memcpy(&header_bytes, header.data() + header_bytes_at, sizeof header_bytes);
    if (header_bytes < header_crc_at + 4 || header_bytes > header.size()) return header;
    std::memset(header.data() + header_crc_at, 0, 4);
    const std::uint32_t crc = crc32c(0, header.data(), header_bytes);
    std::memcpy(header.data() + header_crc_at, &crc, sizeof crc);
    return header;
}

void check_slices(const ObjectHeader& header) {
    FUZZ_REQUIRE(!header.slices.empty() && header.slices.size() <= limits::slices_max);
    std::uint64_t end = header.header_bytes;
    for (const Slice& slice : header.slices) {
        FUZZ_REQUIRE(slice.offset >= end && slice.offset % limits::page_bytes == 0);
        FUZZ_REQUIRE(slice.length > 0 && slice.offset < header.object_bytes);
        FUZZ_REQUIRE(slice.length <= header.object_bytes - slice.offset);
        end = slice.offset + slice.length;
    }
}

// A header whose slices are those of one layout is accepted by the load of that layout, and is rebuilt byte for byte
// but for its reserved fields.
void check_uniform(std::span<const std::byte> bytes, const ObjectHeader& header) {
    const auto count = static_cast<std::uint32_t>(header.slices.size());
    const ObjectLayout layout = ObjectLayout::of(count, header.slices[0].length);
    std::vector<std::uint32_t> crcs;
    std::vector<std::byte> again(layout.header_bytes);
    for (const Slice& slice : header.slices) crcs.push_back(slice.crc);
    encode_header(again, header.facts, layout, crcs);
    const auto decoded = decode_header(again);
    if (layout.object_bytes != header.object_bytes) return;  // slices of different lengths
    FUZZ_REQUIRE(decoded && decoded->slices.size() == count);
    for (std::uint32_t i = 0; i < count; ++i) {
        if (header.slices[i].length != layout.slice_bytes || header.slices[i].layer != decoded->slices[i].layer) return;
        FUZZ_REQUIRE(decoded->slices[i].offset == header.slices[i].offset);
        FUZZ_REQUIRE(decoded->slices[i].crc == header.slices[i].crc);
    }
    std::vector<std::uint32_t> found;
    const auto loaded = check_header(bytes, header.facts, layout, found);
    const bool same = std::memcmp(bytes.data(), again.data(), layout.header_bytes) == 0;
    FUZZ_REQUIRE(!same || (loaded && found == crcs));
    if (loaded) FUZZ_REQUIRE(found == crcs);
}

void check_bytes(std::span<const std::byte> bytes) {
    const auto header = decode_header(bytes);
    if (header) {
        check_slices(*header);
        check_uniform(bytes, *header);
    } else {
        FUZZ_REQUIRE(!header.error().message.empty());
    }
    std::vector<std::uint32_t> crcs;
    const auto loaded = check_header(bytes, ObjectFacts{}, ObjectLayout::of(2, 100), crcs);
    FUZZ_REQUIRE(loaded || !loaded.error().message.empty());
}

}  // namespace

void check(std::string_view input) {
    check_bytes(bytes_of(input));
    check_bytes(bytes_of(with_right_crc(input)));
}

std::vector<std::string> seeds() {
    std::vector<std::string> all;
    ObjectFacts facts;
    facts.name_space = namespace_of("{}");
    facts.chunk = {ChunkHash("0123456789abcdef0123456789abcdef"), 0x0123456789abcdef};
    facts.chunk_tokens = 256;
    facts.block_tokens = facts.pages = 16;
    for (const auto& [slices, slice_bytes] : {std::pair{1u, 8u}, {2u, 4096u}, {28u, 65536u}, {123u, 4097u}}) {
        facts.shard = {0, slices - 1, 0, 7};
        const ObjectLayout layout = ObjectLayout::of(slices, slice_bytes);
        const std::vector<std::uint32_t> crcs(slices, 0xbe05c7cb);
        std::string header(layout.header_bytes, '\0');
        encode_header({reinterpret_cast<std::byte*>(header.data()), header.size()}, facts, layout, crcs);
        all.push_back(header);
    }
    return all;
}

}  // namespace kvern::fuzz
