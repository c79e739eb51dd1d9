// SPDX-License-Identifier: Apache-2.0
// What the scheduler half tells the worker half with every step of the engine: one opaque byte string.
//
// Pure values, any thread. The string goes between processes of one engine and one version of Kvern only; a string that
// does not decode is a bug, and is refused as a whole.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/sha256.h"
#include "cache/key.h"
#include "kvern/result.h"

namespace kvern {

inline constexpr std::int32_t no_block = -1;  // a page of a chunk that is verified and copied nowhere

// One object: the part of a chunk that belongs to one group.
struct ChunkBlocks {
    std::uint32_t group = 0;
    ChunkId chunk;
    std::vector<std::int32_t> blocks;  // the engine's block of each page of the object, in order
};

// Names an object within a namespace and a worker.
struct ObjectId {
    ChunkHash hash;
    std::uint32_t group = 0;
    bool operator==(const ObjectId&) const = default;
};
struct ObjectIdHasher {
    std::size_t operator()(const ObjectId& id) const { return ChunkHashHasher()(id.hash) + id.group; }
};

// One request's load. Ends by exactly one report of `request`.
struct LoadJob {
    std::string request;
    std::vector<ChunkBlocks> chunks;  // in prefix order
    // All or nothing: the engine can't go on from an earlier boundary, so the first failure ends the load.
    bool whole = false;
    // Set if the scheduler half could not name every block: the worker reports failure for those it was given, at once.
    bool refused = false;
};

struct StoreJob {
    std::uint64_t incarnation = 0;  // of the request; a preempted request comes back with another one
    ChunkBlocks object;
    // The request may give these blocks up while it runs: gathered in this step or not at all.
    bool fleeting = false;
};

struct Step {
    std::uint64_t sequence = 0;  // grows by one with every step; a worker that sees one twice acts once
    Digest name_space{};
    std::vector<std::uint64_t> ended;  // incarnations whose blocks may be overwritten from this step on
    std::vector<LoadJob> loads;
    std::vector<StoreJob> stores;

    bool idle() const { return ended.empty() && loads.empty() && stores.empty(); }
    std::string encode() const;
    static Result<Step> decode(std::string_view bytes);
};

}  // namespace kvern
