// SPDX-License-Identifier: Apache-2.0
// A small engine: a scheduler with waiting, loading and running requests, a block pool with a prefix cache that reuses
// freed blocks at once, and two ranks. It drives SchedulerHalf and WorkerHalf as vLLM does, with everything at random,
// and knows what every block must hold: a function of its hash, the epoch of the weights, layer and rank.
//
// Expectations are gtest's: a run goes on until the first failure.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>

#include "engine/kv_memory.h"
#include "engine/scheduler_fixture.h"
#include "engine/temp_folder.h"

namespace kvern::testing {

class Simulator {
  public:
    static constexpr std::uint64_t block_tokens = 4;
    static constexpr std::uint32_t num_blocks = 40;

    // `faults`: rules of a fault store that comes between once the start is over; none: a plain file store.
    explicit Simulator(unsigned seed, const std::string& faults = {}) : random_(seed) {
        Options options;
        options.store = "file://" + folder_.path();
        if (!faults.empty()) {
            options.store = "fault:" + control_.path() + "/rules.json!" + options.store;
            options.load_stall_ms = 100;
        }
        options.staging_mib = 1;
        options.min_free_percent = 0;  // the disk of a test may be nearly full
        options.lookup_wait_us = chance(50) ? 0 : 500;
        const unsigned ranks_on_host = chance(50) ? 1 : 40;  // 40: staging has room for two chunks only
        half_ = take(SchedulerHalf::create(options, clock_));
        EXPECT_TRUE(half_->announce("engine"));
        std::vector<Geometry> geometries;
        for (Rank& rank : ranks_) {
            const auto index = static_cast<std::uint32_t>(&rank - ranks_);
            KvMemory::Shape shape;
            shape.blocks = num_blocks;
            shape.page_bytes = shape.stride_bytes = 256;
            shape.shard = {0, 1, index, index};
            rank.memory = std::make_unique<KvMemory>(shape);
            rank.worker = take(WorkerHalf::create(options, rank.memory->worker(), ranks_on_host, clock_));
            geometries.push_back({"tp " + std::to_string(index),
                                  {{{GroupKind::full, 4, 8, 0}, shape.shard}},
                                  num_blocks,
                                  test_identity().to_json(),
                                  rank.worker->read_nonce("engine")});
        }
        const auto configured = half_->configure(geometries);
        EXPECT_TRUE(configured) << configured.error().message;
        EXPECT_TRUE(half_->open("model", "label", "seed", block_tokens));
        if (!faults.empty()) std::ofstream(control_.path() + "/rules.json") << faults;
    }

    // What the stores say about themselves.
    std::string describe_stores() const {
        auto text = half_->describe_store();
        for (const Rank& rank : ranks_) text += "\n" + rank.worker->describe_store();
        return text;
    }

    void run(std::size_t requests) {
        auto last_progress = std::chrono::steady_clock::now();
        while ((started_ < requests || !requests_.empty()) && !::testing::Test::HasFailure()) {
            if (started_ < requests && requests_.size() < 6 && chance(30)) start();
            if (step()) last_progress = std::chrono::steady_clock::now();
            if (std::chrono::steady_clock::now() - last_progress > patience) ADD_FAILURE() << "nothing moves any more";
        }
        if (::testing::Test::HasFailure()) return;
        const bool quiet = eventually([&] {  // I8
            step();
            return std::all_of(std::begin(ranks_), std::end(ranks_), [](Rank& rank) {
                const RegionStats staging = rank.worker->staging();
                return rank.worker->pending_stores() == 0 && staging.leased_bytes + staging.quarantined_bytes == 0;
            });
        });
        EXPECT_TRUE(quiet) << "staging or stores are left over";
        for (Rank& rank : ranks_) {
            EXPECT_EQ(rank.worker->shutdown(patience), 0U);
            EXPECT_TRUE(rank.owed.empty());
            EXPECT_TRUE(rank.worker->take_finished().requests.empty());
        }
    }

    struct Seen {
        std::size_t loads = 0, bad_loads = 0, preemptions = 0, aborts = 0, resets = 0, damages = 0;
        std::uint64_t hit_tokens = 0, stored_chunks = 0;
    };
    Seen seen() const {
        Seen result = seen_;
        result.hit_tokens = half_->counters().hit_tokens;
        for (const Rank& rank : ranks_) result.stored_chunks += rank.worker->counters().stored_chunks;
        return result;
    }

