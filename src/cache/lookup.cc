// SPDX-License-Identifier: Apache-2.0
#include "cache/lookup.h"

#include <poll.h>

#include <algorithm>

namespace kvern {
namespace {

constexpr std::size_t probes_per_round = 32;

// A tag holds the lookup's number (32 bit), the part (8) and the chunk (24).
constexpr unsigned chunk_bits = 24;
constexpr std::size_t chunks_max = std::size_t{1} << chunk_bits;

std::uint64_t make_tag(std::uint64_t id, unsigned part, std::size_t chunk) {
    return id << 32 | std::uint64_t{part} << chunk_bits | chunk;
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

void Lookups::configure(std::string namespace_hex, std::span<const Group> groups) {
    namespace_hex_ = std::move(namespace_hex);
    pending_.clear();
    parts_.assign(1, Part{0, {}});  // part 0 is there even where no group has full attention: then it asks for nothing
    part_of_group_.clear();
    for (std::uint32_t group = 0; group < groups.size(); ++group) {
        const std::uint32_t trailing = groups[group].plan.trailing_chunks();
        auto part = std::find_if(parts_.begin(), parts_.end(),
                                 [&](const Part& known) { return known.trailing_chunks == trailing; });
        if (part == parts_.end()) part = parts_.insert(parts_.end(), Part{trailing, {}});
        part_of_group_.push_back(static_cast<unsigned>(part - parts_.begin()));
        for (const std::string& shard : groups[group].shard_texts) part->objects.emplace_back(group, shard);
    }
}

std::uint64_t Lookups::start(std::span<const ChunkId> chunks) {
    const std::uint64_t id = next_id_++;
    Pending& pending = pending_[id];
    chunks = chunks.first(std::min(chunks.size(), chunks_max));
    pending.chunks.assign(chunks.begin(), chunks.end());
    pending.upper = chunks.size();
    for (unsigned part = 0; part < parts_.size(); ++part) {
        Column& column = pending.columns.emplace_back();
        column.seen.assign(chunks.size(), parts_[part].objects.empty() ? Seen::present : Seen::unknown);
        column.missing.assign(chunks.size(), 0);
        for (std::size_t i = 0; i < pending.upper; ++i) {
            const auto belief = presence_.find(chunks[i].hash, part);
            if (belief) column.seen[i] = *belief == Belief::present ? Seen::present : Seen::absent;
            if (part == 0 && belief && *belief != Belief::present)
                pending.upper = i;  // nothing behind a known gap can be part of the prefix
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
    if (found == pending_.end()) return {true, 0, 0, {}};
    const Pending& pending = found->second;
    const std::size_t prefix = proven_prefix(pending);
    return {pending.outstanding == 0, proven_boundary(pending, prefix), prefix, pending.error};
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

void Lookups::ask(std::uint64_t id, Pending& pending, unsigned part, std::span<const std::size_t> chunks) {
    ops_.clear();
    Column& column = pending.columns[part];
    for (const std::size_t chunk : chunks) {
        column.seen[chunk] = Seen::asked;
        column.missing[chunk] = static_cast<std::uint16_t>(parts_[part].objects.size());
        for (const auto& [group, shard] : parts_[part].objects) {
            Op& op = ops_.emplace_back();
            op.kind = OpKind::stat;
            op.tag = make_tag(id, part, chunk);
            op.key = object_key(namespace_hex_, pending.chunks[chunk], group, shard);
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
    const std::size_t chunk = completion.tag & (chunks_max - 1);
    const auto part = static_cast<unsigned>(completion.tag >> chunk_bits & 0xff);
    Column& column = pending.columns[part];
    const Outcome& outcome = completion.outcome;
    --pending.outstanding;
    if (outcome.status == Status::ok) {
        if (--column.missing[chunk] == 0 && column.seen[chunk] == Seen::asked) {
            column.seen[chunk] = Seen::present;
            presence_.note(pending.chunks[chunk].hash, part, Belief::present);
        }
    } else {
        column.seen[chunk] = Seen::absent;
        // Only a real miss is remembered: a busy or broken store says nothing about the data.
        if (outcome.status == Status::miss)
            presence_.note(pending.chunks[chunk].hash, part, Belief::absent);
        else
            pending.error = outcome.error.message;
    }
    if (pending.outstanding == 0) advance(id, pending);
}

std::size_t Lookups::proven_prefix(const Pending& pending) const {
    const std::vector<Seen>& seen = pending.columns[0].seen;
    const auto gap = std::find_if(seen.begin() + static_cast<std::ptrdiff_t>(pending.lower), seen.end(),
                                  [](Seen state) { return state != Seen::present; });
    return static_cast<std::size_t>(gap - seen.begin());
}

std::size_t Lookups::proven_boundary(const Pending& pending, std::size_t prefix) const {
    // For each other part: the length of the run of present chunks that ends at a boundary must cover what it needs.
    std::size_t best = 0;
    std::vector<std::size_t> runs(parts_.size(), 0);
    if (parts_.size() == 1) return prefix;
    for (std::size_t boundary = 1; boundary <= prefix; ++boundary) {
        bool served = true;
        for (std::size_t part = 1; part < parts_.size(); ++part) {
            runs[part] = pending.columns[part].seen[boundary - 1] == Seen::present ? runs[part] + 1 : 0;
            served = served && runs[part] >= std::min<std::size_t>(boundary, parts_[part].trailing_chunks);
        }
        if (served) best = boundary;
    }
    return best;
}

void Lookups::advance(std::uint64_t id, Pending& pending) {
    if (cheap_stat_ || pending.chunks.size() <= probes_per_round)
        advance_scan(id, pending);
    else
        advance_search(id, pending);
    if (parts_.size() > 1) advance_trailing(id, pending);
}

void Lookups::advance_scan(std::uint64_t id, Pending& pending) {
    // Rounds 0 and 1: the first chunks, then the rest, in each case only what nobody has an answer for.
    while (pending.outstanding == 0 && pending.round < 2) {
        const std::size_t from = pending.round == 0 ? 0 : std::min(pending.upper, limits::lookup_first_chunks);
        const std::size_t to =
            pending.round == 0 ? std::min(pending.upper, limits::lookup_first_chunks) : pending.upper;
        ++pending.round;
        if (proven_prefix(pending) < from) return;
        std::vector<std::size_t> chunks;
        for (std::size_t i = from; i < to; ++i)
            if (pending.columns[0].seen[i] == Seen::unknown) chunks.push_back(i);
        ask(id, pending, 0, chunks);
    }
}

void Lookups::advance_search(std::uint64_t id, Pending& pending) {
    while (pending.outstanding == 0 && pending.round < 2 && pending.lower < pending.upper) {
        if (pending.round > 0) {
            // Narrow to between the last probe that is there and the first that is not.
            std::size_t first_absent = pending.upper;
            for (std::size_t i = pending.lower; i < pending.upper; ++i) {
                if (pending.columns[0].seen[i] == Seen::present) pending.lower = i + 1;
                if (pending.columns[0].seen[i] == Seen::absent) {
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
            if (pending.columns[0].seen[i] == Seen::unknown) chunks.push_back(i);
        ask(id, pending, 0, chunks);
    }
    if (pending.outstanding > 0) return;
    // What lies before a probe that is there counts as there.
    for (std::size_t i = pending.lower; i < pending.upper && pending.columns[0].seen[i] != Seen::absent; ++i)
        if (pending.columns[0].seen[i] == Seen::present) pending.lower = i + 1;
}

void Lookups::advance_trailing(std::uint64_t id, Pending& pending) {
    while (pending.outstanding == 0 && pending.trailing_round < 2) {
        const std::size_t prefix = proven_prefix(pending);
        if (proven_boundary(pending, prefix) == prefix) return;
        const std::size_t recent = prefix - std::min(prefix, probes_per_round);
        // An earlier boundary is of use only where none of the last ones is served.
        if (pending.trailing_round == 1 && proven_boundary(pending, prefix) > recent) return;
        const std::size_t from = pending.trailing_round == 0 ? recent : 0;
        ++pending.trailing_round;
        for (unsigned part = 1; part < parts_.size(); ++part) {
            std::vector<std::size_t> chunks;
            for (std::size_t i = from; i < prefix; ++i)
                if (pending.columns[part].seen[i] == Seen::unknown) chunks.push_back(i);
            ask(id, pending, part, chunks);
        }
    }
}

}  // namespace kvern
