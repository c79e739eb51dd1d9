// SPDX-License-Identifier: Apache-2.0
// How the scheduler half comes to its store, its workers and its namespace; the rest of it is in scheduler_half.cc.
#include "engine/scheduler_half.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "engine/worker_half.h"

namespace kvern {
namespace {

std::string random_hex(std::size_t bytes) {
    std::random_device device;
    std::string text;
    for (std::size_t i = 0; i < bytes; i += 4) text += fmt::format("{:08x}", device());
    return text;
}

}  // namespace

Result<std::unique_ptr<SchedulerHalf>> SchedulerHalf::create(const Options& options, const Clock& clock) {
    auto store = open_store(options.store);
    if (!store) {
        store.error().message = fmt::format("option store: {}", store.error().message);
        return tl::unexpected(store.error());
    }
    return std::make_unique<SchedulerHalf>(options, std::move(*store), clock);
}

SchedulerHalf::SchedulerHalf(const Options& options, std::unique_ptr<Store> store, const Clock& clock)
    : options_(options),
      clock_(clock),
      store_(std::move(store)),
      presence_(clock),
      lookups_(*store_, presence_),
      breaker_(clock),
      name_space_(*store_, clock, options.mode != Mode::read_only) {}

SchedulerHalf::~SchedulerHalf() {
    if (!store_->close(limits::close_wait)) name_space_.abandon();
}

Result<void> SchedulerHalf::announce(std::string_view engine_id) {
    if (options_.mode == Mode::read_only) return {};
    nonce_key_ = nonce_key(engine_id);
    nonce_ = random_hex(16);
    Op op;
    op.kind = OpKind::put;
    op.key = nonce_key_;
    const auto written = std::make_shared<std::string>(nonce_);
    op.buffers = {{reinterpret_cast<std::byte*>(written->data()), written->size()}};
    const Outcome outcome = run(*store_, std::move(op), limits::answer_wait, written);
    if (outcome.status == Status::ok) return {};
    if (outcome.error.code == ErrorCode::unavailable)
        return fail(ErrorCode::unavailable, fmt::format("option store: {}", outcome.error.message));
    return fail(outcome.error.code,
                fmt::format("option store: '{}' can't be written ({}); give this user the right to write "
                            "there, or set mode to read_only",
                            options_.store, outcome.error.message));
}

Result<void> SchedulerHalf::check_workers(std::span<const Geometry> workers) const {
    if (workers.empty() || workers.front().groups.empty())
        return fail(ErrorCode::internal, "no worker said what it holds; the engine's handshake did not reach Kvern");
    const Geometry& first = workers.front();
    for (const Geometry& worker : workers) {
        if (options_.mode != Mode::read_only && worker.nonce != nonce_)
            return fail(
                ErrorCode::invalid_argument,
                fmt::format("option store: rank {} does not see what the scheduler wrote to '{}'; it must be the same "
                            "shared directory on every host",
                            worker.rank, options_.store));
        const auto same_plan = [](const GroupGeometry& a, const GroupGeometry& b) { return a.plan == b.plan; };
        if (worker.identity != first.identity || !std::equal(worker.groups.begin(), worker.groups.end(),
                                                             first.groups.begin(), first.groups.end(), same_plan))
            return fail(
                ErrorCode::invalid_argument,
                fmt::format("ranks {} and {} pack KV differently (engine version, backend, CPU or layout); their "
                            "hosts must be alike",
                            first.rank, worker.rank));
    }
    return {};
}

Result<void> SchedulerHalf::configure(std::span<const Geometry> workers) {
    const auto checked = check_workers(workers);
    if (!nonce_key_.empty()) {
        Op op;
        op.kind = OpKind::remove;
        op.key = nonce_key_;
        run(*store_, std::move(op), limits::answer_wait);
    }
    if (!checked) return checked;
    auto identity = Identity::from_json(workers.front().identity);
    if (!identity) return tl::unexpected(identity.error());
    identity_ = std::move(*identity);
    identity_.tenant = options_.tenant;
    const std::vector<GroupGeometry>& first = workers.front().groups;
    chunk_tokens_ = identity_.chunk_tokens = first.front().plan.chunk_tokens;
    for (std::size_t group = 0; group < first.size(); ++group) {
        std::vector<Shard> shards;
        for (const Geometry& worker : workers) shards.push_back(worker.groups[group].shard);
        std::sort(shards.begin(), shards.end());
        shards.erase(std::unique(shards.begin(), shards.end()), shards.end());  // equal shards are one object
        Lookups::Group& known = groups_.emplace_back();
        known.plan = first[group].plan;
        for (const Shard& shard : shards) known.shard_texts.push_back(shard.text());
        has_state_ |= known.plan.kind == GroupKind::state;
    }
    for (const Geometry& worker : workers)
        num_blocks_ = num_blocks_ == 0 ? worker.num_blocks : std::min<std::uint64_t>(num_blocks_, worker.num_blocks);
    whole_loads_ = groups_.size() > 1 || groups_.front().plan.kind != GroupKind::full;
    return {};
}

Result<void> SchedulerHalf::open(std::string model, std::string label, std::string hash_seed,
                                 std::uint64_t hash_block_tokens) {
    if (groups_.empty()) return fail(ErrorCode::internal, "no worker said what it holds");
    if (hash_block_tokens == 0 || chunk_tokens_ % hash_block_tokens != 0)
        return fail(
            ErrorCode::invalid_argument,
            fmt::format("option chunk_tokens: {} is no multiple of the {} tokens that the engine hashes at a time",
                        chunk_tokens_, hash_block_tokens));
    hash_block_tokens_ = hash_block_tokens;
    identity_.model = std::move(model);
    identity_.hash_seed = std::move(hash_seed);
    label_ = std::move(label);
    open_ = true;
    open_namespace();
    return {};
}

void SchedulerHalf::open_namespace() {
    name_space_.open(identity_, label_);
    presence_.clear();
    lookups_.configure(name_space_.hex(), groups_);
}

void SchedulerHalf::reset() {
    if (!options_.epoch_on_reset) return;
    identity_.epoch = random_hex(8);
    if (!open_) return;  // the namespace is opened at the first request, then already in the new epoch
    for (auto& [id, request] : requests_) {
        request.lookup = 0;  // lookups_.configure() ends them all
        request.settled = false;
        request.first_asked.reset();
        end_incarnation(request);  // what runs on was computed before the reset: not stored until it starts afresh
    }
    for (auto& [id, load] : loads_) load.outdated = true;
    step_.stores.clear();
    open_namespace();
}

}  // namespace kvern