  private:
    enum class State { waiting, loading, ready, running };
    struct Request {
        std::string id;
        std::vector<std::string> hashes;  // of all blocks that it will ever have
        std::uint64_t prompt_tokens = 0, total_tokens = 0, computed = 0, planned = 0;
        std::vector<std::int32_t> table;
        State state = State::waiting;
        bool aborted = false;
        std::size_t load_from = 0, load_to = 0;  // blocks
        std::set<std::int32_t> bad;
    };
    struct Rank {
        std::unique_ptr<KvMemory> memory;
        std::unique_ptr<WorkerHalf> worker;
        std::set<std::string> owed;  // loads that it has to report
    };
    struct Run {
        Request* request;
        bool restarted;
        std::vector<std::int32_t> new_blocks;
        std::uint64_t tokens;
    };

    template <class T>
    static T take(Result<T> result) {
        EXPECT_TRUE(result) << (result ? "" : result.error().message);
        return std::move(*result);
    }
    std::size_t pick(std::size_t below) { return random_() % below; }
    bool chance(unsigned percent) { return pick(100) < percent; }
    std::uint64_t content(const std::string& hash) const { return std::hash<std::string>()(hash) + epoch_ * 1000003; }

    // --- Blocks

    std::size_t free_blocks() const {
        return static_cast<std::size_t>(std::count(std::begin(uses_), std::end(uses_), 0));
    }
    std::int32_t allocate() {
        std::uint32_t block = static_cast<std::uint32_t>(pick(num_blocks));
        while (uses_[block] != 0) block = (block + 1) % num_blocks;
        uses_[block] = 1;
        std::erase_if(cached_, [&](const auto& entry) { return entry.second == static_cast<std::int32_t>(block); });
        for (Rank& rank : ranks_) rank.memory->fill(block, random_());  // whoever still reads or writes it, shows
        return static_cast<std::int32_t>(block);
    }
    void free_table(Request& request) {
        for (const std::int32_t block : request.table) --uses_[block];
        request.table.clear();
        request.computed = 0;
    }
    void expect_golden(const Request& request, std::size_t from, std::size_t to, const char* when) {
        for (std::size_t i = from; i < to; ++i)
            for (const Rank& rank : ranks_)
                ASSERT_TRUE(
                    rank.memory->holds(static_cast<std::uint32_t>(request.table[i]), content(request.hashes[i])))
                    << when << ": request " << request.id << " block " << i << " of rank " << (&rank - ranks_);
    }
    Hashes known_hashes(const Request& request) const {
        const std::size_t known = std::max(request.prompt_tokens, request.computed) / block_tokens;
        return Hashes({request.hashes.begin(), request.hashes.begin() + static_cast<std::ptrdiff_t>(known)});
    }

    void learn(const std::string& id, const Hashes& hashes) {
        half_->learn(id, hashes, hashes.size() * block_tokens + 1);
    }

    // --- One step

    void start() {
        Request request;
        request.id = "r" + std::to_string(started_++);
        request.prompt_tokens = 1 + pick(60);
        request.total_tokens = request.prompt_tokens + pick(20);
        // A few families of prompts that branch off at a few places.
        const std::string family = "f" + std::to_string(pick(3)), branch = family + "b" + std::to_string(pick(3));
        const std::size_t branch_at = 3 * pick(4), own_at = request.prompt_tokens / block_tokens;
        for (std::size_t i = 0; i < request.total_tokens / block_tokens; ++i)
            request.hashes.push_back((i < branch_at ? family
                                      : i < own_at  ? branch
                                                    : branch + request.id) +
                                     "-" + std::to_string(i) + "-" + std::to_string(i < branch_at ? 0 : branch_at));
        requests_.push_back(std::make_unique<Request>(request));
        learn(request.id, known_hashes(request));
        half_->add(request.id);
    }

    bool step() {
        clock_.advance(std::chrono::milliseconds(pick(30)));
        if (chance(1)) clock_.advance(std::chrono::seconds(31));
        if (chance(8)) damage_an_object();
        if (chance(2)) reset();
        std::vector<Run> runs;
        std::vector<std::string> preempted = std::move(late_preempted_);
        late_preempted_.clear();
        plan_running(runs, preempted);
        if (preempted.empty()) plan_waiting(runs);
        for (const std::string& id : preempted) half_->preempted(id);
        for (const Run& run : runs) {
            learn(run.request->id, known_hashes(*run.request));
            half_->scheduled(run.request->id, {run.restarted,
                                               {run.restarted ? run.request->table : run.new_blocks},
                                               run.request->computed,
                                               run.tokens,
                                               0});
        }
        const std::string metadata = half_->build_step();
        for (Rank& rank : ranks_)
            for (int i = chance(50) ? 2 : 1; i > 0; --i) EXPECT_TRUE(rank.worker->begin_step(metadata));
        forward(runs);
        for (Rank& rank : ranks_)
            if (!runs.empty() || chance(50)) rank.worker->save();
        bool progress = !runs.empty() || !preempted.empty();
        for (Rank& rank : ranks_) progress |= take_reports(rank);
        finish_some();
        if (!progress) std::this_thread::sleep_for(std::chrono::microseconds(50));
        return progress;
    }

