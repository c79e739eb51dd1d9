// SPDX-License-Identifier: Apache-2.0
#include "engine/saver.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "base/text.h"

namespace kvern {

Saver::Saver(Store& store, Region& staging, const WorkerMemory& memory, WorkerCounters& counters,
             const Settings& settings, const Clock& clock)
    : store_(store),
      staging_(staging),
      memory_(memory),
      settings_(settings),
      bytes_max_(
          static_cast<std::size_t>(static_cast<double>(staging.size_bytes()) * limits::store_staging_fraction_max)),
      counters_(counters),
      clock_(clock),
      breaker_(clock) {
    for (const GroupMemory& group : memory.groups) {
        layouts_.push_back(group.object_layout());
        shard_texts_.push_back(group.shard.text());
    }
}

void Saver::set_namespace(const Digest& name_space) {
    if (name_space == name_space_) return;
    name_space_ = name_space;
    in_flight_.clear();
    ++epoch_;
}

void Saver::end(std::span<const std::uint64_t> incarnations) {
    if (incarnations.empty()) return;
    const std::unordered_set<std::uint64_t> ended(incarnations.begin(), incarnations.end());
    std::erase_if(owed_, [&](const StoreJob& job) {
        if (!ended.contains(job.incarnation)) return false;
        counters_.drop(Drop::staging);
        return true;
    });
    for (const std::uint64_t incarnation : incarnations) {
        live_.erase(incarnation);
        dropped_.erase(incarnation);
    }
}

void Saver::offer(std::vector<StoreJob> jobs) {
    if (!jobs.empty()) ask_space();
    for (StoreJob& job : jobs) {
        if (job.object.group < memory_.groups.size()) {
            const GroupMemory& group = memory_.groups[job.object.group];
            if (job.object.chunk.hash.tag() % group.replicas != group.replica) continue;  // another rank's
        }
        live_.insert(job.incarnation);
        owed_.push_back(std::move(job));
    }
}

void Saver::ask_space() {
    if (settings_.min_free_percent == 0 || space_tag_ != 0) return;
    const TimePoint now = clock_.now();
    if (space_asked_ && now - *space_asked_ < limits::space_interval) return;
    space_asked_ = now;
    Op op;
    op.kind = OpKind::space;
    op.tag = space_tag_ = next_tag_++;
    store_.submit({&op, 1}, queue_);
}

void Saver::take_space(const Outcome& outcome) {
    space_tag_ = 0;
    if (outcome.status != Status::ok || outcome.space.capacity_bytes == 0) return;
    const double free =
        100.0 * static_cast<double>(outcome.space.free_bytes) / static_cast<double>(outcome.space.capacity_bytes);
    const bool full = free < settings_.min_free_percent;
    if (full != std::exchange(full_, full))
        log(full ? LogLevel::warning : LogLevel::info, "store",
            full
                ? fmt::format("only {:.1f} % of the store is free (min_free_percent {}): nothing is stored until there "
                              "is more; loads go on. See `kvern gc`",
                              free, settings_.min_free_percent)
                : fmt::format("{:.1f} % of the store is free: storing again", free));
}

void Saver::save() {
    settle();
    while (!owed_.empty() && attempt(owed_.front()) != Attempt::no_room) owed_.pop_front();
    std::erase_if(owed_, [&](const StoreJob& job) {
        if (job.fleeting) counters_.drop(Drop::staging);
        return job.fleeting;
    });
    submit();
}

void Saver::submit() {
    if (!ops_.empty()) store_.submit(ops_, queue_);
    ops_.clear();
}

Saver::Attempt Saver::attempt(const StoreJob& job) {
    const auto& [group, chunk, blocks] = job.object;
    if (dropped_.contains(job.incarnation)) {
        counters_.drop(Drop::prefix);
        return Attempt::skipped;
    }
    if (const auto under_way = in_flight_.find({chunk.hash, group}); under_way != in_flight_.end()) {
        puts_.at(under_way->second).incarnations.push_back(job.incarnation);
        return Attempt::skipped;
    }
    if (!memory_.knows(group, blocks, false)) {
        log(LogLevel::error, "store",
            fmt::format("a chunk names blocks beyond the {} that exist; not stored", memory_.num_blocks));
        drop({&job.incarnation, 1}, group, Drop::store_error);
        return Attempt::skipped;
    }
    if (full_) {
        drop({&job.incarnation, 1}, group, Drop::full);
        return Attempt::skipped;
    }
    const ObjectLayout& layout = layouts_[group];
    if (bytes_held_ + layout.object_bytes > bytes_max_) return Attempt::no_room;
    if (memory_.on_device && copying_ == settings_.device_copies_max) return Attempt::no_room;
    std::optional<Lease> lease = staging_.try_lease(layout.object_bytes);
    if (!lease) return Attempt::no_room;
    if (!breaker_.allow()) {  // asked last: its one probe must not be spent on a chunk that finds no room
        drop({&job.incarnation, 1}, group, Drop::breaker);
        return Attempt::skipped;
    }
    const GroupMemory& memory = memory_.groups[group];
    const std::uint64_t tag = next_tag_++;
    const ObjectFacts facts{
        name_space_,        chunk, group, memory.shard, memory.plan.chunk_tokens, memory.plan.block_tokens,
        memory.plan.pages()};
    bytes_held_ += lease->size_bytes();
    in_flight_[{chunk.hash, group}] = tag;
    Put& put =
        puts_.emplace(tag, Put{facts, {job.incarnation}, epoch_, std::move(*lease), memory_.on_device}).first->second;
    if (memory_.on_device) {
        ++copying_;
        copies_.push_back({tag, group, blocks, put.lease.data() + layout.header_bytes});
    } else {
        gather(memory, blocks, {put.lease.data(), layout.object_bytes}, slice_crcs_);
        seal(tag, put);
    }
    return Attempt::stored;
}

void Saver::copied(std::span<const std::uint64_t> tickets) {
    for (const std::uint64_t tag : tickets) {
        const auto found = puts_.find(tag);
        if (found == puts_.end() || !found->second.copying) continue;
        Put& put = found->second;
        const ObjectLayout& layout = layouts_[put.facts.group];
        put.copying = false;
        --copying_;
        sum_slices(layout, {put.lease.data(), layout.object_bytes}, slice_crcs_);
        seal(tag, put);
    }
    submit();
}

void Saver::seal(std::uint64_t tag, Put& put) {
    const ObjectLayout& layout = layouts_[put.facts.group];
    const std::span<std::byte> object(put.lease.data(), layout.object_bytes);
    encode_header(object, put.facts, layout, slice_crcs_);
    Op& op = ops_.emplace_back();
    op.kind = OpKind::put;
    op.tag = tag;
    op.key = object_key(to_hex(put.facts.name_space), put.facts.chunk, put.facts.group, shard_texts_[put.facts.group]);
    op.buffers = {{object.data(), object.size()}};
    op.condition = Condition::absent;
}

void Saver::drop(std::span<const std::uint64_t> incarnations, std::uint32_t group, Drop reason) {
    counters_.drop(reason);
    if (group >= memory_.groups.size() || memory_.groups[group].plan.kind != GroupKind::full) return;
    for (const std::uint64_t incarnation : incarnations)
        if (live_.contains(incarnation)) dropped_.insert(incarnation);
}

std::size_t Saver::settle() {
    if (!puts_.empty() || space_tag_ != 0)
        for (const Completion& completion : queue_.drain()) take(completion);
    return puts_.size();
}

void Saver::take(const Completion& completion) {
    if (completion.tag == space_tag_) return take_space(completion.outcome);
    const auto found = puts_.find(completion.tag);
    if (found == puts_.end()) return;
    const Put& put = found->second;
    const Outcome& outcome = completion.outcome;
    const bool exists = outcome.status == Status::failed && outcome.error.code == ErrorCode::precondition;
    if (outcome.status == Status::ok || exists) {
        breaker_.success();
        WorkerCounters::add(exists ? counters_.existing_chunks : counters_.stored_chunks);
        if (!exists) WorkerCounters::add(counters_.stored_bytes, layouts_[put.facts.group].object_bytes);
    } else {
        breaker_.failure();
        drop(put.incarnations, put.facts.group, outcome.status == Status::busy ? Drop::store_busy : Drop::store_error);
        log(LogLevel::warning, "store", fmt::format("a chunk was not stored: {}", outcome.error.message));
    }
    forget(found);
}

void Saver::forget(std::unordered_map<std::uint64_t, Put>::iterator put) {
    bytes_held_ -= put->second.lease.size_bytes();
    if (put->second.epoch == epoch_) in_flight_.erase({put->second.facts.chunk.hash, put->second.facts.group});
    puts_.erase(put);
}

std::size_t Saver::drain(std::chrono::milliseconds timeout) {
    const auto until = std::chrono::steady_clock::now() + timeout;
    while (settle() > 0) {
        const auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
        if (left.count() <= 0) break;
        queue_.wait(left);
    }
    return puts_.size();
}

}  // namespace kvern
