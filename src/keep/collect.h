// SPDX-License-Identifier: Apache-2.0
// Collecting: removes what has not been used for longest until a store keeps its limits.
//
// One thread; the client's store may be used by anybody else meanwhile. Nothing is remembered between rounds: killed at
// any moment it leaves a valid store, and the next round goes on.
//
// - A chunk goes as a whole, the longest unused first, never before its descendants (forest.h). So what is younger than
//   limits::collect_grace, and may still be incomplete, goes for room only when nothing else is left, and never by its
//   age.
// - Beside readers and writers: each batch is looked at again right before it is removed. A chunk whose objects were
// used or
//   replaced since they were listed stays, and so do its ancestors. What is left between that look and the removal,
//   some milliseconds, costs a recomputation at most: a removal names the version that was seen, so nothing newer is
//   lost, and a reader that has the object open reads it to its end.
// - A chunk that is stored while a round runs, below one that the round removes, is left behind without its ancestor:
// the
//   next rounds count it as unreachable.
// - Beside others that collect: objects that are gone when they are looked at count as room made. All walk in the same
//   order, so together they remove what one alone would have removed, and at most one batch
//   (limits::collect_batch_objects) each beyond it. Free space is asked for once a round, after the listing, since file
//   systems free space late: room that others make is then counted twice rather than not at all, and the next round
//   makes good for it.
// - Foreign files are never removed.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "base/clock.h"
#include "keep/catalogue.h"

namespace kvern {

struct CollectLimits {
    std::optional<std::uint64_t> bytes_max;            // of all that is Kvern's, as stored
    std::optional<std::chrono::milliseconds> age_max;  // since the last use
    std::optional<std::uint64_t> free_percent_min;     // of the store's capacity
};

struct CollectProgress {
    std::uint64_t listed_keys = 0;
    std::uint64_t removed_objects = 0;
};

struct CollectPlan {
    CollectLimits limits;
    bool dry_run = false;          // says what would go, and removes nothing
    std::string namespace_prefix;  // only namespaces that start with this; limits count these alone
    std::function<void(const CollectProgress&)> progress;  // now and then; may be empty
    const WallClock* clock = &WallClock::system();
};

struct Amount {
    std::uint64_t chunks = 0, objects = 0, bytes = 0;
};

struct CollectReport {
    Amount found;                      // when the round began
    Amount removed;                    // by this round (dry run: would be)
    Amount gone;                       // removed by others while this round ran
    std::uint64_t kept_chunks = 0;     // were to go, but were used or replaced meanwhile, or could not be removed
    std::uint64_t failed_objects = 0;  // could not be removed
    std::string first_error;           // of those
    std::uint64_t removed_namespaces = 0, removed_start_notes = 0;
    Foreign foreign;
    Space space;               // when the round began
    bool limits_hold = false;  // as far as this round can know
    bool interrupted = false;  // the client was stopped; what is reported happened
};

// One round. Errors: the store can't be listed or asked for its space.
Result<CollectReport> collect(Client& client, const CollectPlan& plan);

}  // namespace kvern
