// SPDX-License-Identifier: Apache-2.0
// Names of what the cache stores: chunk hash, shard, and the keys made of them (docs/format.md, section 1).
//
// Pure values, any thread.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "kvern/limits.h"
#include "kvern/result.h"

namespace kvern {

// The engine's hash of a chunk's last block: 1 to 64 bytes, kept in place so that lists of them need no allocation
// each.
class ChunkHash {
  public:
    ChunkHash() = default;
    // REQUIRES: 1 <= bytes.size() <= limits::hash_bytes_max; a longer one would be cut, so callers check with valid().
    explicit ChunkHash(std::string_view bytes) : size_(static_cast<std::uint8_t>(bytes.size())) {
        std::memcpy(bytes_.data(), bytes.data(), bytes.size());
    }
    static bool valid(std::string_view bytes) { return !bytes.empty() && bytes.size() <= limits::hash_bytes_max; }
    std::string_view bytes() const { return {bytes_.data(), size_}; }
    bool operator==(const ChunkHash& other) const { return bytes() == other.bytes(); }
    bool empty() const { return size_ == 0; }
    // The first eight bytes, big-endian, padded with zeros: names this chunk to the one after it.
    std::uint64_t tag() const {
        std::uint64_t value = 0;
        for (std::size_t i = 0; i < 8; ++i) value = value << 8 | static_cast<std::uint8_t>(bytes_[i]);
        return value;
    }

  private:
    std::uint8_t size_ = 0;
    std::array<char, limits::hash_bytes_max> bytes_{};
};

// The hash is uniform already: its first eight bytes do.
struct ChunkHashHasher {
    std::size_t operator()(const ChunkHash& hash) const {
        std::uint64_t value = 0;
        std::memcpy(&value, hash.bytes().data(), std::min<std::size_t>(8, hash.bytes().size()));
        return value;
    }
};

// A chunk of a prompt: the hash names its content and everything before it; `parent` is the tag of the chunk before it,
// 0 for the first. The hash alone identifies it; the parent stands in its key, so that a listing shows which chunk is
// of no use without which other.
struct ChunkId {
    ChunkHash hash;
    std::uint64_t parent = 0;
    bool operator==(const ChunkId& other) const = default;
};

// The rectangle of layers and KV heads that one worker holds of a group; all four are inclusive. Layers are counted
// within the group, in the whole model.
struct Shard {
    std::uint32_t first_layer = 0, last_layer = 0, first_head = 0, last_head = 0;
    auto operator<=>(const Shard&) const = default;
    std::uint32_t layers() const { return last_layer - first_layer + 1; }
    std::string text() const;  // "l0-47.h2-3"
};

std::string object_key(std::string_view namespace_hex, const ChunkId& chunk, std::uint32_t group,
                       std::string_view shard_text);
std::string identity_key(std::string_view namespace_hex);
std::string label_key(std::string_view namespace_hex);

// Under it engines leave a note while they start, which their workers must see.
inline constexpr std::string_view start_notes_prefix = "kvern-start/";

// The parts of an object's key; nothing if the text is no such key.
struct ObjectName {
    std::string namespace_hex;
    ChunkId chunk;
    std::uint32_t group = 0;
    Shard shard;
};
std::optional<ObjectName> parse_object_key(std::string_view key);

}  // namespace kvern
