// SPDX-License-Identifier: Apache-2.0
#include "engine/scheduler_half.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"

namespace kvern {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// A waiting request whose prompt was not there asks again after this long: somebody may have stored it meanwhile.
constexpr milliseconds miss_settled_for{2000};
// However slow lookups have become, no request waits longer than this for one.
constexpr milliseconds lookup_deadline_max{1000};
// What the engine's tables hold outside full attention where a block is not there (any more).
constexpr std::int32_t null_block = 0;

}  // namespace

// --- What is there
// -------------------------------------------------------------------------------------------------------

ChunkHash SchedulerHalf::chunk_hash(const Request& request, std::string_view block_hash) const {
    if (request.adapter.empty()) return ChunkHash(block_hash);
    const Digest mixed = sha256(std::string(block_hash) + request.adapter);
    return ChunkHash({reinterpret_cast<const char*>(mixed.data()), mixed.size()});
}

std::size_t SchedulerHalf::usable_chunks(const Request& request) const {
    // The engine computes the last token again, which a state that has seen it does not survive.
    const std::size_t before_last = request.tokens == 0 ? 0 : (request.tokens - 1) / chunk_tokens_;
    return has_state_ ? std::min(request.chunks.size(), before_last) : request.chunks.size();
}

void SchedulerHalf::learn(const std::string& id, const BlockHashes& hashes, std::uint64_t tokens,
                          std::string_view adapter) {
    if (!open_) return;
    Request& request = requests_[id];
    request.adapter = adapter;
    request.tokens = tokens;
    const std::size_t per_chunk = chunk_tokens_ / hash_block_tokens_;
    const std::size_t size = hashes.size();
    // An engine may take generated tokens back (streaming sessions): then the tail has other hashes than before.
    if (request.blocks_hashed > size ||
        (request.blocks_hashed > 0 && hashes.at(request.blocks_hashed - 1) != request.last_hash)) {
        std::size_t kept = 0;
        while (kept < request.chunks.size() && (kept + 1) * per_chunk <= size &&
               request.chunks[kept].hash == chunk_hash(request, hashes.at((kept + 1) * per_chunk - 1)))
            ++kept;
        request.chunks.resize(kept);
        request.next_chunk = std::min(request.next_chunk, kept);
        end_lookup(request);  // it asked for the old tail
        request.blocks_hashed = 0;
        request.settled = false;
    }
    if (request.blocks_hashed == size) return;
    for (std::size_t block = (request.chunks.size() + 1) * per_chunk - 1; block < size; block += per_chunk) {
        const std::string_view hash = hashes.at(block);
        if (!ChunkHash::valid(hash)) break;
        const std::uint64_t parent = request.chunks.empty() ? 0 : request.chunks.back().hash.tag();
        request.chunks.push_back({chunk_hash(request, hash), parent});
    }
    request.blocks_hashed = size;
    request.last_hash = hashes.at(size - 1);
}

void SchedulerHalf::add(const std::string& id) {
    if (!open_) return;
    Request& request = requests_[id];
    if (options_.mode != Mode::write_only && usable_chunks(request) > 0 && breaker_.allow()) start_lookup(request, 0);
}

void SchedulerHalf::start_lookup(Request& request, std::size_t from) {
    if (request.lookup) lookups_.cancel(request.lookup);
    request.lookup = lookups_.start(std::span(request.chunks).first(usable_chunks(request)).subspan(from));
    request.lookup_from = from;
    request.lookup_started = clock_.now();
    ++counters_.lookups;
}

void SchedulerHalf::end_lookup(Request& request) {
    if (request.lookup) lookups_.cancel(request.lookup);
    request.lookup = 0;
}

Duration SchedulerHalf::lookup_deadline() const {
    const Duration wanted = std::max<Duration>(milliseconds(options_.lookup_deadline_ms), 4 * lookup_time_);
    return std::min<Duration>(wanted,
                              std::max<Duration>(lookup_deadline_max, milliseconds(options_.lookup_deadline_ms)));
}

bool SchedulerHalf::still_settled(const Request& request, std::size_t first) const {
    if (!request.settled || request.settled_failures != load_failures_) return false;
    const bool hit = request.found_end > first;
    if (clock_.now() - request.settled_at >
        (hit ? Duration(limits::presence_positive_ttl) : Duration(miss_settled_for)))
        return false;
    return request.found_from <= first &&
           (hit || request.found_end == first || request.found_end == usable_chunks(request));
}

