// SPDX-License-Identifier: Apache-2.0
// Saver: the storing side of a worker. Gathers finished chunks into staging and puts them; the engine never waits.
//
// Belongs to the engine's thread. When save() returns, no block of the engine is referenced any more (on a device: but
// by the copies that it handed out, which are ordered before whatever the engine starts next). A chunk that finds no
// staging is owed: offered again at each save() until its request's incarnation ends, unless its blocks are fleeting.
// Once a chunk of full attention is finally dropped, no later chunk of its incarnation is stored, since nobody could
// reach it.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/breaker.h"
#include "engine/copies.h"
#include "engine/counters.h"
#include "engine/pages.h"
#include "engine/step.h"
#include "kvern/memory.h"
#include "kvern/store.h"

namespace kvern {

class Saver {
  public:
    struct Settings {
        std::size_t device_copies_max = 0;  // on a device: so many copies may be under way
        unsigned min_free_percent = 0;      // of the store; below it chunks are dropped
    };
    // All references must outlive this.
    Saver(Store& store, Region& staging, const WorkerMemory& memory, WorkerCounters& counters, const Settings& settings,
          const Clock& clock);

    void set_namespace(const Digest& name_space);
    // The incarnations whose blocks may be overwritten from now on: what is still owed to them is dropped.
    void end(std::span<const std::uint64_t> incarnations);
    void offer(std::vector<StoreJob> jobs);
    // Gathers what fits into staging and submits it.
    void save();
    // Whether there are chunks that found no room, for the next save().
    bool owes() const { return !owed_.empty(); }
    // On a device: the copies that save() has decided on, to be started at once; and those that have ended.
    std::vector<DeviceCopy> take_copies() { return std::exchange(copies_, {}); }
    void copied(std::span<const std::uint64_t> tickets);
    // Takes the store's answers so far; returns how many puts are still under way.
    std::size_t settle();
    // Waits until every put has its answer, or until the timeout; returns how many have none.
    std::size_t drain(std::chrono::milliseconds timeout);

  private:
    struct Put {
        ObjectFacts facts;
        std::vector<std::uint64_t> incarnations;  // that wanted it stored
        std::uint64_t epoch;  // of the namespace; an answer to an older one says nothing about the present one
        Lease lease;
        bool copying;  // its pages are still on their way from the device
    };
    enum class Attempt : std::uint8_t { stored, skipped, no_room };
    Attempt attempt(const StoreJob& job);
    // Writes the header over slices that are in place, and puts the object.
    void seal(std::uint64_t tag, Put& put);
    void submit();
    // Asks for the store's space now and then; the answer counts when it comes.
    void ask_space();
    void take_space(const Outcome& outcome);
    // Counts a chunk that won't be stored, and leaves out what could only be reached through it.
    void drop(std::span<const std::uint64_t> incarnations, std::uint32_t group, Drop reason);
    void take(const Completion& completion);
    void forget(std::unordered_map<std::uint64_t, Put>::iterator put);

    Store& store_;
    Region& staging_;
    const WorkerMemory& memory_;
    const Settings settings_;
    std::vector<ObjectLayout> layouts_;  // by group
    std::vector<std::string> shard_texts_;
    const std::size_t bytes_max_;  // of staging that puts may hold
    WorkerCounters& counters_;
    const Clock& clock_;
    Breaker breaker_;
    Digest name_space_{};
    std::uint64_t epoch_ = 0;
    std::deque<StoreJob> owed_;
    std::unordered_set<std::uint64_t> live_;       // incarnations that have offered something and have not ended
    std::unordered_set<std::uint64_t> dropped_;    // those of them that have a hole
    std::unordered_map<std::uint64_t, Put> puts_;  // by tag
    std::unordered_map<ObjectId, std::uint64_t, ObjectIdHasher> in_flight_;  // to the tags of their puts
    std::size_t bytes_held_ = 0, copying_ = 0;
    std::vector<DeviceCopy> copies_;
    bool full_ = false;
    std::uint64_t space_tag_ = 0;  // of the question under way
    std::optional<TimePoint> space_asked_;
    std::uint64_t next_tag_ = 1;
    std::vector<Op> ops_;                    // reused between steps
    std::vector<std::uint32_t> slice_crcs_;  // reused between chunks
    CompletionQueue queue_;
};

}  // namespace kvern
