// SPDX-License-Identifier: Apache-2.0
#include "engine/loader.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "base/text.h"
#include "base/thread.h"

namespace kvern {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;
using std::chrono::milliseconds;

// How soon a read that found no staging is tried again where no answer of the loader's own reads will wake it.
constexpr int starved_retry_ms = 10;

void signal(int event_fd) {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(event_fd, &one, sizeof one);
}

void clear(int event_fd) {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto got = ::read(event_fd, &count, sizeof count);
}

// The store failed, rather than the data.
bool is_trouble(LoadFailure failure) {
    return failure == LoadFailure::stall || failure == LoadFailure::store_busy || failure == LoadFailure::store_error;
}

std::uint64_t nanoseconds(std::chrono::steady_clock::duration duration) {
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count());
}

}  // namespace

Loader::Loader(Store& store, std::shared_ptr<Region> staging, const WorkerMemory& memory, WorkerCounters& counters,
               const Settings& settings)
    : store_(store),
      staging_(std::move(staging)),
      memory_(memory),
      counters_(counters),
      settings_(settings),
      wake_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      queue_(std::make_unique<CompletionQueue>()) {
    for (const GroupMemory& group : memory.groups) {
        layouts_.push_back(group.object_layout());
        shard_texts_.push_back(group.shard.text());
    }
    thread_ = start_thread("kvern-load", [this] { run(); });
}

Loader::~Loader() {
    stop();
    for (const Completion& completion : queue_->drain()) {
        const auto node = reads_.extract(completion.tag);
        if (!node.empty() && node.mapped().quarantine != 0) staging_->end_quarantine(node.mapped().quarantine);
    }
    // What has no answer even now may still be written by a hung transfer: that memory is nobody's any more.
    for (auto& [tag, read] : reads_)
        if (read.lease && *read.lease) staging_->quarantine(std::move(*read.lease));
    ::close(wake_fd_);
}

void Loader::share(std::unique_ptr<PeerReads> peers, std::vector<bool> groups) {
    {
        const std::lock_guard lock(mutex_);
        arriving_peers_ = std::move(peers);
        shared_groups_ = std::move(groups);
    }
    signal(wake_fd_);
}

void Loader::submit(std::vector<LoadJob> jobs, const Digest& name_space) {
    if (jobs.empty()) return;
    const SteadyTime now = std::chrono::steady_clock::now();
    {
        const std::lock_guard lock(mutex_);
        for (LoadJob& job : jobs) {
            Load& load = submitted_.emplace_back();
            load.name_space = name_space;
            load.namespace_hex = to_hex(name_space);
            load.end = job.chunks.size();
            load.states.assign(job.chunks.size(), ChunkState::waiting);
            load.started = load.progress = now;
            load.job = std::move(job);
        }
    }
    signal(wake_fd_);
}

FinishedLoads Loader::take_finished() {
    if (!news_.load(std::memory_order_acquire)) return {};
    const std::lock_guard lock(mutex_);
    news_.store(false, std::memory_order_relaxed);
    return std::exchange(finished_, {});
}

void Loader::stop() {
    if (!thread_.joinable()) return;
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    signal(wake_fd_);
    thread_.join();
}

void Loader::run() {
    for (;;) {
        pollfd fds[3] = {
            {queue_->event_fd(), POLLIN, 0}, {wake_fd_, POLLIN, 0}, {peers_ ? peers_->fd() : -1, POLLIN, 0}};
        ::poll(fds, 3, poll_timeout_ms(std::chrono::steady_clock::now()));
        if (fds[1].revents & POLLIN) clear(wake_fd_);
        for (const Completion& completion : queue_->drain()) take(completion);
        {
            const std::lock_guard lock(mutex_);
            if (stopping_) break;
        }
        accept();
        take_copied();
        start_reads();
        if (peers_) {
            take_offers(std::chrono::steady_clock::now());
            if (starved_) start_reads();  // with what they have released
        }
        end_stalled(std::chrono::steady_clock::now());
        report_finished();
    }
    end_all();
}

void Loader::accept() {
    std::vector<Load> arrived;
    {
        const std::lock_guard lock(mutex_);
        arrived.swap(submitted_);
        if (arriving_peers_) peers_ = std::move(arriving_peers_);
    }
    for (Load& arrival : arrived) {
        Load& load = loads_.emplace_back(std::move(arrival));
        const auto& chunks = load.job.chunks;
        const bool known = std::all_of(chunks.begin(), chunks.end(), [&](const ChunkBlocks& chunk) {
            return memory_.knows(chunk.group, chunk.blocks, true);
        });
        if (load.job.refused || !known)
            chunk_failed(load, 0, LoadFailure::internal, "its blocks could not be named");
        else if (!staging_->accepts_loads())
            chunk_failed(load, 0, LoadFailure::staging, "too much staging is held back by transfers without an answer");
    }
}

