// SPDX-License-Identifier: Apache-2.0
// Loader: the loading side of a worker. Reads objects into staging, verifies them while scattering them into the
// engine's blocks, and reports each load exactly once.
//
// submit() and take_finished() belong to the engine's thread; everything else happens in one thread of the loader's
// own, which sleeps in poll(2) while nothing happens. Loads are served in the order of their arrival, in windows: as
// many chunks at a time as staging has room for. Requests that want the same chunk share one read. After the first
// failure in a load, what comes after it is given up; what lies before it is finished and stays a valid prefix, unless
// the load is all or nothing. On a device an object is verified in staging, then copied by the engine's thread.
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "cache/key.h"
#include "engine/copies.h"
#include "engine/counters.h"
#include "engine/options.h"
#include "engine/pages.h"
#include "engine/peer_reads.h"
#include "engine/step.h"
#include "kvern/memory.h"
#include "kvern/store.h"

namespace kvern {

struct FinishedLoads {
    std::vector<std::string> requests;     // each started load once
    std::vector<std::string> failed;       // of `requests`: those of which not everything was loaded
    std::vector<std::int32_t> bad_blocks;  // blocks of them that were to be loaded and hold no valid bytes; of a load
                                           // that is all or nothing: those of the object that failed
    std::vector<std::string> troubled;     // of `failed`: those that the store failed, rather than the data
};

class Loader {
  public:
    struct Settings {
        std::chrono::milliseconds stall{limits::load_stall_ms_default};
        bool may_write = true;  // broken objects are removed, if they are still the same version, and uses are marked
    };
    // All references must outlive this.
    Loader(Store& store, std::shared_ptr<Region> staging, const WorkerMemory& memory, WorkerCounters& counters,
           const Settings& settings);
    ~Loader();

    // Shares the reads of these groups with other ranks. Before the first submit(), at most once.
    void share(std::unique_ptr<PeerReads> peers, std::vector<bool> groups);
    void submit(std::vector<LoadJob> jobs, const Digest& name_space);
    // What has ended since the last call. One relaxed load when there is nothing.
    FinishedLoads take_finished();
    // On a device: copies of verified objects, to be started in this order, and those that have ended. A load is not
    // reported before its copies have ended.
    std::vector<DeviceCopy> take_copies();
    void copied(std::vector<std::uint64_t> tickets);
    // Ends: loads that are still under way are reported as failed. Close the store after it and before the destructor,
    // so that reads get their answers; one that has none even then keeps its staging for ever. REQUIRES: no copy that
    // was handed out is under way.
    void stop();

  private:
    enum class ChunkState : std::uint8_t { waiting, reading, copying, done };
    struct Load {
        LoadJob job;
        std::string namespace_hex;
        Digest name_space{};
        std::vector<ChunkState> states;
        std::size_t next = 0;                // first chunk that no read was started for
        std::size_t done = 0;                // chunks done, of those before `end`
        std::size_t end = 0;                 // chunks that are still wanted: all, or those before the first failure
        std::size_t attached = 0;            // reads under way for it
        std::size_t copying = 0;             // copies to the device under way for it
        std::size_t failed_chunk = 0;        // the first one that failed
        std::optional<LoadFailure> failure;  // of the first chunk that failed
        std::size_t removals = 0;            // removals of broken objects that its report waits for
        std::chrono::steady_clock::time_point started, progress;
        bool over() const { return done == end && removals == 0 && copying == 0; }
    };
    struct Waiter {
        Load* load;
        std::size_t chunk;
    };
    struct Read {
        ObjectFacts facts;
        std::string key;
        std::shared_ptr<Lease> lease;  // none while another rank reads
        std::vector<Waiter> waiters;
        std::uint64_t quarantine = 0;  // not 0: it stalled, and its lease is held back until the answer comes
        std::chrono::steady_clock::time_point awaited_until{};  // of another rank's read

        ObjectId id() const { return {facts.chunk.hash, facts.group}; }
        std::span<const std::byte> bytes() const { return {lease->data(), lease->size_bytes()}; }
    };

