// SPDX-License-Identifier: Apache-2.0
// Lookups: how long a prefix of a prompt's chunks is in the store, asked asynchronously and in batches.
//
// Belongs to one thread, like the Presence that it reads and feeds. Only stats: it never reads an object, so "present"
// is a hope that a load proves. A store whose stat is cheap is scanned exactly: the first 64 chunks alone, since most
// misses end there, then the rest. Any other is searched in two rounds of at most 32 probes, relying on presence being
// monotonic along a prefix; where eviction broke that, a load fails and says so.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "cache/key.h"
#include "cache/presence.h"
#include "kvern/store.h"

namespace kvern {

class Lookups {
  public:
    // `store` and `presence` must outlive this.
    Lookups(Store& store, Presence& presence);
    ~Lookups();

    // Whose objects to ask for: a chunk is present when the objects of all shards are. Ends what is under way.
    void configure(std::string namespace_hex, std::uint32_t group, std::vector<std::string> shard_texts);

    // Starts a lookup and returns its number. Chunks with a belief in `presence` are not asked for.
    std::uint64_t start(std::span<const ChunkHash> hashes);
    void cancel(std::uint64_t id);

    struct Answer {
        bool done = false;
        std::size_t chunks = 0;  // length of the prefix that is proven so far (when done: the answer)
        std::string error;       // why the store could not be asked, if so; the last such message
    };
    // Takes what has arrived, goes on where a round is over, and answers. An unknown id is done with 0 chunks.
    Answer poll(std::uint64_t id);
    // As poll(), but waits for the answer as long as `timeout`.
    Answer wait_for(std::uint64_t id, std::chrono::microseconds timeout);

  private:
    enum class Seen : std::uint8_t { unknown, asked, present, absent };
    struct Pending {
        std::vector<ChunkHash> hashes;
        std::vector<Seen> seen;
        std::vector<std::uint16_t> missing_shards;  // still to be confirmed, per chunk
        std::size_t outstanding = 0;
        int round = 0;
        std::size_t lower = 0, upper = 0;  // the boundary lies in here
        std::string error;
    };
    void ask(std::uint64_t id, Pending& pending, std::span<const std::size_t> chunks);
    void drain();
    void take(const Completion& completion);
    // Asks the next round, if one is needed. Done when nothing is outstanding after it.
    void advance(std::uint64_t id, Pending& pending);
    void advance_scan(std::uint64_t id, Pending& pending);
    void advance_search(std::uint64_t id, Pending& pending);
    static std::size_t proven(const Pending& pending);

    Store& store_;
    Presence& presence_;
    bool cheap_stat_;
    std::string namespace_hex_;
    std::uint32_t group_ = 0;
    std::vector<std::string> shard_texts_;
    std::unique_ptr<CompletionQueue> queue_;
    std::uint32_t next_id_ = 1;
    std::unordered_map<std::uint64_t, Pending> pending_;
    std::vector<Op> ops_;  // reused between rounds
};

}  // namespace kvern