void SchedulerHalf::settle_with(Request& request, std::size_t found_from, std::size_t found_end, Miss why) {
    end_lookup(request);
    request.settled = true;
    request.settled_at = clock_.now();
    request.settled_failures = load_failures_;
    request.found_from = found_from;
    request.found_end = found_end;
    request.why = why;
    request.first_asked.reset();
}

bool SchedulerHalf::settle(Request& request, std::size_t first) {
    // The engine lost what it had when the lookup started: that one asks for too little.
    if (request.lookup_from > first) end_lookup(request);
    if (!request.lookup) {
        if (!breaker_.allow()) {
            settle_with(request, first, first, Miss::breaker);
            return true;
        }
        start_lookup(request, first);
    }
    const TimePoint now = clock_.now();
    const bool first_ask = !request.first_asked;
    if (first_ask) request.first_asked = now;
    Lookups::Answer answer = lookups_.poll(request.lookup);
    const bool seen_ending = !first_ask || !answer.done;  // else it ended while the request waited for its turn
    if (!answer.done && first_ask) answer = lookups_.wait_for(request.lookup, microseconds(options_.lookup_wait_us));
    if (!answer.done && clock_.now() - *request.first_asked < lookup_deadline()) return false;

    const std::size_t end = request.lookup_from + answer.chunks;
    if (!answer.done) {
        breaker_.failure();
        settle_with(request, std::min(first, request.lookup_from), std::max(end, first), Miss::deadline);
        return true;
    }
    const Duration took = clock_.now() - request.lookup_started;
    if (seen_ending) {
        lookup_time_ = lookup_time_ == Duration::zero() ? took : (lookup_time_ * 7 + took) / 8;
        counters_.lookup_ns += static_cast<std::uint64_t>(std::chrono::nanoseconds(took).count());
    }
    if (!answer.error.empty()) {
        breaker_.failure();
        log(LogLevel::warning, "lookup", answer.error);
        settle_with(request, std::min(first, request.lookup_from), std::max(end, first), Miss::store_error);
        return true;
    }
    if (end < first && request.lookup_from < first) {
        // There is a gap before what the engine has itself; what lies behind that is still of use.
        start_lookup(request, first);
        return settle(request, first);
    }
    if (!loads_failing_)
        breaker_.success();
    else if (end <= first)
        breaker_.undecided();  // nothing to load, so nothing to learn: the next request may be the probe
    const Miss why = believed_failed(request, end)   ? Miss::failed
                     : answer.prefix > answer.chunks ? Miss::boundary
                                                     : Miss::absent;
    settle_with(request, request.lookup_from, end, why);
    return true;
}

bool SchedulerHalf::believed_failed(const Request& request, std::size_t from) const {
    // With one part only the chunk after the hit can have stopped it.
    const std::size_t end = std::min(usable_chunks(request), whole_loads_ ? request.chunks.size() : from + 1);
    for (std::size_t chunk = from; chunk < end; ++chunk)
        for (unsigned part = 0; part < lookups_.parts(); ++part)
            if (presence_.find(request.chunks[chunk].hash, part) == Belief::failed) return true;
    return false;
}

void SchedulerHalf::count_miss(Request& request, Miss why) {
    request.why = why;
    if (!std::exchange(request.counted, true)) ++counters_.misses[static_cast<std::size_t>(why)];
}