    void plan_running(std::vector<Run>& runs, std::vector<std::string>& preempted) {
        for (auto& request : requests_) {
            if (request->state != State::running && request->state != State::ready) continue;
            const std::uint64_t tokens =
                std::min<std::uint64_t>(1 + pick(12), request->total_tokens - request->computed);
            const std::size_t needed = (request->computed + tokens + block_tokens - 1) / block_tokens;
            const std::size_t more = needed > request->table.size() ? needed - request->table.size() : 0;
            if (request->state == State::running && (more > free_blocks() || chance(2))) {
                free_table(*request);
                request->state = State::waiting;
                preempted.push_back(request->id);
                ++seen_.preemptions;
                continue;
            }
            if (more > free_blocks()) continue;
            std::vector<std::int32_t> added;
            for (std::size_t i = 0; i < more; ++i) added.push_back(allocate());
            request->table.insert(request->table.end(), added.begin(), added.end());
            runs.push_back({request.get(), request->state == State::ready, added, tokens});
            request->state = State::running;
        }
    }

    void plan_waiting(std::vector<Run>& runs) {
        for (auto& request : requests_) {
            if (request->state != State::waiting) continue;
            // At least one token is left to compute.
            std::size_t local = 0;
            const std::size_t local_max = (std::max(request->prompt_tokens, std::uint64_t{1}) - 1) / block_tokens;
            while (local < local_max && cached_.contains(request->hashes[local])) ++local;
            learn(request->id, known_hashes(*request));
            const Match match = half_->match(request->id, local * block_tokens, chance(3));
            if (match.pending) continue;
            const std::uint64_t held = local * block_tokens + match.tokens;
            ASSERT_LE(held, request->prompt_tokens) << "more than there is";
            std::uint64_t tokens = match.tokens ? 0 : std::min(1 + pick(20), request->total_tokens - held);
            const std::size_t blocks = (held + tokens + block_tokens - 1) / block_tokens;
            std::size_t unused = free_blocks();
            for (std::size_t i = 0; i < local; ++i) unused -= uses_[cached_[request->hashes[i]]] == 0;
            if (blocks - local > unused) continue;  // asked again in a later step
            for (std::size_t i = 0; i < local; ++i) ++uses_[request->table.emplace_back(cached_[request->hashes[i]])];
            while (request->table.size() < blocks) request->table.push_back(allocate());
            request->computed = local * block_tokens;
            EXPECT_TRUE(half_->allocated(request->id, {request->table}, match.tokens));
            if (match.tokens == 0) {
                request->state = State::running;
                runs.push_back({request.get(), true, {}, tokens});
                continue;
            }
            request->state = State::loading;
            request->load_from = local;
            request->load_to = held / block_tokens;
            request->bad.clear();
            for (Rank& rank : ranks_) EXPECT_TRUE(rank.owed.insert(request->id).second);
            ++seen_.loads;
        }
    }

    void forward(const std::vector<Run>& runs) {
        for (const Run& run : runs) {
            Request& request = *run.request;
            expect_golden(request, 0, request.computed / block_tokens, "before it is read");
            const std::size_t from = request.computed / block_tokens;
            request.computed += run.tokens;
            for (std::size_t i = from; i < request.computed / block_tokens; ++i) {
                for (Rank& rank : ranks_)
                    rank.memory->fill(static_cast<std::uint32_t>(request.table[i]), content(request.hashes[i]));
                cached_.emplace(request.hashes[i], request.table[i]);
            }
        }
    }

    bool take_reports(Rank& rank) {
        FinishedLoads finished = rank.worker->take_finished();
        if (finished.requests.empty()) {
            EXPECT_TRUE(finished.bad_blocks.empty()) << "I3: with the report or before it";
            return false;
        }
        half_->bad_blocks(finished.bad_blocks);
        for (const std::int32_t block : finished.bad_blocks) note_bad(block);
        for (const std::string& id : finished.troubled) half_->troubled(id);
        for (const std::string& id : finished.requests) {
            EXPECT_EQ(rank.owed.erase(id), 1U) << "I1, I2: " << id << " was reported and was not owed";
            if (!ranks_[0].owed.contains(id) && !ranks_[1].owed.contains(id)) loaded(id);
        }
        return true;
    }

