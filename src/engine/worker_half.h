// SPDX-License-Identifier: Apache-2.0
// The worker half of an engine connector: the engine's KV memory on one side, a store on the other.
//
// Belongs to the engine's worker thread, except counters(), which any thread may read. No call blocks on I/O but
// create(), read_nonce() and shutdown(). It knows nothing of requests but what the steps say.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "engine/counters.h"
#include "engine/loader.h"
#include "engine/options.h"
#include "engine/pages.h"
#include "engine/saver.h"
#include "engine/step.h"

namespace kvern {

class WorkerHalf {
  public:
    // Opens the store and takes staging: options.staging_mib divided by `ranks_on_host`. `memory` must stay valid until
    // shutdown(). Errors are one sentence each, with the option, its value and the remedy.
    static Result<std::unique_ptr<WorkerHalf>> create(const Options& options, WorkerMemory memory,
                                                      unsigned ranks_on_host, const Clock& clock = Clock::steady());
    ~WorkerHalf();

    // What this rank sees under the scheduler half's nonce; empty if nothing, so that unequal stores are found at
    // start.
    std::string read_nonce(std::string_view engine_id);

    // Shares reads with the ranks of this engine and host that hold the same bytes. Before the first step.
    void share_reads(std::string_view engine_id);

    // First of a step: drops what is owed to requests whose blocks are gone, starts loads, takes store jobs over. A
    // step that was begun already (same sequence) does nothing. An error is a bug of Kvern; nothing was started then.
    Result<void> begin_step(std::string_view metadata);
    // After the step's forward pass: gathers finished chunks. When it returns, no block is referenced by a store any
    // more.
    void save();
    FinishedLoads take_finished() { return loader_->take_finished(); }

    // For KV memory on a device. `gathers` (blocks to staging) are to be started at once, before anything that may
    // overwrite the blocks; `scatters` (staging to blocks) in their order, after everything that was started on the
    // device so far. Both as often as the engine likes, the first after save(). Then the tickets of those that ended.
    std::vector<DeviceCopy> take_gathers() { return saver_->take_copies(); }
    std::vector<DeviceCopy> take_scatters() { return loader_->take_copies(); }
    void copied(std::span<const std::uint64_t> gathers, std::vector<std::uint64_t> scatters);
    // How many copies of each direction may be under way: one object each, half of gpu_staging_mib a direction. The
    // worker hands out no more gathers than that; scatters may have to wait for the caller's room.
    std::size_t device_copies_max() const;
    // Staging as one piece, for registering it with the device's runtime.
    std::span<std::byte> staging_memory() const { return {staging_->base(), staging_->size_bytes()}; }

    const WorkerCounters& counters() const { return counters_; }
    RegionStats staging() const { return staging_->stats(); }
    std::string describe_store() const { return store_->describe(); }
    // How many stores have not had their answer yet.
    std::size_t pending_stores() { return saver_->settle(); }
    bool owes_stores() const { return saver_->owes(); }
    // Ends loads (reported as failed), gives stores up to `wait` to finish, closes the store. Returns the number of
    // stores that did not finish. Afterwards only counters() may be called. REQUIRES: no copy is under way.
    std::size_t shutdown(std::chrono::milliseconds wait);

  private:
    WorkerHalf(const Options& options, WorkerMemory memory, std::unique_ptr<Store> store,
               std::shared_ptr<Region> staging, const Clock& clock);

    const Options options_;
    const WorkerMemory memory_;
    WorkerCounters counters_;
    std::shared_ptr<Region> staging_;
    std::unique_ptr<Store> store_;
    std::unique_ptr<Saver> saver_;
    std::unique_ptr<Loader> loader_;
    std::uint64_t last_sequence_ = 0;
    bool closed_ = false;
};

// The key under which the scheduler half leaves its nonce for the start of an engine.
std::string nonce_key(std::string_view engine_id);

}  // namespace kvern