Match SchedulerHalf::match(const std::string& id, std::uint64_t local_tokens, bool skip_reading) {
    if (!open_) return {};
    Request& request = requests_[id];
    request.local_tokens = local_tokens;
    request.matched_tokens = 0;
    const std::size_t first = local_tokens / chunk_tokens_;
    const std::size_t usable = usable_chunks(request);
    if (usable * chunk_tokens_ <= local_tokens) return {};
    if (skip_reading || options_.mode == Mode::write_only) {
        count_miss(request, skip_reading ? Miss::skipped : Miss::disabled);
        return {};
    }
    if (request.retry == Request::Retry::step_aside) {
        request.retry = Request::Retry::compute;
        return {true, 0};
    }
    if (request.retry == Request::Retry::compute || request.failed_loads >= limits::load_attempts_max) {
        count_miss(request, Miss::failed);
        return {};
    }
    if (!still_settled(request, first)) {
        request.settled = false;
        if (!settle(request, first)) return {true, 0};
        if (!std::exchange(request.asked, true)) counters_.asked_tokens += usable * chunk_tokens_ - local_tokens;
    }
    const std::uint64_t end_tokens = request.found_end * chunk_tokens_;
    const std::uint64_t tokens = end_tokens > local_tokens ? end_tokens - local_tokens : 0;
    if (tokens > 0 && tokens < (options_.min_tokens ? options_.min_tokens : chunk_tokens_)) {
        count_miss(request, Miss::short_hit);
        return {};
    }
    if (tokens > 0 && !has_turn(id, request)) {
        if (!request.waits_for_turn) request.waits_for_turn = clock_.now();
        if (clock_.now() - *request.waits_for_turn < limits::load_turn_wait) return {true, 0};
        count_miss(request, Miss::memory);
        return {};
    }
    request.waits_for_turn.reset();
    if (request.found_end < usable) count_miss(request, request.why);
    request.matched_tokens = tokens;
    return {false, static_cast<std::uint32_t>(tokens)};
}

std::uint64_t SchedulerHalf::blocks_needed(const Request& request) const {
    std::uint64_t blocks = 0;
    for (const Lookups::Group& group : groups_)
        blocks += (request.tokens + group.plan.block_tokens - 1) / group.plan.block_tokens;
    return blocks;
}

// vLLM (0.32) counts too little for windows when it admits loads: several loaded requests may then hold the memory that
// each of them needs to go on, and none is preempted.
bool SchedulerHalf::has_turn(const std::string& id, const Request& request) const {
    if (!failed_waiting_.empty()) return false;
    if (!whole_loads_) return true;
    std::uint64_t others = 0;
    for (const auto& [other, blocks] : loaded_waiting_)
        if (other != id) others += blocks;
    return others == 0 || others + blocks_needed(request) <= num_blocks_ / 2;
}

// --- Loads
// ---------------------------------------------------------------------------------------------------------------

std::optional<std::vector<std::int32_t>> SchedulerHalf::pages_of(const GroupPlan& plan,
                                                                 std::span<const std::int32_t> table,
                                                                 std::size_t chunk) const {
    const std::size_t end = (chunk + 1) * plan.blocks_per_chunk();
    if (table.size() < end) return std::nullopt;
    const auto pages = table.subspan(end - plan.pages(), plan.pages());
    if (plan.kind != GroupKind::full && std::find(pages.begin(), pages.end(), null_block) != pages.end())
        return std::nullopt;
    return std::vector<std::int32_t>(pages.begin(), pages.end());
}

std::optional<std::vector<ChunkBlocks>> SchedulerHalf::objects_of(const Request& request, const BlockTable& blocks,
                                                                  std::uint64_t from, std::uint64_t end) const {
    const std::size_t last = (end + chunk_tokens_ - 1) / chunk_tokens_;
    if (blocks.size() != groups_.size() || request.chunks.size() < last) return std::nullopt;
    std::vector<ChunkBlocks> objects;
    for (std::size_t chunk = from / chunk_tokens_; chunk < last; ++chunk) {
        for (std::uint32_t group = 0; group < groups_.size(); ++group) {
            const GroupPlan& plan = groups_[group].plan;
            const std::vector<std::int32_t>& table = blocks[group];
            const std::size_t first_needed =
                plan.kind == GroupKind::full
                    ? 0
                    : end / plan.block_tokens - std::min<std::size_t>(end / plan.block_tokens, plan.trailing_blocks());
            ChunkBlocks object{group, request.chunks[chunk], {}};
            bool wanted = false;
            for (std::size_t block = chunk * plan.blocks_per_chunk(); block < (chunk + 1) * plan.blocks_per_chunk();
                 ++block) {
                // What the engine has itself is not touched, and what it gave no block is not needed.
                const bool needed = block >= first_needed && block * plan.block_tokens >= from &&
                                    (block + 1) * plan.block_tokens <= end;
                const std::size_t in_object = (chunk + 1) * plan.blocks_per_chunk() - block;
                if (needed && (block >= table.size() || in_object > plan.pages() ||
                               (plan.kind != GroupKind::full && table[block] == null_block)))
                    return std::nullopt;
                if (in_object <= plan.pages()) object.blocks.push_back(needed ? table[block] : no_block);
                wanted |= needed;
            }
            if (wanted) objects.push_back(std::move(object));
        }
    }
    return objects;
}