void Loader::start_reads() {
    starved_ = false;
    for (Load& load : loads_) {
        while (load.next < load.end && !starved_) {
            const ChunkBlocks& object = load.job.chunks[load.next];
            const ObjectId id{object.chunk.hash, object.group};
            const auto shared = reading_.find(id);
            if (shared != reading_.end() && reads_.at(shared->second).facts.name_space == load.name_space) {
                reads_.at(shared->second).waiters.push_back({&load, load.next});
                WorkerCounters::add(counters_.shared_reads);
            } else {
                const std::uint64_t tag = next_tag_;
                Read& read = add_read(load, load.next);
                if (shares(id) && peers_->read_elsewhere(id)) {
                    read.awaited_until = std::chrono::steady_clock::now() +
                                         std::min<SteadyTime::duration>(settings_.stall / 2, limits::peer_read_wait);
                    ++awaited_;
                } else if (!room_to_share(id) || !start_read(tag, read)) {
                    reading_.erase(id);
                    reads_.erase(tag);
                    starved_ = true;
                    break;
                }
            }
            if (load.attached++ == 0) load.progress = std::chrono::steady_clock::now();
            load.states[load.next++] = ChunkState::reading;
        }
    }
    if (!ops_.empty()) store_.submit(ops_, *queue_);
    ops_.clear();
}

Loader::Read& Loader::add_read(Load& load, std::size_t chunk) {
    const ChunkBlocks& object = load.job.chunks[chunk];
    const GroupMemory& group = memory_.groups[object.group];
    const std::uint64_t tag = next_tag_++;
    Read& read = reads_[tag];
    read.facts = {load.name_space,         object.chunk,      object.group, group.shard, group.plan.chunk_tokens,
                  group.plan.block_tokens, group.plan.pages()};
    read.key = object_key(load.namespace_hex, object.chunk, object.group, shard_texts_[object.group]);
    read.waiters.push_back({&load, chunk});
    reading_[read.id()] = tag;
    return read;
}

bool Loader::start_read(std::uint64_t tag, Read& read) {
    auto lease = staging_->try_lease(layouts_[read.facts.group].object_bytes);
    if (!lease) return false;
    Op& op = ops_.emplace_back();
    op.kind = OpKind::get;
    op.tag = tag;
    op.key = read.key;
    op.buffers = {{lease->data(), layouts_[read.facts.group].object_bytes}};
    op.mark_used = settings_.may_write;
    read.lease = std::make_shared<Lease>(std::move(*lease));
    if (memory_.on_device && shares(read.id())) shared_.push_back(read.lease);
    return true;
}

// --- Reads of other ranks

// On a device what another rank has read needs staging here too, so two ranks whose staging was full of what each of
// them has read would wait for one another.
bool Loader::room_to_share(const ObjectId& id) {
    if (!memory_.on_device || !shares(id)) return true;
    std::erase_if(shared_, [](const auto& lease) { return lease.expired(); });
    std::size_t bytes = layouts_[id.group].object_bytes;
    for (const auto& lease : shared_) bytes += lease.lock()->size_bytes();
    return bytes <= staging_->size_bytes() / 2;
}

void Loader::take_offers(SteadyTime now) {
    peers_->move_on(now);
    if (awaited_ == 0) return;
    std::vector<std::uint64_t> done;
    for (auto& [tag, read] : reads_) {
        if (read.awaited_until == SteadyTime{}) continue;
        const PeerReads::Offer* offer = peers_->find(read.facts.name_space, read.id());
        if (offer == nullptr && read.awaited_until > now && !read.waiters.empty()) continue;
        const bool taken = read.waiters.empty() || (offer && !offer->object.empty() && take_offer(read, offer->object));
        if (taken) {
            done.push_back(tag);
        } else if (start_read(tag, read)) {
            read.awaited_until = {};
            --awaited_;
            for (const Waiter& waiter : read.waiters) waiter.load->progress = now;
        } else {
            starved_ = true;
            continue;
        }
        peers_->release(read.facts.name_space, read.id());
    }
    for (const std::uint64_t tag : done) {
        reading_.erase(reads_.at(tag).id());
        reads_.erase(tag);
        --awaited_;
    }
    if (!ops_.empty()) store_.submit(ops_, *queue_);
    ops_.clear();
    peers_->move_on(now);  // releases at once: the other rank's staging is waiting for them
}

