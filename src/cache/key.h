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

// The rectangle of layers and KV heads of the whole model that one worker holds; all four are inclusive.
struct Shard {
    std::uint32_t first_layer = 0, last_layer = 0, first_head = 0, last_head = 0;
    auto operator<=>(const Shard&) const = default;
    std::uint32_t layers() const { return last_layer - first_layer + 1; }
    std::string text() const;  // "l0-47.h2-3"
};

std::string object_key(std::string_view namespace_hex, const ChunkHash& hash, std::uint32_t group,
                       std::string_view shard_text);
std::string identity_key(std::string_view namespace_hex);
std::string label_key(std::string_view namespace_hex);

// The parts of an object's key; nothing if the text is no such key.
struct ObjectName {
    std::string namespace_hex;
    ChunkHash hash;
    std::uint32_t group = 0;
    Shard shard;
};
std::optional<ObjectName> parse_object_key(std::string_view key);

}  // namespace kvern
