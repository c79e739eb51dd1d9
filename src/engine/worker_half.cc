// SPDX-License-Identifier: Apache-2.0
#include "engine/worker_half.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "base/text.h"

namespace kvern {
namespace {

Result<std::shared_ptr<Region>> take_staging(const Options& options, const WorkerMemory& memory,
                                             unsigned ranks_on_host) {
    const std::uint64_t share_bytes = (options.staging_mib << 20) / std::max(1u, ranks_on_host);
    const std::uint64_t object_bytes = memory.largest_object_bytes();
    // One chunk for a load and one for a store: less would let one of them starve the other for ever.
    if (share_bytes < 2 * object_bytes)
        return fail(
            ErrorCode::invalid_argument,
            fmt::format("option staging_mib: {} MiB for {} rank(s) on this host is too small for two chunks of {}; use "
                        "at least {}, or a smaller chunk_tokens",
                        options.staging_mib, std::max(1u, ranks_on_host), format_size(object_bytes),
                        (2 * object_bytes * std::max(1u, ranks_on_host) + (1 << 20) - 1) >> 20));
    RegionOptions region;
    region.name = "kvern-staging";
    region.size_bytes = share_bytes;
    auto staging = Region::create(region);
    if (!staging) staging.error().message = fmt::format("option staging_mib: {}", staging.error().message);
    return staging;
}

}  // namespace

std::string nonce_key(std::string_view engine_id) {
    return fmt::format("{}{}", start_notes_prefix, url_escape(engine_id));
}

Result<std::unique_ptr<WorkerHalf>> WorkerHalf::create(const Options& options, WorkerMemory memory,
                                                       unsigned ranks_on_host, const Clock& clock) {
    if (auto checked = memory.check(); !checked) return tl::unexpected(checked.error());
    // One object on its way out and one on its way in.
    if (memory.on_device && (options.gpu_staging_mib << 20) < 2 * memory.largest_object_bytes())
        return fail(ErrorCode::invalid_argument,
                    fmt::format("option gpu_staging_mib: {} MiB is too small for two chunks of {}; use at least {}, or "
                                "a smaller chunk_tokens",
                                options.gpu_staging_mib, format_size(memory.largest_object_bytes()),
                                (2 * memory.largest_object_bytes() + (1 << 20) - 1) >> 20));
    auto store = open_store(options.store);
    if (!store) {
        store.error().message = fmt::format("option store: {}", store.error().message);
        return tl::unexpected(store.error());
    }
    auto staging = take_staging(options, memory, ranks_on_host);
    if (!staging) return tl::unexpected(staging.error());
    (*store)->attach(*staging);
    return std::unique_ptr<WorkerHalf>(
        new WorkerHalf(options, std::move(memory), std::move(*store), std::move(*staging), clock));
}

WorkerHalf::WorkerHalf(const Options& options, WorkerMemory memory, std::unique_ptr<Store> store,
                       std::shared_ptr<Region> staging, const Clock& clock)
    : options_(options), memory_(std::move(memory)), staging_(std::move(staging)), store_(std::move(store)) {
    Saver::Settings saving;
    saving.device_copies_max = device_copies_max();
    saving.min_free_percent = options.min_free_percent;
    saver_ = std::make_unique<Saver>(*store_, *staging_, memory_, counters_, saving, clock);
    Loader::Settings settings;
    settings.stall = std::chrono::milliseconds(options.load_stall_ms);
    settings.may_write = options.mode != Mode::read_only;
    loader_ = std::make_unique<Loader>(*store_, staging_, memory_, counters_, settings);
}

WorkerHalf::~WorkerHalf() {
    shutdown(limits::close_wait);
}

std::string WorkerHalf::read_nonce(std::string_view engine_id) {
    auto leased = staging_->try_lease(limits::page_bytes);
    if (!leased) return {};
    const auto lease = std::make_shared<Lease>(std::move(*leased));
    Op op;
    op.kind = OpKind::get;
    op.key = nonce_key(engine_id);
    op.buffers = {{lease->data(), lease->size_bytes()}};
    const Outcome outcome = run(*store_, op, limits::answer_wait, lease);
    if (outcome.status == Status::failed) log(LogLevel::warning, "start", explain(op, outcome));
    if (outcome.status != Status::ok) return {};
    return {reinterpret_cast<const char*>(lease->data()), outcome.bytes};
}

void WorkerHalf::share_reads(std::string_view engine_id) {
    const auto& groups = memory_.groups;
    const auto first =
        std::find_if(groups.begin(), groups.end(), [](const GroupMemory& group) { return group.replicas > 1; });
    if (first == groups.end()) return;
    std::vector<bool> shared;
    for (const GroupMemory& group : groups)
        shared.push_back(group.replicas == first->replicas && group.replica == first->replica);
    auto peers = PeerReads::open(fmt::format("{} {}", engine_id, first->shard.text()), first->replica, first->replicas,
                                 staging_);
    if (!peers)
        return log(LogLevel::warning, "load", fmt::format("each rank reads for itself: {}", peers.error().message));
    loader_->share(std::move(*peers), std::move(shared));
}

Result<void> WorkerHalf::begin_step(std::string_view metadata) {
    if (metadata.empty() || closed_) return {};
    auto step = Step::decode(metadata);
    if (!step) return tl::unexpected(step.error());
    if (step->sequence == last_sequence_) return {};
    last_sequence_ = step->sequence;
    saver_->set_namespace(step->name_space);
    saver_->end(step->ended);
    loader_->submit(std::move(step->loads), step->name_space);
    if (options_.mode != Mode::read_only) saver_->offer(std::move(step->stores));
    return {};
}

void WorkerHalf::save() {
    if (!closed_) saver_->save();
}

std::size_t WorkerHalf::device_copies_max() const {
    return (options_.gpu_staging_mib << 20) / 2 / memory_.largest_object_bytes();
}

void WorkerHalf::copied(std::span<const std::uint64_t> gathers, std::vector<std::uint64_t> scatters) {
    if (closed_) return;
    saver_->copied(gathers);
    loader_->copied(std::move(scatters));
}

std::size_t WorkerHalf::shutdown(std::chrono::milliseconds wait) {
    if (closed_) return 0;
    closed_ = true;
    loader_->stop();
    const std::size_t unfinished = saver_->drain(wait);
    if (unfinished > 0)
        log(LogLevel::warning, "store",
            fmt::format("{} chunks were not stored: the engine stops and the store is slow", unfinished));
    store_->close(limits::close_wait);
    return unfinished;
}

}  // namespace kvern