// False if the offer is not what it must be: then this rank reads for itself.
bool Loader::take_offer(const Read& read, std::span<const std::byte> object) {
    const ObjectLayout& layout = layouts_[read.facts.group];
    if (object.size() < layout.object_bytes) return false;
    object = object.first(layout.object_bytes);
    if (!check_header(object, read.facts, layout, slice_crcs_)) return false;
    Read copy;  // on a device the copy is made out of this rank's own staging
    copy.facts = read.facts;
    if (memory_.on_device) {
        auto lease = staging_->try_lease(layout.object_bytes);
        if (!lease) return false;
        copy.lease = std::make_shared<Lease>(std::move(*lease));
        std::memcpy(copy.lease->data(), object.data(), object.size());
        object = {copy.lease->data(), object.size()};
        if (verify_slices(layout, object, slice_crcs_) > 0) return false;
    }
    progress_ = std::chrono::steady_clock::now();
    for (const Waiter& waiter : read.waiters)
        if (deliver(copy, object, waiter) > 0) return false;
    for (const Waiter& waiter : read.waiters) {
        --waiter.load->attached;
        waiter.load->progress = progress_;
        if (!memory_.on_device) chunk_done(*waiter.load, waiter.chunk);
        WorkerCounters::add(counters_.peer_reads);
    }
    return true;
}

// What this rank will not read after all is not waited for by the others.
void Loader::decline(const Load& load, std::size_t from_chunk) {
    for (std::size_t i = std::max(from_chunk, load.next); i < load.job.chunks.size(); ++i) {
        const ObjectId id{load.job.chunks[i].chunk.hash, load.job.chunks[i].group};
        if (shares(id) && !peers_->read_elsewhere(id)) peers_->offer(load.name_space, id, nullptr, SteadyTime::max());
    }
}

// --- The store's answers

void Loader::take(const Completion& completion) {
    if (const auto removal = removals_.find(completion.tag); removal != removals_.end()) {
        for (Load* load : removal->second) --load->removals;
        removals_.erase(removal);
        return;
    }
    auto node = reads_.extract(completion.tag);
    if (node.empty()) return;
    Read& read = node.mapped();
    if (read.quarantine != 0) return staging_->end_quarantine(read.quarantine);
    reading_.erase({read.facts.chunk.hash, read.facts.group});
    finish_read(std::move(read), completion.outcome);
}

void Loader::finish_read(Read read, const Outcome& outcome) {
    progress_ = std::chrono::steady_clock::now();
    for (const Waiter& waiter : read.waiters) {
        --waiter.load->attached;
        waiter.load->progress = progress_;
    }
    const ObjectLayout& layout = layouts_[read.facts.group];
    LoadFailure reason = LoadFailure::store_error;
    std::string why = outcome.error.message;
    if (outcome.status == Status::failed && outcome.error.code == ErrorCode::corrupt) {
        reason = LoadFailure::mismatch;  // the store's own sums say so
    } else if (!outcome.stat.etag.empty() && outcome.stat.size_bytes != layout.object_bytes) {
        reason = LoadFailure::mismatch;
        why = fmt::format("it has {} bytes, expected {}", outcome.stat.size_bytes, layout.object_bytes);
    } else if (outcome.status == Status::ok && outcome.bytes == layout.object_bytes) {
        WorkerCounters::add(counters_.bytes_read, outcome.bytes);
        const auto checked = check_header(read.bytes(), read.facts, layout, slice_crcs_);
        if (checked) {
            if (shares(read.id()))
                peers_->offer(read.facts.name_space, read.id(), read.lease, progress_ + settings_.stall);
            return deliver_all(read, outcome);
        }
        reason = LoadFailure::mismatch;
        why = checked.error().message;
    } else if (outcome.status == Status::miss) {
        reason = LoadFailure::absent;
        why = "it is not there any more";
    } else if (outcome.status == Status::busy) {
        reason = LoadFailure::store_busy;
    }
    if (shares(read.id())) peers_->offer(read.facts.name_space, read.id(), nullptr, SteadyTime::max());
    std::vector<Load*> loads;
    for (const Waiter& waiter : read.waiters) {
        chunk_failed(*waiter.load, waiter.chunk, reason, fmt::format("'{}': {}", read.key, why));
        loads.push_back(waiter.load);
    }
    if (reason == LoadFailure::mismatch) remove_broken(read, outcome.stat.etag, std::move(loads));
}

