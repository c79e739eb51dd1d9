// SPDX-License-Identifier: Apache-2.0
#include "cache/lookup.h"

#include <poll.h>

#include <algorithm>

namespace kvern {
namespace {

constexpr std::size_t probes_per_round = 32;

// A tag holds the lookup's number and the chunk's; both are 32 bit.
std::uint64_t make_tag(std::uint64_t id, std::size_t chunk) {
    return id << 32 | chunk;
}

// At most `probes_per_round` positions of (lower, upper), evenly spread, ascending, the last one included.
std::vector<std::size_t> spread(std::size_t lower, std::size_t upper) {
    std::vector<std::size_t> positions;
    const std::size_t count = std::min(probes_per_round, upper - lower);
    for (std::size_t i = 1; i <= count; ++i) positions.push_back(lower + (upper - lower) * i / count - 1);
    return positions;
}

}  // namespace

Lookups::Lookups(Store& store, Presence& presence)
    : store_(store),
      presence_(presence),
      cheap_stat_(store.capabilities().cheap_stat),
      queue_(std::make_unique<CompletionQueue>()) {}

Lookups::~Lookups() = default;

void Lookups::configure(std::string namespace_hex, std::uint32_t group, std::vector<std::string> shard_texts) {
    namespace_hex_ = std::move(namespace_hex);
    group_ = group;
    shard_texts_ = std::move(shard_texts);
    pending_.clear();
}

std::uint64_t Lookups::start(std::span<const ChunkHash> hashes) {
    const std::uint64_t id = next_id_++;
    Pending& pending = pending_[id];
    pending.hashes.assign(hashes.begin(), hashes.end());
    pending.seen.assign(hashes.size(), Seen::unknown);
    pending.missing_shards.assign(hashes.size(), 0);
    pending.upper = hashes.size();
    for (std::size_t i = 0; i < hashes.size(); ++i) {
        const auto belief = presence_.find(hashes[i]);
        if (belief) pending.seen[i] = *belief == Belief::present ? Seen::present : Seen::absent;
        if (belief && *belief != Belief::present) {
            pending.upper = i;  // nothing behind a known gap can be part of the prefix
            break;
        }
    }
    advance(id, pending);
    return id;
}

void Lookups::cancel(std::uint64_t id) {
    pending_.erase(id);
}

Lookups::Answer Lookups::poll(std::uint64_t id) {
    drain();
    const auto found = pending_.find(id);
    if (found == pending_.end()) return {true, 0, {}};
    const Pending& pending = found->second;
    return {pending.outstanding == 0, proven(pending), pending.error};
}

Lookups::Answer Lookups::wait_for(std::uint64_t id, std::chrono::microseconds timeout) {
    const auto until = std::chrono::steady_clock::now() + timeout;
    for (;;) {
        const Answer answer = poll(id);
        const auto left = until - std::chrono::steady_clock::now();
        if (answer.done || left.count() <= 0) return answer;
        // In nanoseconds, since the wait is shorter than poll(2)'s unit.
        const timespec time{left / std::chrono::seconds(1),
                            std::chrono::nanoseconds(left % std::chrono::seconds(1)).count()};
        pollfd fd{queue_->event_fd(), POLLIN, 0};
        ::ppoll(&fd, 1, &time, nullptr);
    }
}

void Lookups::ask(std::uint64_t id, Pending& pending, std::span<const std::size_t> chunks) {
    ops_.clear();
    for (const std::size_t chunk : chunks) {
        pending.seen[chunk] = Seen::asked;
        pending.missing_shards[chunk] = static_cast<std::uint16_t>(shard_texts_.size());
        for (const std::string& shard : shard_texts_) {
            Op& op = ops_.emplace_back();
            op.kind = OpKind::stat;
            op.tag = make_tag(id, chunk);
            op.key = object_key(namespace_hex_, pending.hashes[chunk], group_, shard);
        }
    }
    pending.outstanding += ops_.size();
    if (!ops_.empty()) store_.submit(ops_, *queue_);
}

void Lookups::drain() {
    for (const Completion& completion : queue_->drain()) take(completion);
}

void Lookups::take(const Completion& completion) {
    const std::uint64_t id = completion.tag >> 32;
    const auto found = pending_.find(id);
    if (found == pending_.end()) return;  // cancelled meanwhile
    Pending& pending = found->second;
    const std::size_t chunk = completion.tag & 0xffffffffu;
    const Outcome& outcome = completion.outcome;
    --pending.outstanding;
    if (outcome.status == Status::ok) {
        if (--pending.missing_shards[chunk] == 0 && pending.seen[chunk] == Seen::asked) {
            pending.seen[chunk] = Seen::present;
            presence_.note(pending.hashes[chunk], Belief::present);
        }
    } else {
        pending.seen[chunk] = Seen::absent;
        // Only a real miss is remembered: a busy or broken store says nothing about the data.
        if (outcome.status == Status::miss)
            presence_.note(pending.hashes[chunk], Belief::absent);
        else
            pending.error = outcome.error.message;
    }
    if (pending.outstanding == 0) advance(id, pending);
}

std::size_t Lookups::proven(const Pending& pending) {
    const auto gap = std::find_if(pending.seen.begin() + static_cast<std::ptrdiff_t>(pending.lower), pending.seen.end(),
                                  [](Seen seen) { return seen != Seen::present; });
    return static_cast<std::size_t>(gap - pending.seen.begin());
}

void Lookups::advance(std::uint64_t id, Pending& pending) {
    if (cheap_stat_ || pending.hashes.size() <= probes_per_round)
        advance_scan(id, pending);
    else
        advance_search(id, pending);
}

void Lookups::advance_scan(std::uint64_t id, Pending& pending) {
    // Rounds 0 and 1: the first chunks, then the rest, in each case only what nobody has an answer for.
    while (pending.outstanding == 0 && pending.round < 2) {
        const std::size_t from = pending.round == 0 ? 0 : std::min(pending.upper, limits::lookup_first_chunks);
        const std::size_t to =
            pending.round == 0 ? std::min(pending.upper, limits::lookup_first_chunks) : pending.upper;
        ++pending.round;
        if (proven(pending) < from) return;
        std::vector<std::size_t> chunks;
        for (std::size_t i = from; i < to; ++i)
            if (pending.seen[i] == Seen::unknown) chunks.push_back(i);
        ask(id, pending, chunks);
    }
}

void Lookups::advance_search(std::uint64_t id, Pending& pending) {
    while (pending.outstanding == 0 && pending.round < 2 && pending.lower < pending.upper) {
        if (pending.round > 0) {
            // Narrow to between the last probe that is there and the first that is not.
            std::size_t first_absent = pending.upper;
            for (std::size_t i = pending.lower; i < pending.upper; ++i) {
                if (pending.seen[i] == Seen::present) pending.lower = i + 1;
                if (pending.seen[i] == Seen::absent) {
                    first_absent = i;
                    break;
                }
            }
            pending.upper = first_absent;
        }
        ++pending.round;
        if (pending.lower >= pending.upper) return;
        std::vector<std::size_t> chunks;
        for (const std::size_t i : spread(pending.lower, pending.upper))
            if (pending.seen[i] == Seen::unknown) chunks.push_back(i);
        ask(id, pending, chunks);
    }
    if (pending.outstanding > 0) return;
    // What lies before a probe that is there counts as there.
    for (std::size_t i = pending.lower; i < pending.upper && pending.seen[i] != Seen::absent; ++i)
        if (pending.seen[i] == Seen::present) pending.lower = i + 1;
}

}  // namespace kvern
