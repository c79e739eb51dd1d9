// SPDX-License-Identifier: Apache-2.0
#include "keep/collect.h"

#include <algorithm>

#include "keep/forest.h"

namespace kvern {
namespace {

using std::chrono::nanoseconds;

// Whether the version that was listed is still there, and was not used since.
bool is_as_listed(const StoredObject& object, const Stat& stat) {
    return stat.size_bytes == object.size_bytes && stat.mtime_ns == object.mtime_ns &&
           etag_digest(stat.etag) == object.etag_digest;
}

Op remove_op(std::string key, std::string etag) {
    Op op;
    op.kind = OpKind::remove;
    op.key = std::move(key);
    op.condition = Condition::etag;
    op.etag = std::move(etag);
    return op;
}

class Round {
  public:
    Round(Client& client, const CollectPlan& plan, Catalogue&& catalogue, Space space)
        : client_(client),
          plan_(plan),
          catalogue_(std::move(catalogue)),
          forest_(grow_forest(catalogue_)),
          now_ns_(plan.clock->now_ns()) {
        report_.space = space;
        report_.foreign = catalogue_.foreign;
        report_.found = {catalogue_.chunks.size(), catalogue_.objects.size(), catalogue_.bytes};
        namespace_chunks_.reserve(catalogue_.namespaces.size());
        for (const auto& one : catalogue_.namespaces) namespace_chunks_.push_back(one.chunks);
        stays_.resize(catalogue_.chunks.size());
    }

    Result<CollectReport> run();

  private:
    // An object of a batch, and what has become of it.
    struct Candidate {
        std::uint32_t chunk = 0;
        std::uint32_t object = 0;
        enum class Fate : std::uint8_t { listed, as_listed, removed, gone, in_use, failed } fate = Fate::listed;
        std::string etag;
    };
    using Fate = Candidate::Fate;

    void set_targets();
    bool too_old(std::uint32_t chunk) const;
    bool wanted(std::uint32_t chunk, std::uint64_t planned_bytes) const;
    std::uint64_t freed_bytes() const { return report_.removed.bytes + report_.gone.bytes; }

    Result<void> evict();
    std::vector<Candidate> next_batch();
    Result<void> look_again(std::vector<Candidate>& batch);
    Result<void> remove(std::vector<Candidate>& batch);
    void decide(std::vector<Candidate>& batch);
    void account(const std::vector<Candidate>& batch);
    void keep_with_ancestors(std::uint32_t chunk);
    void fail(const Op& op, const Outcome& outcome);

    Result<void> remove_start_notes();
    Result<void> remove_empty_namespaces();
    Result<void> mark_used(const StoredNamespace& space);
    Result<bool> remove_namespace(const StoredNamespace& space);
    bool is_old(const std::optional<Entry>& entry, std::chrono::milliseconds age) const {
        return !entry || now_ns_ - entry->mtime_ns > nanoseconds(age).count();
    }
    // Removes the version listed; false if something else is there, or it failed.
    Result<bool> remove_entry(const Entry& entry);
    void tell() const {
        if (plan_.progress) plan_.progress({catalogue_.objects.size(), report_.removed.objects});
    }