    void run();
    void accept();
    void start_reads();
    Read& add_read(Load& load, std::size_t chunk);
    // True if the read was started; else there is no staging.
    bool start_read(std::uint64_t tag, Read& read);
    void take(const Completion& completion);
    void finish_read(Read read, const Outcome& outcome);
    // Verifies and copies for one load: in one pass on the host, one after the other on a device. Returns the number
    // of slices that do not have their checksum.
    std::uint32_t deliver(const Read& read, std::span<const std::byte> object, const Waiter& waiter);
    void deliver_all(const Read& read, const Outcome& outcome);
    // Other ranks' reads: takes their offers, or reads itself where one was declined or did not come.
    bool shares(const ObjectId& id) const {
        return peers_ && id.group < shared_groups_.size() && shared_groups_[id.group];
    }
    void take_offers(std::chrono::steady_clock::time_point now);
    // False where another read for the other ranks would leave too little staging for what they read.
    bool room_to_share(const ObjectId& id);
    bool take_offer(const Read& read, std::span<const std::byte> object);
    void decline(const Load& load, std::size_t from_chunk);
    void copy_to_device(const Waiter& waiter, const std::shared_ptr<Lease>& lease);
    void take_copied();
    void chunk_done(Load& load, std::size_t chunk);
    // Gives up `chunk` and everything after it. `stalled`: reads of it are still under way and may never end.
    void chunk_failed(Load& load, std::size_t chunk, LoadFailure reason, const std::string& why, bool stalled = false);
    // Takes the load off the reads of its chunks from `from_chunk` on.
    void detach(Load& load, std::size_t from_chunk, bool stalled);
    void remove_broken(const Read& read, const std::string& etag, std::vector<Load*> loads);
    void end_stalled(std::chrono::steady_clock::time_point now);
    void end_all();
    void report_finished();
    bool waits_for_copies(const Load& load) const;
    std::chrono::steady_clock::time_point stall_time(const Load& load) const;
    int poll_timeout_ms(std::chrono::steady_clock::time_point now) const;

    Store& store_;
    const std::shared_ptr<Region> staging_;
    const WorkerMemory& memory_;
    std::vector<ObjectLayout> layouts_;  // by group
    std::vector<std::string> shard_texts_;
    WorkerCounters& counters_;
    const Settings settings_;
    int wake_fd_ = -1;

    std::mutex mutex_;  // guards what the two threads exchange:
    std::vector<Load> submitted_;
    FinishedLoads finished_;
    std::vector<DeviceCopy> copies_;
    std::vector<std::uint64_t> copied_;
    std::unique_ptr<PeerReads> arriving_peers_;
    bool stopping_ = false;
    std::atomic<bool> news_{false}, copies_waiting_{false};

    // The loader thread's own.
    std::list<Load> loads_;
    std::unique_ptr<PeerReads> peers_;
    std::vector<bool> shared_groups_;
    std::unordered_map<std::uint64_t, Read> reads_;                        // by tag
    std::size_t awaited_ = 0;                                              // reads of other ranks
    std::vector<std::weak_ptr<Lease>> shared_;                             // of this rank's reads for other ranks
    std::unordered_map<ObjectId, std::uint64_t, ObjectIdHasher> reading_;  // reads that can be shared, to their tags
    struct Copy {
        Waiter waiter;
        std::shared_ptr<Lease> lease;  // of the object; several copies may be made of one
    };
    std::unordered_map<std::uint64_t, Copy> copying_;                 // by ticket
    std::unordered_map<std::uint64_t, std::vector<Load*>> removals_;  // by tag
    std::uint64_t next_tag_ = 1;
    bool starved_ = false;  // there was no staging for a read that is wanted
    std::chrono::steady_clock::time_point progress_{};
    std::vector<Op> ops_;
    std::vector<std::uint32_t> slice_crcs_;
    std::unique_ptr<CompletionQueue> queue_;
    std::thread thread_;
};

}  // namespace kvern
