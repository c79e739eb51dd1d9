// SPDX-License-Identifier: Apache-2.0
// What the halves count, and the names under which users see it (docs/operations.md, Metrics).
//
// Counters only grow. Worker counters are written by two threads and read by any (atomic); scheduler counters belong to
// one thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

namespace kvern {

// Why a prompt was not served further from the store; the values of the miss counter.
enum class Miss : std::uint8_t {
    absent,       // the next chunk is not in the store
    boundary,     // further chunks of full attention are there, but no window or state to go on from
    failed,       // the next chunk was there and could not be loaded a short while ago
    short_hit,    // what is there is shorter than min_tokens
    deadline,     // the store did not answer within lookup_deadline_ms
    store_error,  // the store answered with an error
    breaker,      // the store failed several times in a row and is left alone for a while
    memory,       // loads of other requests hold too much of the engine's KV memory
    skipped,      // the request asked not to read the cache
    adapter,      // the request has an adapter whose weights can't be told apart safely
    disabled,     // mode write_only, or a model that can't be served
    count
};
inline constexpr std::array<std::string_view, static_cast<std::size_t>(Miss::count)> miss_names = {
    "absent",  "boundary", "failed",  "short_hit", "deadline", "store_error",
    "breaker", "memory",   "skipped", "adapter",   "disabled"};

// Why a computed chunk was not stored.
enum class Drop : std::uint8_t {
    staging,      // no room in staging (or on the device) while the request held its blocks
    prefix,       // an earlier chunk of the request was dropped
    store_busy,   // the store said: not now
    store_error,  // the store failed
    breaker,      // the store failed several times in a row and is left alone for a while
    full,         // less than min_free_percent of the store is free
    count
};
inline constexpr std::array<std::string_view, static_cast<std::size_t>(Drop::count)> drop_names = {
    "staging", "prefix", "store_busy", "store_error", "breaker", "full"};

// Why a load ended early.
enum class LoadFailure : std::uint8_t {
    absent,    // an object had gone
    mismatch,  // an object's bytes are not what they must be
    store_busy,
    store_error,
    stall,     // nothing arrived for load_stall_ms
    staging,   // too much staging is held back by transfers without an answer
    internal,  // the job could not be understood
    shutdown,
    count
};
inline constexpr std::array<std::string_view, static_cast<std::size_t>(LoadFailure::count)> load_failure_names = {
    "absent", "mismatch", "store_busy", "store_error", "stall", "staging", "internal", "shutdown"};

using Count = std::atomic<std::uint64_t>;

struct WorkerCounters {
    Count loads{0}, load_ns{0}, bytes_read{0}, verified_slices{0}, mismatched_slices{0}, shared_reads{0}, peer_reads{0};
    std::array<Count, load_failure_names.size()> failed_loads{};
    Count stored_chunks{0}, stored_bytes{0}, existing_chunks{0};
    std::array<Count, drop_names.size()> dropped_chunks{};

    static void add(Count& count, std::uint64_t by = 1) { count.fetch_add(by, std::memory_order_relaxed); }
    void drop(Drop reason, std::uint64_t by = 1) { add(dropped_chunks[static_cast<std::size_t>(reason)], by); }
    void fail(LoadFailure reason) { add(failed_loads[static_cast<std::size_t>(reason)]); }
};

struct SchedulerCounters {
    std::uint64_t hit_tokens = 0;    // loaded and verified
    std::uint64_t asked_tokens = 0;  // tokens of full chunks that requests came with, beyond the engine's own cache
    std::uint64_t lookups = 0, lookup_ns = 0;
    std::array<std::uint64_t, miss_names.size()> misses{};
    std::uint64_t offered_chunks = 0;  // handed to the workers for storing
};

}  // namespace kvern
