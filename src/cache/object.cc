// SPDX-License-Identifier: Apache-2.0
#include "cache/object.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "base/crc32c.h"
#include "base/text.h"
#include "cache/identity.h"
#include "kvern/limits.h"

namespace kvern {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian and is written in place");

constexpr char magic[8] = {'K', 'V', 'E', 'R', 'N', 'O', 'B', 'J'};
constexpr std::uint32_t encoding_engine_page = 1;

// The header byte by byte, as docs/format.md, section 3.1 gives it.
struct WireHeader {
    char magic[8];
    std::uint32_t version, header_bytes;
    std::uint64_t object_bytes;
    std::uint32_t encoding, group;
    std::uint8_t name_space[32];
    std::uint32_t hash_bytes;
    char hash[64];
    std::uint32_t first_layer, last_layer, first_head, last_head;
    std::uint32_t chunk_tokens, block_tokens, slice_count, header_crc, pages;
    std::uint64_t parent;
    std::uint8_t reserved[16];
};
static_assert(sizeof(WireHeader) == 192 && offsetof(WireHeader, hash_bytes) == 64 &&
              offsetof(WireHeader, header_crc) == 160 && offsetof(WireHeader, parent) == 168);

struct WireSlice {
    std::uint64_t offset, length;
    std::uint32_t crc, layer;
    std::uint64_t reserved;
};
static_assert(sizeof(WireSlice) == 32);

constexpr std::uint64_t align_page(std::uint64_t size_bytes) {
    return (size_bytes + limits::page_bytes - 1) / limits::page_bytes * limits::page_bytes;
}

constexpr std::uint64_t header_size(std::uint64_t slice_count) {
    return align_page(sizeof(WireHeader) + sizeof(WireSlice) * slice_count);
}

WireHeader wire_header(const ObjectFacts& facts, const ObjectLayout& layout) {
    WireHeader wire{};
    std::memcpy(wire.magic, magic, sizeof magic);
    wire.version = format_version;
    wire.header_bytes = static_cast<std::uint32_t>(layout.header_bytes);
    wire.object_bytes = layout.object_bytes;
    wire.encoding = encoding_engine_page;
    wire.group = facts.group;
    std::memcpy(wire.name_space, facts.name_space.data(), facts.name_space.size());
    wire.hash_bytes = static_cast<std::uint32_t>(facts.chunk.hash.bytes().size());
    std::memcpy(wire.hash, facts.chunk.hash.bytes().data(), facts.chunk.hash.bytes().size());
    wire.parent = facts.chunk.parent;
    wire.first_layer = facts.shard.first_layer;
    wire.last_layer = facts.shard.last_layer;
    wire.first_head = facts.shard.first_head;
    wire.last_head = facts.shard.last_head;
    wire.chunk_tokens = facts.chunk_tokens;
    wire.block_tokens = facts.block_tokens;
    wire.slice_count = layout.slice_count;
    wire.pages = facts.pages;
    return wire;
}

// The checksum of a header whose crc field counts as zero.
std::uint32_t header_crc(std::span<const std::byte> header) {
    constexpr std::size_t at = offsetof(WireHeader, header_crc);
    constexpr std::uint32_t zero = 0;
    std::uint32_t crc = crc32c(0, header.data(), at);
    crc = crc32c(crc, &zero, sizeof zero);
    return crc32c(crc, header.data() + at + 4, header.size() - at - 4);
}

tl::unexpected<Error> corrupt(std::string what) {
    return fail(ErrorCode::corrupt, std::move(what));
}

// Magic, version, sizes and checksum: whatever a header claims beyond this point was written by Kvern.
Result<WireHeader> prove(std::span<const std::byte> bytes) {
    WireHeader wire;
    if (bytes.size() < sizeof wire) return corrupt(fmt::format("{} bytes are too short for a header", bytes.size()));
    std::memcpy(&wire, bytes.data(), sizeof wire);
    if (std::memcmp(wire.magic, magic, sizeof magic) != 0) return corrupt("not a Kvern object: no magic at its start");
    if (wire.version != format_version)
        return fail(ErrorCode::not_supported,
                    fmt::format("format version {}, this Kvern reads {}", wire.version, format_version));
    if (wire.slice_count == 0 || wire.slice_count > limits::slices_max ||
        wire.header_bytes != header_size(wire.slice_count))
        return corrupt(fmt::format("header size {} does not fit {} slices", wire.header_bytes, wire.slice_count));
    if (wire.header_bytes > bytes.size())
        return corrupt(fmt::format("header of {} bytes is cut at {}", wire.header_bytes, bytes.size()));
    const std::uint32_t crc = header_crc(bytes.first(wire.header_bytes));
    if (crc != wire.header_crc)
        return corrupt(fmt::format("header checksum {:08x}, the header says {:08x}", crc, wire.header_crc));
    return wire;
}

WireSlice wire_slice(std::span<const std::byte> bytes, std::uint32_t index) {
    WireSlice slice;
    std::memcpy(&slice, bytes.data() + sizeof(WireHeader) + sizeof slice * index, sizeof slice);
    return slice;
}

// The first thing in which two proven headers differ, for the message of a mismatch.
std::string difference(const WireHeader& found, const WireHeader& expected) {
    const auto number = [](const char* name, std::uint64_t is, std::uint64_t want) {
        return is == want ? std::string() : fmt::format("{} is {}, expected {}", name, is, want);
    };
    if (std::memcmp(found.name_space, expected.name_space, sizeof found.name_space) != 0) return "another namespace";
    if (found.hash_bytes != expected.hash_bytes || std::memcmp(found.hash, expected.hash, sizeof found.hash) != 0)
        return "another chunk";
    for (const auto& text :
         {number("group", found.group, expected.group), number("first layer", found.first_layer, expected.first_layer),
          number("last layer", found.last_layer, expected.last_layer),
          number("first head", found.first_head, expected.first_head),
          number("last head", found.last_head, expected.last_head),
          number("chunk tokens", found.chunk_tokens, expected.chunk_tokens),
          number("block tokens", found.block_tokens, expected.block_tokens),
          number("pages", found.pages, expected.pages), number("parent", found.parent, expected.parent),
          number("slices", found.slice_count, expected.slice_count),
          number("object size", found.object_bytes, expected.object_bytes),
          number("encoding", found.encoding, expected.encoding)})
        if (!text.empty()) return text;
    return "reserved fields are not zero";
}

}  // namespace

