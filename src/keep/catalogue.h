// SPDX-License-Identifier: Apache-2.0
// Catalogue: what a store holds, as its listing shows it, in little memory: about 100 bytes an object.
//
// Filled by one thread, then read by any. Reads no object. A listing is no snapshot: what came or went while it was
// made may be in it or not, so whoever acts on it looks again first.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/key.h"
#include "keep/client.h"
#include "kvern/limits.h"

namespace kvern {

struct StoredObject {
    std::uint64_t size_bytes = 0;
    std::int64_t mtime_ns = 0;
    std::uint64_t etag_digest = 0;  // of the version listed
    std::uint32_t variant = 0;      // which group and shard, in Catalogue::variants
};

// All objects of one hash, whatever their group and shard. Its objects lie in a row.
struct StoredChunk {
    std::uint64_t parent = 0;   // tag of the chunk before it; 0: it begins a prompt
    std::uint64_t hash_at = 0;  // in Catalogue::hashes
    std::uint32_t hash_bytes = 0;
    std::uint32_t name_space = 0;  // in Catalogue::namespaces
    std::uint32_t first_object = 0, objects = 0;
};

struct StoredNamespace {
    std::string hex;
    std::uint32_t first_chunk = 0, chunks = 0;  // in a row, in the order of their hashes
    std::optional<Entry> identity, label;
};

struct Variant {
    std::uint32_t group = 0;
    Shard shard;
};

struct Foreign {
    std::uint64_t files = 0, bytes = 0;
    std::string example;  // the first one's key
};

// What a value takes in the store: whole pages.
inline std::uint64_t stored_bytes(std::uint64_t size_bytes) {
    return (size_bytes + limits::page_bytes - 1) / limits::page_bytes * limits::page_bytes;
}
// A fingerprint of an etag, so that a list of objects needs no text each.
std::uint64_t etag_digest(std::string_view etag);

struct Catalogue {
    std::vector<StoredNamespace> namespaces;
    std::vector<StoredChunk> chunks;
    std::vector<StoredObject> objects;
    std::vector<Variant> variants;
    std::string hashes;
    std::vector<Entry> start_notes;
    Foreign foreign;
    std::uint64_t bytes = 0;  // as stored, of everything but what is foreign

    // REQUIRES: keys come in byte order.
    void add(const Entry& entry);

    ChunkHash hash_of(const StoredChunk& chunk) const;
    std::string key_of(const StoredChunk& chunk, const StoredObject& object) const;
    std::uint64_t bytes_of(const StoredChunk& chunk) const;  // as stored
    // The newest mtime among the chunk's objects.
    std::int64_t use_of(const StoredChunk& chunk) const;

  private:
    void add_object(const ObjectName& name, const Entry& entry);
    StoredNamespace& name_space(std::string_view hex);
    std::uint32_t variant_of(const ObjectName& name);
};

// Called after each page with the number of keys so far.
using Listed = std::function<void(std::uint64_t keys)>;

// Lists the whole store, or what is below namespaces that start with `namespace_prefix` (lower-case hex digits).
Result<Catalogue> read_catalogue(Client& client, const std::string& namespace_prefix, const Listed& listed);

}  // namespace kvern
