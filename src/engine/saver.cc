// SPDX-License-Identifier: Apache-2.0
#include "engine/saver.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "base/text.h"

namespace kvern {

Saver::Saver(Store& store, Region& staging, const WorkerMemory& memory, WorkerCounters& counters, const Clock& clock)
    : store_(store),
      staging_(staging),
      memory_(memory),
      layout_(memory.object_layout()),
      shard_text_(memory.shard.text()),
      bytes_max_(
          static_cast<std::size_t>(static_cast<double>(staging.size_bytes()) * limits::store_staging_fraction_max)),
      counters_(counters),
      breaker_(clock) {}

void Saver::set_namespace(const Digest& name_space) {
    if (name_space == name_space_) return;
    name_space_ = name_space;
    namespace_hex_ = to_hex(name_space);
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
    for (StoreJob& job : jobs) {
        live_.insert(job.incarnation);
        owed_.push_back(std::move(job));
    }
}

void Saver::save() {
    settle();
    while (!owed_.empty() && attempt(owed_.front()) != Attempt::no_room) owed_.pop_front();
    if (!ops_.empty()) store_.submit(ops_, queue_);
    ops_.clear();
}

Saver::Attempt Saver::attempt(const StoreJob& job) {
    if (dropped_.contains(job.incarnation)) {
        counters_.drop(Drop::prefix);
        return Attempt::skipped;
    }
    if (in_flight_.contains(job.chunk.hash)) return Attempt::skipped;
    if (!memory_.knows(job.chunk.blocks, false)) {
        log(LogLevel::error, "store",
            fmt::format("a chunk names blocks beyond the {} that exist; not stored", memory_.num_blocks));
        drop(job.incarnation, Drop::store_error);
        return Attempt::skipped;
    }
    if (bytes_held_ + layout_.object_bytes > bytes_max_) return Attempt::no_room;
    std::optional<Lease> lease = staging_.try_lease(layout_.object_bytes);
    if (!lease) return Attempt::no_room;
    if (!breaker_.allow()) {  // asked last: its one probe must not be spent on a chunk that finds no room
        drop(job.incarnation, Drop::breaker);
        return Attempt::skipped;
    }
    seal(job, std::move(*lease));
    return Attempt::stored;
}

void Saver::seal(const StoreJob& job, Lease lease) {
    const std::span<std::byte> object(lease.data(), layout_.object_bytes);
    gather(memory_, job.chunk.blocks, object, slice_crcs_);
    const ObjectFacts facts{name_space_, job.chunk.hash, 0, memory_.shard, memory_.chunk_tokens, memory_.block_tokens};
    encode_header(object, facts, layout_, slice_crcs_);
    Op& op = ops_.emplace_back();
    op.kind = OpKind::put;
    op.tag = next_tag_++;
    op.key = object_key(namespace_hex_, job.chunk.hash, facts.group, shard_text_);
    op.buffers = {{object.data(), object.size()}};
    op.condition = Condition::absent;
    bytes_held_ += lease.size_bytes();
    in_flight_.insert(job.chunk.hash);
    puts_.emplace(op.tag, Put{job.chunk.hash, job.incarnation, epoch_, std::move(lease)});
}

void Saver::drop(std::uint64_t incarnation, Drop reason) {
    counters_.drop(reason);
    if (live_.contains(incarnation)) dropped_.insert(incarnation);
}

std::size_t Saver::settle() {
    if (!puts_.empty())
        for (const Completion& completion : queue_.drain()) take(completion);
    return puts_.size();
}

void Saver::take(const Completion& completion) {
    const auto found = puts_.find(completion.tag);
    if (found == puts_.end()) return;
    Put& put = found->second;
    const Outcome& outcome = completion.outcome;
    const bool exists = outcome.status == Status::failed && outcome.error.code == ErrorCode::precondition;
    if (outcome.status == Status::ok || exists) {
        breaker_.success();
        WorkerCounters::add(exists ? counters_.existing_chunks : counters_.stored_chunks);
        if (!exists) WorkerCounters::add(counters_.stored_bytes, layout_.object_bytes);
    } else {
        breaker_.failure();
        drop(put.incarnation, outcome.status == Status::busy ? Drop::store_busy : Drop::store_error);
        log(LogLevel::warning, "store", fmt::format("a chunk was not stored: {}", outcome.error.message));
    }
    bytes_held_ -= put.lease.size_bytes();
    if (put.epoch == epoch_) in_flight_.erase(put.hash);
    puts_.erase(found);
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