void Loader::deliver_all(const Read& read, const Outcome& outcome) {
    const ObjectLayout& layout = layouts_[read.facts.group];
    std::vector<Load*> broken;
    for (const Waiter& waiter : read.waiters) {
        const std::uint32_t mismatches = deliver(read, read.bytes().first(layout.object_bytes), waiter);
        if (mismatches == 0) {
            if (!memory_.on_device) chunk_done(*waiter.load, waiter.chunk);
            continue;
        }
        broken.push_back(waiter.load);
        chunk_failed(
            *waiter.load, waiter.chunk, LoadFailure::mismatch,
            fmt::format("'{}': {} of {} slices do not have their checksum", read.key, mismatches, layout.slice_count));
    }
    if (!broken.empty()) remove_broken(read, outcome.stat.etag, std::move(broken));
}

std::uint32_t Loader::deliver(const Read& read, std::span<const std::byte> object, const Waiter& waiter) {
    const ObjectLayout& layout = layouts_[read.facts.group];
    const std::vector<std::int32_t>& blocks = waiter.load->job.chunks[waiter.chunk].blocks;
    const std::uint32_t mismatches =
        memory_.on_device ? verify_slices(layout, object, slice_crcs_)
                          : scatter_and_verify(memory_.groups[read.facts.group], blocks, object, slice_crcs_);
    WorkerCounters::add(counters_.verified_slices, layout.slice_count - mismatches);
    WorkerCounters::add(counters_.mismatched_slices, mismatches);
    if (memory_.on_device && mismatches == 0) copy_to_device(waiter, read.lease);
    return mismatches;
}

void Loader::copy_to_device(const Waiter& waiter, const std::shared_ptr<Lease>& lease) {
    Load& load = *waiter.load;
    if (waiter.chunk >= load.end) return;  // given up meanwhile
    load.states[waiter.chunk] = ChunkState::copying;
    ++load.copying;
    const ChunkBlocks& object = load.job.chunks[waiter.chunk];
    const std::uint64_t ticket = next_tag_++;
    copying_.emplace(ticket, Copy{waiter, lease});
    const std::lock_guard lock(mutex_);
    copies_.push_back({ticket, object.group, object.blocks, lease->data() + layouts_[object.group].header_bytes});
    copies_waiting_.store(true, std::memory_order_release);
}

std::vector<DeviceCopy> Loader::take_copies() {
    if (!copies_waiting_.load(std::memory_order_acquire)) return {};
    const std::lock_guard lock(mutex_);
    copies_waiting_.store(false, std::memory_order_relaxed);
    return std::exchange(copies_, {});
}

void Loader::copied(std::vector<std::uint64_t> tickets) {
    if (tickets.empty()) return;
    {
        const std::lock_guard lock(mutex_);
        copied_.insert(copied_.end(), tickets.begin(), tickets.end());
    }
    signal(wake_fd_);
}

void Loader::take_copied() {
    std::vector<std::uint64_t> tickets;
    {
        const std::lock_guard lock(mutex_);
        tickets.swap(copied_);
    }
    for (const std::uint64_t ticket : tickets) {
        const auto node = copying_.extract(ticket);
        if (node.empty()) continue;
        const auto [load, chunk] = node.mapped().waiter;
        --load->copying;
        load->progress = progress_ = std::chrono::steady_clock::now();
        if (chunk < load->end) chunk_done(*load, chunk);
    }
}

void Loader::chunk_done(Load& load, std::size_t chunk) {
    load.states[chunk] = ChunkState::done;
    if (chunk < load.end) ++load.done;
}

void Loader::chunk_failed(Load& load, std::size_t chunk, LoadFailure reason, const std::string& why, bool stalled) {
    if (chunk >= load.end) return;  // given up already
    load.failure = reason;
    load.failed_chunk = chunk;
    if (peers_) decline(load, load.job.whole ? 0 : chunk);
    log(reason == LoadFailure::absent ? LogLevel::info : LogLevel::warning, "load",
        fmt::format("request {}: object {} of {} will be recomputed: {}", load.job.request, chunk + 1,
                    load.job.chunks.size(), why));
    load.end = load.job.whole ? 0 : chunk;
    detach(load, load.end, stalled);
    load.next = std::min(load.next, load.end);
    const auto end = load.states.begin() + static_cast<std::ptrdiff_t>(load.end);
    load.done = static_cast<std::size_t>(std::count(load.states.begin(), end, ChunkState::done));
}

void Loader::detach(Load& load, std::size_t from_chunk, bool stalled) {
    for (auto& [tag, read] : reads_) {
        const auto gone = std::erase_if(
            read.waiters, [&](const Waiter& waiter) { return waiter.load == &load && waiter.chunk >= from_chunk; });
        load.attached -= gone;
        // A read that is merely not wanted any more ends soon, and may be shared until then.
        if (!stalled || gone == 0 || !read.waiters.empty() || !read.lease) continue;
        if (shares(read.id())) peers_->offer(read.facts.name_space, read.id(), nullptr, SteadyTime::max());
        read.quarantine = staging_->quarantine(std::move(*read.lease));
        reading_.erase({read.facts.chunk.hash, read.facts.group});
    }
}