    Client& client_;
    const CollectPlan& plan_;
    const Catalogue catalogue_;
    const Forest forest_;
    const std::int64_t now_ns_;
    CollectReport report_;
    std::uint64_t to_free_bytes_ = 0;
    std::int64_t oldest_use_ns_ = 0;  // older chunks go whatever there is room for
    std::vector<std::uint32_t> order_;
    std::size_t next_ = 0;  // in order_
    std::vector<bool> stays_;
    std::vector<std::uint32_t> namespace_chunks_;  // left in each
};

Result<CollectReport> Round::run() {
    set_targets();
    for (const auto step : {&Round::evict, &Round::remove_empty_namespaces, &Round::remove_start_notes}) {
        if (report_.interrupted) break;
        if (auto done = (this->*step)(); !done) {
            if (done.error().code != ErrorCode::cancelled) return tl::unexpected(done.error());
            report_.interrupted = true;
        }
    }
    report_.limits_hold = freed_bytes() >= to_free_bytes_ && report_.failed_objects == 0 && !report_.interrupted;
    return report_;
}

void Round::set_targets() {
    const auto& limits = plan_.limits;
    if (limits.bytes_max && report_.found.bytes > *limits.bytes_max) {
        to_free_bytes_ = report_.found.bytes - *limits.bytes_max;
    }
    if (limits.free_percent_min) {
        const auto wanted = static_cast<std::uint64_t>(static_cast<double>(report_.space.capacity_bytes) *
                                                       static_cast<double>(*limits.free_percent_min) / 100);
        if (wanted > report_.space.free_bytes) {
            to_free_bytes_ = std::max(to_free_bytes_, wanted - report_.space.free_bytes);
        }
    }
    if (limits.age_max) {
        oldest_use_ns_ = now_ns_ - nanoseconds(std::max(*limits.age_max, limits::collect_grace)).count();
    }
    order_ = eviction_order(forest_);
}

bool Round::too_old(std::uint32_t chunk) const {
    return forest_.use_ns[chunk] < oldest_use_ns_;
}

bool Round::wanted(std::uint32_t chunk, std::uint64_t planned_bytes) const {
    return freed_bytes() + planned_bytes < to_free_bytes_ || too_old(chunk);
}

Result<void> Round::evict() {
    for (;;) {
        if (client_.stopped()) return kvern::fail(ErrorCode::cancelled, "interrupted");
        auto batch = next_batch();
        if (batch.empty()) return {};
        if (plan_.dry_run) {
            for (auto& one : batch) one.fate = Fate::removed;
        } else {
            if (auto done = look_again(batch); !done) return done;
            decide(batch);
            if (auto done = remove(batch); !done) return done;
        }
        account(batch);
        tell();
    }
}

// Objects of the next chunks in the order, as far as the limits want them gone.
std::vector<Round::Candidate> Round::next_batch() {
    std::vector<Candidate> batch;
    std::uint64_t planned_bytes = 0;
    for (; next_ < order_.size() && batch.size() < limits::collect_batch_objects; ++next_) {
        const auto index = order_[next_];
        if (!wanted(index, planned_bytes)) break;
        if (stays_[index]) continue;
        const auto& chunk = catalogue_.chunks[index];
        planned_bytes += catalogue_.bytes_of(chunk);
        for (std::uint32_t i = 0; i < chunk.objects; ++i) batch.push_back({index, chunk.first_object + i, {}, {}});
    }
    return batch;
}

Result<void> Round::look_again(std::vector<Candidate>& batch) {
    std::vector<Op> ops(batch.size());
    for (std::size_t i = 0; i < batch.size(); ++i) {
        ops[i].kind = OpKind::stat;
        ops[i].key = catalogue_.key_of(catalogue_.chunks[batch[i].chunk], catalogue_.objects[batch[i].object]);
    }
    auto outcomes = client_.call(ops);
    if (!outcomes) return tl::unexpected(outcomes.error());
    for (std::size_t i = 0; i < batch.size(); ++i) {
        auto& outcome = (*outcomes)[i];
        auto& one = batch[i];
        if (outcome.status == Status::miss) {
            one.fate = Fate::gone;
        } else if (outcome.status != Status::ok) {
            one.fate = Fate::failed;
            fail(ops[i], outcome);
        } else {
            one.fate = is_as_listed(catalogue_.objects[one.object], outcome.stat) ? Fate::as_listed : Fate::in_use;
            one.etag = std::move(outcome.stat.etag);
        }
    }
    return {};
}

// A chunk of which anything was used, or could not be looked at, stays, with its ancestors. These stand behind it, in
// this batch or a later one.
void Round::decide(std::vector<Candidate>& batch) {
    for (const auto& one : batch) {
        if (one.fate == Fate::in_use || one.fate == Fate::failed) keep_with_ancestors(one.chunk);
    }
    for (auto& one : batch) {
        if (stays_[one.chunk] && one.fate == Fate::as_listed) one.fate = Fate::in_use;
    }
}

void Round::keep_with_ancestors(std::uint32_t chunk) {
    for (; chunk != no_chunk && !stays_[chunk]; chunk = forest_.parent[chunk]) stays_[chunk] = true;
}

Result<void> Round::remove(std::vector<Candidate>& batch) {
    std::vector<Op> ops;
    std::vector<std::size_t> whose;
    for (std::size_t i = 0; i < batch.size(); ++i) {
        auto& one = batch[i];
        if (one.fate != Fate::as_listed) continue;
        ops.push_back(remove_op(catalogue_.key_of(catalogue_.chunks[one.chunk], catalogue_.objects[one.object]),
                                std::move(one.etag)));
        whose.push_back(i);
    }
    auto outcomes = client_.call(ops);
    if (!outcomes) return tl::unexpected(outcomes.error());
    for (std::size_t i = 0; i < whose.size(); ++i) {
        const auto& outcome = (*outcomes)[i];
        auto& one = batch[whose[i]];
        if (outcome.status == Status::ok) {
            one.fate = Fate::removed;
        } else if (outcome.status == Status::miss) {
            one.fate = Fate::gone;
        } else {
            const bool replaced = outcome.status == Status::failed && outcome.error.code == ErrorCode::precondition;
            one.fate = replaced ? Fate::in_use : Fate::failed;
            if (!replaced) fail(ops[i], outcome);
            keep_with_ancestors(one.chunk);
        }
    }
    return {};
}

void Round::account(const std::vector<Candidate>& batch) {
    for (std::size_t begin = 0, end = 0; begin < batch.size(); begin = end) {
        bool removed = false;
        bool left = false;
        for (end = begin; end < batch.size() && batch[end].chunk == batch[begin].chunk; ++end) {
            const auto fate = batch[end].fate;
            const auto bytes = stored_bytes(catalogue_.objects[batch[end].object].size_bytes);
            if (fate == Fate::removed || fate == Fate::gone) {
                auto& amount = fate == Fate::removed ? report_.removed : report_.gone;
                ++amount.objects;
                amount.bytes += bytes;
                removed |= fate == Fate::removed;
            } else {
                left = true;
            }
        }
        const auto chunk = batch[begin].chunk;
        if (left) {
            ++report_.kept_chunks;
        } else {
            ++(removed ? report_.removed : report_.gone).chunks;
            --namespace_chunks_[catalogue_.chunks[chunk].name_space];
        }
    }
}

void Round::fail(const Op& op, const Outcome& outcome) {
    if (report_.failed_objects++ == 0) report_.first_error = explain(op, outcome);
}

Result<bool> Round::remove_entry(const Entry& entry) {
    if (plan_.dry_run) return true;
    const auto op = remove_op(entry.key, entry.etag);
    const auto outcome = client_.call(op);
    if (!outcome) return tl::unexpected(outcome.error());
    const bool precondition = outcome->status == Status::failed && outcome->error.code == ErrorCode::precondition;
    if (outcome->status == Status::busy || (outcome->status == Status::failed && !precondition)) fail(op, *outcome);
    return outcome->status == Status::ok;
}

Result<void> Round::remove_start_notes() {
    for (const auto& note : catalogue_.start_notes) {
        if (!is_old(note, limits::start_note_age_max)) continue;
        const auto removed = remove_entry(note);
        if (!removed) return tl::unexpected(removed.error());
        report_.removed_start_notes += *removed ? 1 : 0;
    }
    return {};
}

// One that has just become empty is marked as used first: an engine that stored there lately may go on to do so, and
// does not name the namespace again.
Result<void> Round::remove_empty_namespaces() {
    for (std::size_t i = 0; i < catalogue_.namespaces.size(); ++i) {
        const auto& space = catalogue_.namespaces[i];
        if (namespace_chunks_[i] > 0) continue;
        if (space.chunks > 0) {
            if (auto done = mark_used(space); !done) return done;
            continue;
        }
        if (!is_old(space.identity, limits::namespace_grace) || !is_old(space.label, limits::namespace_grace)) continue;
        const auto removed = remove_namespace(space);
        if (!removed) return tl::unexpected(removed.error());
        report_.removed_namespaces += *removed ? 1 : 0;
    }
    return {};
}

Result<void> Round::mark_used(const StoredNamespace& space) {
    for (const auto* entry : {&space.label, &space.identity}) {
        if (!*entry || plan_.dry_run) continue;
        Op op;
        op.kind = OpKind::get;
        op.key = (*entry)->key;
        op.length = 0;
        op.mark_used = true;
        if (const auto outcome = client_.call(op); !outcome) return tl::unexpected(outcome.error());
    }
    return {};
}

// The two files that say what the namespace is, if nothing else is there by now.
Result<bool> Round::remove_namespace(const StoredNamespace& space) {
    if (!space.identity && !space.label) return false;
    if (plan_.dry_run) return true;
    Op list;
    list.kind = OpKind::list;
    list.key = space.hex + "/";
    list.limit = 3;
    const auto left = client_.call(list);
    if (!left) return tl::unexpected(left.error());
    for (const auto& entry : left->entries) {
        if (entry.key != identity_key(space.hex) && entry.key != label_key(space.hex)) return false;
    }
    if (left->status != Status::ok) return false;
    for (const auto* entry : {&space.label, &space.identity}) {
        if (!*entry) continue;
        const auto removed = remove_entry(**entry);
        if (!removed) return removed;
        if (!*removed) return false;
    }
    return true;
}

}  // namespace

Result<CollectReport> collect(Client& client, const CollectPlan& plan) {
    auto catalogue = read_catalogue(client, plan.namespace_prefix, [&](std::uint64_t keys) {
        if (plan.progress) plan.progress({keys, 0});
    });
    if (!catalogue) return tl::unexpected(catalogue.error());
    Op op;
    op.kind = OpKind::space;
    const auto space = client.call(op);
    if (!space) return tl::unexpected(space.error());
    // Where nobody asked for free space, a store that can't tell its own does no harm.
    if (space->status != Status::ok && plan.limits.free_percent_min) {
        return fail(space->error.code, explain(op, *space));
    }
    return Round(client, plan, std::move(*catalogue), space->space).run();
}

}  // namespace kvern