Result<void> SchedulerHalf::allocated(const std::string& id, const BlockTable& blocks, std::uint64_t tokens) {
    if (tokens == 0) return {};
    Request& request = requests_[id];
    const std::uint64_t from = request.local_tokens, end = from + tokens;
    if (std::all_of(blocks.begin(), blocks.end(), [](const auto& table) { return table.empty(); }))
        return fail(ErrorCode::internal,
                    fmt::format("request {}: {} tokens are to be loaded into no blocks", id, tokens));
    LoadJob& job = step_.loads.emplace_back();
    job.request = id;
    job.whole = whole_loads_;
    auto objects = open_ ? objects_of(request, blocks, from, end) : std::nullopt;
    if (objects && !objects->empty()) {
        job.chunks = std::move(*objects);
    } else {
        job.refused = true;
        // The first chunk stands for all: its failure is remembered, else the engine would ask for it again at once.
        const bool named = open_ && from / chunk_tokens_ < request.chunks.size();
        ChunkBlocks& all = job.chunks.emplace_back();
        all.chunk = named ? request.chunks[from / chunk_tokens_] : ChunkId{ChunkHash("refused"), 0};
        for (const auto& table : blocks)
            std::copy_if(table.begin(), table.end(), std::back_inserter(all.blocks),
                         [&](std::int32_t block) { return !whole_loads_ || block != null_block; });
    }
    loads_[id].chunks = job.chunks;
    loads_[id].tokens = tokens;
    loaded_waiting_[id] = blocks_needed(request);
    return {};
}

void SchedulerHalf::bad_blocks(std::span<const std::int32_t> blocks) {
    const std::unordered_set<std::int32_t> bad(blocks.begin(), blocks.end());
    for (auto& [id, load] : loads_)
        for (const ChunkBlocks& chunk : load.chunks)
            for (const std::int32_t block : chunk.blocks)
                if (block != no_block && bad.contains(block)) load.bad.insert(block);
}

void SchedulerHalf::troubled(const std::string& id) {
    if (const auto load = loads_.find(id); load != loads_.end()) load->second.troubled = true;
}

void SchedulerHalf::loaded(const std::string& id) {
    auto node = loads_.extract(id);
    if (node.empty()) return;
    const Load& load = node.mapped();
    const bool failed = !load.bad.empty();
    std::uint64_t tokens = whole_loads_ && !failed ? load.tokens : 0;
    for (const ChunkBlocks& object : load.chunks) {
        const bool broken = std::any_of(object.blocks.begin(), object.blocks.end(),
                                        [&](std::int32_t block) { return load.bad.contains(block); });
        const unsigned part = open_ ? lookups_.part_of(object.group) : 0;
        if (!load.outdated && (broken || !failed || !whole_loads_))
            presence_.note(object.chunk.hash, part, broken ? Belief::failed : Belief::present);
        if (whole_loads_ || groups_.empty()) continue;
        for (const std::int32_t block : object.blocks) {
            if (block == no_block) continue;
            if (load.bad.contains(block)) break;
            tokens += groups_[object.group].plan.block_tokens;
        }
        if (broken) break;  // what comes after it was given up, and may well be there
    }
    counters_.hit_tokens += tokens;
    if (const auto request = requests_.find(id); request != requests_.end()) {
        request->second.loaded_tokens += tokens;
        request->second.failed_loads += failed;
        if (failed && tokens == 0) {
            request->second.retry = Request::Retry::step_aside;
            failed_waiting_.insert(id);
            loaded_waiting_.erase(id);  // the engine takes its blocks back
        }
    }
    loads_failing_ = load.troubled;
    if (load.troubled)
        breaker_.failure();
    else
        breaker_.success();
    if (failed) ++load_failures_;
}

// --- Stores
// --------------------------------------------------------------------------------------------------------------

void SchedulerHalf::scheduled(const std::string& id, const Scheduled& what) {
    if (!open_) return;
    Request& request = requests_[id];
    request.retry = Request::Retry::none;
    loaded_waiting_.erase(id);
    failed_waiting_.erase(id);
    if (options_.mode == Mode::read_only) return;
    if (what.restarted) {
        end_incarnation(request);
        request.incarnation = next_incarnation_++;
        request.blocks.clear();
        request.next_chunk = 0;
        request.resident_tokens = what.computed_tokens;
        request.hole = false;
    }
    request.blocks.resize(groups_.size());
    request.appended_from.clear();
    for (const auto& table : request.blocks) request.appended_from.push_back(table.size());
    for (std::size_t group = 0; group < std::min(groups_.size(), what.blocks.size()); ++group)
        request.blocks[group].insert(request.blocks[group].end(), what.blocks[group].begin(), what.blocks[group].end());
    if (request.incarnation != 0) offer_chunks(request, what);
}