// The report of these loads waits for the removal: the recomputation is stored only where the key is absent.
void Loader::remove_broken(const Read& read, const std::string& etag, std::vector<Load*> loads) {
    if (!settings_.may_write || etag.empty()) return;
    Op& op = ops_.emplace_back();
    op.kind = OpKind::remove;
    op.tag = next_tag_++;
    op.key = read.key;
    op.condition = Condition::etag;
    op.etag = etag;
    for (Load* load : loads) ++load->removals;
    removals_.emplace(op.tag, std::move(loads));
}

// Its copies end by themselves: a device that hangs takes the engine along.
bool Loader::waits_for_copies(const Load& load) const {
    return load.copying > 0 && load.attached == 0;
}

SteadyTime Loader::stall_time(const Load& load) const {
    // While a load waits for its turn, with no read under way, the progress of those before it counts.
    const bool queued = load.attached == 0 && load.next < load.end;
    return (queued ? std::max(load.progress, progress_) : load.progress) + settings_.stall;
}

void Loader::end_stalled(SteadyTime now) {
    for (Load& load : loads_) {
        if (load.over() || waits_for_copies(load) || stall_time(load) > now) continue;
        if (load.done < load.end) {
            const auto undone = std::find_if(load.states.begin(), load.states.end(),
                                             [](ChunkState state) { return state != ChunkState::done; });
            chunk_failed(load, static_cast<std::size_t>(undone - load.states.begin()), LoadFailure::stall,
                         fmt::format("nothing arrived for {} ms", settings_.stall.count()), true);
        }
        for (auto& [tag, waiting] : removals_) std::erase(waiting, &load);
        load.removals = 0;
    }
}

void Loader::end_all() {
    accept();
    for (Load& load : loads_) {
        const auto undone = std::find_if(load.states.begin(), load.states.end(),
                                         [](ChunkState state) { return state != ChunkState::done; });
        if (undone != load.states.end())
            chunk_failed(load, static_cast<std::size_t>(undone - load.states.begin()), LoadFailure::shutdown,
                         "the engine stops");
        load.removals = load.copying = 0;
    }
    removals_.clear();
    report_finished();
}

void Loader::report_finished() {
    if (std::none_of(loads_.begin(), loads_.end(), [](const Load& load) { return load.over(); })) return;
    const SteadyTime now = std::chrono::steady_clock::now();
    const std::lock_guard lock(mutex_);
    loads_.remove_if([&](Load& load) {
        if (!load.over()) return false;
        WorkerCounters::add(counters_.loads);
        if (load.failure) counters_.fail(*load.failure);
        WorkerCounters::add(counters_.load_ns, nanoseconds(now - load.started));
        if (load.failure) {
            const std::size_t end = load.job.whole ? load.failed_chunk + 1 : load.job.chunks.size();
            for (std::size_t i = load.failed_chunk; i < end; ++i)
                for (const std::int32_t block : load.job.chunks[i].blocks)
                    if (block != no_block) finished_.bad_blocks.push_back(block);
            finished_.failed.push_back(load.job.request);
            if (is_trouble(*load.failure)) finished_.troubled.push_back(load.job.request);
        }
        finished_.requests.push_back(std::move(load.job.request));
        return true;
    });
    news_.store(true, std::memory_order_release);
}

int Loader::poll_timeout_ms(SteadyTime now) const {
    SteadyTime next = peers_ ? peers_->next_deadline() : SteadyTime::max();
    if (awaited_ > 0)
        for (const auto& [tag, read] : reads_)
            if (read.awaited_until != SteadyTime{}) next = std::min(next, read.awaited_until);
    for (const Load& load : loads_)
        if (!waits_for_copies(load)) next = std::min(next, stall_time(load));
    if (next == SteadyTime::max()) return -1;
    const auto left = std::chrono::duration_cast<milliseconds>(next - now).count() + 1;
    const int until_stall = static_cast<int>(std::clamp<std::int64_t>(left, 0, 1000 * 1000));
    // Staging is in other hands (stores, or held back): no answer of ours will say when it is free.
    const bool reading =
        std::any_of(reads_.begin(), reads_.end(), [](const auto& read) { return read.second.quarantine == 0; });
    return starved_ && !reading ? std::min(until_stall, starved_retry_ms) : until_stall;
}

}  // namespace kvern
