// SPDX-License-Identifier: Apache-2.0
// The scheduler half of an engine connector: what is there, what is to be loaded, what is to be stored.
//
// Belongs to the engine's scheduler thread. Answers in microseconds but for the first ask about a prompt, which may
// wait lookup_wait_us; only announce() does blocking I/O. It never sees a block's bytes.
//
// The life of a request: learn and add, match (as often as the engine likes), allocated, then scheduled in each step it
// runs in,
// ..., finish. Requests are named by the engine's ids; between a start (or resumption) and its end an *incarnation*
// number stands for the blocks it holds, so that the workers can tell when those are gone.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/breaker.h"
#include "cache/identity.h"
#include "cache/lookup.h"
#include "cache/presence.h"
#include "engine/counters.h"
#include "engine/geometry.h"
#include "engine/name_space.h"
#include "engine/options.h"
#include "engine/step.h"
#include "kvern/store.h"

namespace kvern {

// The engine's hashes of a request's full blocks, wherever it keeps them. Valid during one call.
class BlockHashes {
  public:
    virtual ~BlockHashes() = default;
    virtual std::size_t size() const = 0;
    virtual std::string_view at(std::size_t block) const = 0;
};

struct Match {
    bool pending = false;      // ask again in the next step
    std::uint32_t tokens = 0;  // beyond the engine's own; to be loaded asynchronously
};

// The engine's blocks of a request, by group. Outside full attention block 0 stands for one that is not there.
using BlockTable = std::vector<std::vector<std::int32_t>>;

// What the engine runs of one request in a step.
struct Scheduled {
    bool restarted = false;  // new or resumed: `blocks` is the whole table, else what is added to it
    BlockTable blocks;
    std::uint64_t computed_tokens = 0;   // before the step
    std::uint64_t scheduled_tokens = 0;  // in the step
    std::uint64_t draft_tokens = 0;      // of these, guesses that may be taken back
};

class SchedulerHalf {
  public:
    // Opens the store. Errors are one sentence with the option, its value and the remedy.
    static Result<std::unique_ptr<SchedulerHalf>> create(const Options& options, const Clock& clock = Clock::steady());
    // On a store that is open.
    SchedulerHalf(const Options& options, std::unique_ptr<Store> store, const Clock& clock);
    ~SchedulerHalf();

    // Writes the nonce that all workers must see; fails if the store can't be written (mode read_only writes nothing).
    Result<void> announce(std::string_view engine_id);
    // Takes all workers' geometries: fails if they disagree or see another store.
    Result<void> configure(std::span<const Geometry> workers);
    // Opens the namespace; before it every request is a miss and nothing is stored. `model`: the digest of the weights,
    // `label`: the model's name for people, `hash_seed`: the engine's start value, hex; `hash_block_tokens`: tokens of
    // the blocks that the engine hashes, a divisor of the chunk's. REQUIRES: configure() succeeded.
    Result<void> open(std::string model, std::string label, std::string hash_seed, std::uint64_t hash_block_tokens);
    bool is_open() const { return open_; }
    const std::string& namespace_hex() const { return name_space_.hex(); }

    // Takes the hashes that are new since the last call for this request, which has `tokens` tokens now. To be called
    // before add, match and scheduled. `adapter`: digest of the weights that change the model for this request; the
    // same in every call.
    void learn(const std::string& id, const BlockHashes& hashes, std::uint64_t tokens, std::string_view adapter = {});
    // Starts looking a new request up, if it is worth it.
    void add(const std::string& id);
    // `local_tokens`: what the engine has itself, a multiple of the block. `skip_reading`: the request wants no cache.
    //
    // After a failed load that left nothing the request is computed. vLLM (0.32) still holds blocks in reserve for it,
    // so that another load may never fit, and it waits in front of those that hold the blocks it needs: pending once
    // makes it step aside, and without a load nothing is reserved.
    Match match(const std::string& id, std::uint64_t local_tokens, bool skip_reading);
    // After an allocation: `blocks` is the request's whole table. tokens 0: nothing is to be loaded.
    // An error means that the engine broke its contract; the load can't be reported then.
    Result<void> allocated(const std::string& id, const BlockTable& blocks, std::uint64_t tokens);
    void scheduled(const std::string& id, const Scheduled& what);
    void preempted(const std::string& id);
    void finish(const std::string& id);
    // What the workers are told with this step; to be called once per step, after scheduled() and preempted().
    std::string build_step();

    // A request that is not served because of its adapter.
    void count_adapter_miss() { ++counters_.misses[static_cast<std::size_t>(Miss::adapter)]; }
    // True if a load succeeds or fails as a whole: the engine can't go on from an earlier boundary.
    bool loads_are_whole() const { return whole_loads_; }

    // The workers' answers: blocks that could not be loaded (any time before loaded()), and the end of a load.
    void bad_blocks(std::span<const std::int32_t> blocks);
    // The load failed because of the store, not of the data (any time before loaded()): counts towards its breaker.
    void troubled(const std::string& id);
    void loaded(const std::string& id);
    // The engine dropped its cache and the weights may have changed: start a new epoch (or not, by on_reset).
    void reset();