void SchedulerHalf::offer_chunks(Request& request, const Scheduled& what) {
    const std::uint64_t computed =
        what.computed_tokens + what.scheduled_tokens - std::min(what.draft_tokens, what.scheduled_tokens);
    const std::size_t complete = std::min<std::size_t>(computed / chunk_tokens_, request.chunks.size());
    for (; request.next_chunk < complete; ++request.next_chunk) {
        const std::size_t chunk = request.next_chunk;
        bool offered = false;
        for (std::uint32_t group = 0; group < groups_.size(); ++group) {
            const GroupPlan& plan = groups_[group].plan;
            if (!worth_storing(request, chunk, group, what)) continue;
            auto pages = pages_of(plan, request.blocks[group], chunk);
            if (!pages) continue;
            presence_.forget(request.chunks[chunk].hash, lookups_.part_of(group));
            step_.stores.push_back(
                {request.incarnation, {group, request.chunks[chunk], std::move(*pages)}, plan.kind != GroupKind::full});
            offered = true;
        }
        counters_.offered_chunks += offered;
        request.offered_chunks += offered;
    }
}

bool SchedulerHalf::worth_storing(Request& request, std::size_t chunk, std::uint32_t group, const Scheduled& what) {
    const auto belief = presence_.find(request.chunks[chunk].hash, lookups_.part_of(group));
    if (belief == Belief::present) return false;
    const GroupKind kind = groups_[group].plan.kind;
    const std::uint64_t end = (chunk + 1) * chunk_tokens_;
    if (kind == GroupKind::state) {
        // The engine goes on from a state in place: it is that of the boundary where the step ends there, or where it
        // was left behind by this step. A block from before this step may hold what lies between two boundaries.
        const std::size_t block = end / groups_[group].plan.block_tokens - 1;
        const bool ends_there = what.computed_tokens + what.scheduled_tokens == end;
        if (what.draft_tokens > 0 || (!ends_there && block < request.appended_from[group])) return false;
    }
    if (end > request.resident_tokens) return true;
    // What the engine had itself was offered when it was computed. Full attention is copied again where a lookup has
    // shown a gap.
    if (kind != GroupKind::full) return false;
    request.hole = request.hole || belief.has_value();
    return request.hole;
}

void SchedulerHalf::end_incarnation(Request& request) {
    if (request.incarnation != 0) step_.ended.push_back(request.incarnation);
    request.incarnation = 0;
    request.blocks.clear();
}

void SchedulerHalf::preempted(const std::string& id) {
    const auto found = requests_.find(id);
    if (found == requests_.end()) return;
    end_incarnation(found->second);
}

void SchedulerHalf::finish(const std::string& id) {
    auto node = requests_.extract(id);
    if (node.empty()) return;
    end_lookup(node.mapped());
    end_incarnation(node.mapped());
    loaded_waiting_.erase(id);
    failed_waiting_.erase(id);
}

std::string SchedulerHalf::build_step() {
    name_space_.tend();
    if (step_.idle()) return {};
    ++step_.sequence;
    step_.name_space = name_space_.digest();
    std::string bytes = step_.encode();
    step_.ended.clear();
    step_.loads.clear();
    step_.stores.clear();
    return bytes;
}

std::string SchedulerHalf::explain(const std::string& id) const {
    const auto found = requests_.find(id);
    if (found == requests_.end()) return {};
    const Request& request = found->second;
    const bool all = request.found_end >= request.chunks.size() && request.settled;
    return fmt::format(
        "request {}: {} full chunks of {} tokens, engine had {} tokens, found {}, loaded {}, offered {} chunks{}", id,
        request.chunks.size(), chunk_tokens_, request.local_tokens, request.matched_tokens, request.loaded_tokens,
        request.offered_chunks,
        all || request.chunks.empty()
            ? std::string()
            : fmt::format("; not more because: {}", miss_names[static_cast<std::size_t>(request.why)]));
}

}  // namespace kvern