ObjectLayout ObjectLayout::of(std::uint32_t slice_count, std::uint64_t slice_bytes) {
    ObjectLayout layout;
    layout.slice_count = slice_count;
    layout.slice_bytes = slice_bytes;
    layout.slice_stride = align_page(slice_bytes);
    layout.header_bytes = header_size(slice_count);
    layout.object_bytes = layout.header_bytes + layout.slice_stride * slice_count;
    return layout;
}

void encode_header(std::span<std::byte> destination, const ObjectFacts& facts, const ObjectLayout& layout,
                   std::span<const std::uint32_t> slice_crcs) {
    const auto header = destination.first(layout.header_bytes);
    std::memset(header.data(), 0, header.size());
    WireHeader wire = wire_header(facts, layout);
    std::memcpy(header.data(), &wire, sizeof wire);
    for (std::uint32_t i = 0; i < layout.slice_count; ++i) {
        const WireSlice slice{layout.slice_offset(i), layout.slice_bytes, slice_crcs[i], facts.shard.first_layer + i,
                              0};
        std::memcpy(header.data() + sizeof wire + sizeof slice * i, &slice, sizeof slice);
    }
    wire.header_crc = header_crc(header);
    std::memcpy(header.data() + offsetof(WireHeader, header_crc), &wire.header_crc, sizeof wire.header_crc);
}

Result<ObjectHeader> decode_header(std::span<const std::byte> bytes) {
    const auto wire = prove(bytes);
    if (!wire) return tl::unexpected(wire.error());
    if (wire->encoding != encoding_engine_page)
        return fail(ErrorCode::not_supported, fmt::format("encoding {} is not known", wire->encoding));
    if (wire->hash_bytes == 0 || wire->hash_bytes > sizeof wire->hash) return corrupt("hash length is out of range");
    ObjectHeader header;
    header.header_bytes = wire->header_bytes;
    header.object_bytes = wire->object_bytes;
    ObjectFacts& facts = header.facts;
    std::memcpy(facts.name_space.data(), wire->name_space, facts.name_space.size());
    facts.chunk = {ChunkHash(std::string_view(wire->hash, wire->hash_bytes)), wire->parent};
    facts.group = wire->group;
    facts.shard = {wire->first_layer, wire->last_layer, wire->first_head, wire->last_head};
    facts.chunk_tokens = wire->chunk_tokens;
    facts.block_tokens = wire->block_tokens;
    facts.pages = wire->pages;
    std::uint64_t end = wire->header_bytes;
    for (std::uint32_t i = 0; i < wire->slice_count; ++i) {
        const WireSlice slice = wire_slice(bytes, i);
        if (slice.offset != end || slice.length == 0)
            return corrupt(fmt::format("slice {} does not follow the one before it", i));
        if (end > wire->object_bytes || slice.length > wire->object_bytes - end)
            return corrupt(fmt::format("slice {} does not end within the object", i));
        end = slice.offset + align_page(slice.length);
        header.slices.push_back({slice.offset, slice.length, slice.crc, slice.layer});
    }
    if (end != wire->object_bytes) return corrupt("the slices do not end where the object does");
    return header;
}

Result<void> check_header(std::span<const std::byte> bytes, const ObjectFacts& expected, const ObjectLayout& layout,
                          std::vector<std::uint32_t>& slice_crcs) {
    const auto found = prove(bytes);
    if (!found) return tl::unexpected(found.error());
    WireHeader wanted = wire_header(expected, layout);
    wanted.header_crc = found->header_crc;
    if (std::memcmp(&*found, &wanted, sizeof wanted) != 0) return corrupt(difference(*found, wanted));
    slice_crcs.resize(layout.slice_count);
    for (std::uint32_t i = 0; i < layout.slice_count; ++i) {
        const WireSlice slice = wire_slice(bytes, i);
        if (slice.offset != layout.slice_offset(i) || slice.length != layout.slice_bytes ||
            slice.layer != expected.shard.first_layer + i || slice.reserved != 0)
            return corrupt(fmt::format("slice {} lies elsewhere than expected", i));
        slice_crcs[i] = slice.crc;
    }
    return {};
}

}  // namespace kvern
