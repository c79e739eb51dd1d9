// SPDX-License-Identifier: Apache-2.0
// Saver: the storing side of a worker. Gathers finished chunks into staging and puts them; the engine never waits.
//
// Belongs to the engine's thread. When save() returns, no block of the engine is referenced any more. A chunk that
// finds no staging is owed: offered again at each save() until its request's incarnation ends. Once a chunk of an
// incarnation is finally dropped, no later chunk of it is stored, since nobody could reach it.
#pragma once

#include <deque>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/breaker.h"
#include "engine/counters.h"
#include "engine/pages.h"
#include "engine/step.h"
#include "kvern/memory.h"
#include "kvern/store.h"

namespace kvern {

class Saver {
  public:
    // All references must outlive this.
    Saver(Store& store, Region& staging, const WorkerMemory& memory, WorkerCounters& counters, const Clock& clock);

    void set_namespace(const Digest& name_space);
    // The incarnations whose blocks may be overwritten from now on: what is still owed to them is dropped.
    void end(std::span<const std::uint64_t> incarnations);
    void offer(std::vector<StoreJob> jobs);
    // Gathers what fits into staging and submits it.
    void save();
    // Takes the store's answers so far; returns how many puts are still under way.
    std::size_t settle();
    // Waits until every put has its answer, or until the timeout; returns how many have none.
    std::size_t drain(std::chrono::milliseconds timeout);

  private:
    struct Put {
        ChunkHash hash;
        std::uint64_t incarnation;
        std::uint64_t epoch;  // of the namespace; an answer to an older one says nothing about the present one
        Lease lease;
    };
    enum class Attempt : std::uint8_t { stored, skipped, no_room };
    Attempt attempt(const StoreJob& job);
    void seal(const StoreJob& job, Lease lease);
    void drop(std::uint64_t incarnation, Drop reason);
    void take(const Completion& completion);

    Store& store_;
    Region& staging_;
    const WorkerMemory& memory_;
    const ObjectLayout layout_;
    const std::string shard_text_;
    const std::size_t bytes_max_;  // of staging that puts may hold
    WorkerCounters& counters_;
    Breaker breaker_;
    Digest name_space_{};
    std::string namespace_hex_;
    std::uint64_t epoch_ = 0;
    std::deque<StoreJob> owed_;
    std::unordered_set<std::uint64_t> live_;       // incarnations that have offered something and have not ended
    std::unordered_set<std::uint64_t> dropped_;    // those of them that have a hole
    std::unordered_map<std::uint64_t, Put> puts_;  // by tag
    std::unordered_set<ChunkHash, ChunkHashHasher> in_flight_;
    std::size_t bytes_held_ = 0;
    std::uint64_t next_tag_ = 1;
    std::vector<Op> ops_;                    // reused between steps
    std::vector<std::uint32_t> slice_crcs_;  // reused between chunks
    CompletionQueue queue_;
};

}  // namespace kvern