    void note_bad(std::int32_t block) {
        for (auto& request : requests_) {
            if (request->state != State::loading) continue;
            const auto from = request->table.begin() + static_cast<std::ptrdiff_t>(request->load_from);
            if (std::find(from, request->table.end(), block) == request->table.end()) continue;
            request->bad.insert(block);
            return;
        }
        ADD_FAILURE() << "block " << block << " was reported bad and was not being loaded";
    }

    void loaded(const std::string& id) {
        half_->loaded(id);
        const auto found = std::find_if(requests_.begin(), requests_.end(), [&](auto& r) { return r->id == id; });
        ASSERT_NE(found, requests_.end());
        Request& request = **found;
        ASSERT_EQ(request.state, State::loading);
        std::size_t valid = request.load_from;
        while (valid < request.load_to && !request.bad.contains(request.table[valid])) ++valid;
        seen_.bad_loads += valid < request.load_to;
        expect_golden(request, 0, valid, "after its load");
        for (std::size_t i = request.load_from; i < valid; ++i) cached_.emplace(request.hashes[i], request.table[i]);
        if (request.aborted) {
            free_table(request);
            requests_.erase(found);
            return;
        }
        request.computed = std::min<std::uint64_t>(valid * block_tokens, request.prompt_tokens - 1);
        request.state = State::ready;
        if (valid > 0) return;
        free_table(request);
        request.state = State::waiting;
    }

    void finish_some() {
        for (auto it = requests_.begin(); it != requests_.end();) {
            Request& request = **it;
            const bool done = request.state == State::running && request.computed == request.total_tokens;
            const bool abort = !done && !request.aborted && chance(1);
            seen_.aborts += abort;
            if (done || abort) half_->finish(request.id);
            request.aborted |= abort;
            if ((done || abort) && request.state != State::loading) {
                free_table(request);
                it = requests_.erase(it);
            } else {
                ++it;
            }
        }
    }

    // The weights change: everything is preempted, nothing that was computed is right any more.
    void reset() {
        for (const auto& request : requests_)
            if (request->state == State::loading || request->state == State::ready) return;
        for (auto& request : requests_) {
            if (request->state != State::running) continue;
            free_table(*request);
            request->state = State::waiting;
            late_preempted_.push_back(request->id);
        }
        cached_.clear();
        ++epoch_;
        ++seen_.resets;
        half_->reset();
    }

    void damage_an_object() {
        namespace fs = std::filesystem;
        std::vector<std::string> objects;
        std::error_code ignored;
        for (auto it = fs::recursive_directory_iterator(folder_.path(), ignored);
             it != fs::recursive_directory_iterator(); it.increment(ignored))
            if (it->path().filename().string().find(".g0.") != std::string::npos &&
                it->path().string().find(".kvern-tmp") == std::string::npos)
                objects.push_back(it->path().string());
        if (objects.empty()) return;
        const std::string &path = objects[pick(objects.size())], &other = objects[pick(objects.size())];
        const auto size = fs::file_size(path, ignored);
        if (ignored) return;  // a loader has just removed it
        ++seen_.damages;
        const std::size_t kind = pick(5);
        if (kind == 0) fs::remove(path, ignored);
        if (kind == 1) fs::resize_file(path, pick(size + 5000), ignored);
        if (kind == 2) fs::copy_file(other, path, fs::copy_options::overwrite_existing, ignored);
        if (kind > 2) {
            std::fstream stream(path, std::ios::in | std::ios::out | std::ios::binary);
            const auto at = static_cast<std::streamoff>(pick(size + 1));
            stream.seekg(at);
            const int byte = stream.get();
            stream.clear();
            stream.seekp(at);
            stream.put(static_cast<char>(byte ^ (1 << pick(8))));
        }
    }

    std::mt19937 random_;
    FakeClock clock_;
    TempFolder folder_, control_;
    std::unique_ptr<SchedulerHalf> half_;
    Rank ranks_[2];
    int uses_[num_blocks] = {};
    std::map<std::string, std::int32_t> cached_;  // the engine's own prefix cache
    std::vector<std::unique_ptr<Request>> requests_;
    std::vector<std::string> late_preempted_;
    std::size_t started_ = 0;
    std::uint64_t epoch_ = 0;
    Seen seen_;
};

}  // namespace kvern::testing