    const SchedulerCounters& counters() const { return counters_; }
    // One line for people: what was found, loaded, and why not more. Empty for an unknown request.
    std::string explain(const std::string& id) const;
    std::string describe_store() const { return store_->describe(); }

  private:
    struct Request {
        std::vector<ChunkId> chunks;  // full chunks with a hash, from the start of the prompt
        std::string adapter;
        std::uint64_t tokens = 0;
        std::size_t blocks_hashed = 0;
        std::string last_hash;  // of block blocks_hashed - 1, to notice a rewritten tail
        // The lookup and its answer: chunks [found_from, found_end) are there.
        std::uint64_t lookup = 0;
        std::size_t lookup_from = 0;
        TimePoint lookup_started{};
        std::optional<TimePoint> first_asked;
        std::optional<TimePoint> waits_for_turn;  // since when, with a hit in hand
        bool settled = false;
        std::size_t found_from = 0, found_end = 0;
        TimePoint settled_at{};
        std::uint64_t settled_failures = 0;
        Miss why = Miss::absent;
        bool asked = false, counted = false;  // asked_tokens and the miss are counted once a request
        // What was decided and what came of it, in tokens.
        std::uint64_t local_tokens = 0, matched_tokens = 0, loaded_tokens = 0;
        unsigned failed_loads = 0;
        // After a load that left nothing to go on from: see match().
        enum class Retry : std::uint8_t { none, step_aside, compute } retry = Retry::none;
        // Storing.
        std::uint64_t incarnation = 0;  // 0: holds no blocks
        BlockTable blocks;
        std::vector<std::size_t> appended_from;  // by group: the first block that came with this step
        std::size_t next_chunk = 0;              // first one not yet decided about
        std::uint64_t resident_tokens = 0;       // the engine's own at the start of the incarnation
        bool hole = false;                       // a resident chunk is known not to be in the store
        std::uint64_t offered_chunks = 0;
    };
    struct Load {
        std::vector<ChunkBlocks> chunks;
        std::uint64_t tokens = 0;
        std::unordered_set<std::int32_t> bad;
        bool troubled = false;
        bool outdated = false;  // of an older epoch: says nothing about the present one
    };

    Result<void> check_workers(std::span<const Geometry> workers) const;
    ChunkHash chunk_hash(const Request& request, std::string_view block_hash) const;
    // Chunks that a hit of the request may end behind.
    std::size_t usable_chunks(const Request& request) const;
    // The objects of a load of tokens [from, end), or nothing if the table does not have their blocks.
    std::optional<std::vector<ChunkBlocks>> objects_of(const Request& request, const BlockTable& blocks,
                                                       std::uint64_t from, std::uint64_t end) const;
    std::optional<std::vector<std::int32_t>> pages_of(const GroupPlan& plan, std::span<const std::int32_t> table,
                                                      std::size_t chunk) const;
    void open_namespace();
    void start_lookup(Request& request, std::size_t from);
    void end_lookup(Request& request);
    bool still_settled(const Request& request, std::size_t first) const;
    // Brings the request to an answer, or says that it has to be asked again.
    bool settle(Request& request, std::size_t first);
    void settle_with(Request& request, std::size_t found_from, std::size_t found_end, Miss why);
    void count_miss(Request& request, Miss why);
    Duration lookup_deadline() const;
    void end_incarnation(Request& request);
    void offer_chunks(Request& request, const Scheduled& what);
    // True if the object of this chunk and group is to be stored now.
    bool worth_storing(Request& request, std::size_t chunk, std::uint32_t group, const Scheduled& what);
    bool believed_failed(const Request& request, std::size_t from) const;
    // Blocks that the request may come to hold, at most.
    std::uint64_t blocks_needed(const Request& request) const;
    // False while a load of this request might keep others from going on for ever: those that are loaded and have not
    // run yet may hold so much that none of them gets the rest, and after a failed load the engine still reserves
    // blocks.
    bool has_turn(const std::string& id, const Request& request) const;

    const Options options_;
    const Clock& clock_;
    std::unique_ptr<Store> store_;
    Presence presence_;
    Lookups lookups_;
    Breaker breaker_;
    NameSpace name_space_;
    SchedulerCounters counters_;

    bool open_ = false;
    Identity identity_;
    std::string label_;
    std::vector<Lookups::Group> groups_;
    bool has_state_ = false, whole_loads_ = false;
    std::uint64_t num_blocks_ = 0;  // of the engine's KV memory
    std::string nonce_key_, nonce_;
    std::uint64_t chunk_tokens_ = 0, hash_block_tokens_ = 0;

    std::unordered_map<std::string, Request> requests_;
    std::unordered_map<std::string, Load> loads_;
    // Blocks needed by the requests that have a load and have not run since.
    std::unordered_map<std::string, std::uint64_t> loaded_waiting_;
    std::unordered_set<std::string> failed_waiting_;  // requests whose load left nothing, until they run
    std::uint64_t next_incarnation_ = 1;
    std::uint64_t load_failures_ = 0;  // grows with each failed load: settled answers are looked at again
    bool loads_failing_ = false;       // the store failed in the last load: a lookup that works does not make up for it
    Duration lookup_time_{};           // moving average of how long a lookup takes
    Step step_;
};

}  // namespace kvern
