// SPDX-License-Identifier: Apache-2.0
// Lookups: up to which boundary of a prompt's chunks the store can serve it, asked asynchronously and in batches.
//
// Belongs to one thread, like the Presence that it reads and feeds. Only stats: it never reads an object, so "present"
// is a hope that a load proves. Objects that are needed together are asked for together, as one *part* of a chunk: part
// 0 is full attention (of all groups and shards), which every chunk before the boundary must have; the other parts are
// windows and states, which only the last chunks before it must have.
//
// Part 0 comes first. A store whose stat is cheap is scanned exactly: the first 64 chunks alone, since most misses end
// there, then the rest. Any other is searched in two rounds of at most 32 probes, relying on presence being monotonic
// along a prefix; where eviction broke that, a load fails and says so. Then the other parts are asked for, from the end
// of that prefix backwards, in two rounds: the last 32 chunks, then the rest.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "cache/group.h"
#include "cache/key.h"
#include "cache/presence.h"
#include "kvern/store.h"

namespace kvern {

class Lookups {
  public:
    // `store` and `presence` must outlive this.
    Lookups(Store& store, Presence& presence);
    ~Lookups();

    struct Group {
        GroupPlan plan;
        std::vector<std::string> shard_texts;  // a chunk is there when the objects of all of them are
    };
    // Whose objects to ask for. Ends what is under way.
    void configure(std::string namespace_hex, std::span<const Group> groups);
    // The part of a chunk that the objects of a group belong to, and how many parts there are.
    unsigned part_of(std::uint32_t group) const { return part_of_group_[group]; }
    unsigned parts() const { return static_cast<unsigned>(parts_.size()); }

    // Starts a lookup of consecutive chunks and returns its number. Parts with a belief in `presence` are not asked
    // for. What lies before the first of them counts as being in the engine's hands.
    std::uint64_t start(std::span<const ChunkId> chunks);
    void cancel(std::uint64_t id);

    struct Answer {
        bool done = false;
        std::size_t chunks = 0;  // the last boundary that is proven so far (when done: the answer)
        std::size_t prefix = 0;  // how far part 0 goes; more than `chunks` where a window or state is missing
        std::string error;       // why the store could not be asked, if so; the last such message
    };
    // Takes what has arrived, goes on where a round is over, and answers. An unknown id is done with 0 chunks.
    Answer poll(std::uint64_t id);
    // As poll(), but waits for the answer as long as `timeout`.
    Answer wait_for(std::uint64_t id, std::chrono::microseconds timeout);

  private:
    struct Part {
        std::uint32_t trailing_chunks;                               // 0: all before the boundary
        std::vector<std::pair<std::uint32_t, std::string>> objects;  // group and shard
    };
    enum class Seen : std::uint8_t { unknown, asked, present, absent };
    struct Column {  // what is known of one part, by chunk
        std::vector<Seen> seen;
        std::vector<std::uint16_t> missing;  // objects still to be confirmed
    };
    struct Pending {
        std::vector<ChunkId> chunks;
        std::vector<Column> columns;  // by part
        std::size_t outstanding = 0;
        int round = 0, trailing_round = 0;
        std::size_t lower = 0, upper = 0;  // the end of part 0 lies in here
        std::string error;
    };
    void ask(std::uint64_t id, Pending& pending, unsigned part, std::span<const std::size_t> chunks);
    void drain();
    void take(const Completion& completion);
    // Asks the next round, if one is needed. Done when nothing is outstanding after it.
    void advance(std::uint64_t id, Pending& pending);
    void advance_scan(std::uint64_t id, Pending& pending);
    void advance_search(std::uint64_t id, Pending& pending);
    void advance_trailing(std::uint64_t id, Pending& pending);
    // How far part 0 is proven.
    std::size_t proven_prefix(const Pending& pending) const;
    // The last boundary up to `prefix` that all parts can serve.
    std::size_t proven_boundary(const Pending& pending, std::size_t prefix) const;

    Store& store_;
    Presence& presence_;
    bool cheap_stat_;
    std::string namespace_hex_;
    std::vector<Part> parts_;
    std::vector<unsigned> part_of_group_;
    std::unique_ptr<CompletionQueue> queue_;
    std::uint32_t next_id_ = 1;
    std::unordered_map<std::uint64_t, Pending> pending_;
    std::vector<Op> ops_;  // reused between rounds
};

}  // namespace kvern
