// SPDX-License-Identifier: Apache-2.0
#include "store/mem_store.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <list>
#include <map>
#include <mutex>

#include "base/text.h"
#include "kvern/limits.h"
#include "store/op_check.h"

namespace kvern {
namespace {

// The bytes of a value: large ones in the region, whose pages are there once they were used, short ones on the heap.
struct Bytes {
    Bytes(Lease part, std::size_t size) : lease(std::move(part)), data(lease.data()), size_bytes(size) {}
    explicit Bytes(std::size_t size) : heap(new std::byte[size]), data(heap.get()), size_bytes(size) {}
    Lease lease;
    std::unique_ptr<std::byte[]> heap;  // without the zeroing of a vector
    std::byte* data;
    std::size_t size_bytes;
};

struct Value {
    std::shared_ptr<const Bytes> bytes;  // shared, so that a get copies outside the lock
    Stat stat;
    std::list<std::string>::iterator used;  // its place in the order of use
};

Stat stat_for(const Op& op, const Value& value) {
    Stat stat = value.stat;
    if (!op.with_metadata) stat.metadata.clear();
    return stat;
}

struct Upload {
    std::string key;
    std::string metadata;
    std::vector<std::shared_ptr<const Bytes>> parts;
    std::uint64_t size_bytes = 0;
};

void copy_in(std::byte* to, const std::vector<Buffer>& buffers) {
    for (const auto& buffer : buffers) {
        if (buffer.size_bytes > 0) std::memcpy(to, buffer.data, buffer.size_bytes);
        to += buffer.size_bytes;
    }
}

void copy_out(const std::byte* from, std::uint64_t length, const std::vector<Buffer>& buffers) {
    for (const auto& buffer : buffers) {
        const auto part = std::min<std::uint64_t>(length, buffer.size_bytes);
        if (part > 0) std::memcpy(buffer.data, from, part);
        from += part;
        length -= part;
    }
}

class MemStore final : public Store {
  public:
    MemStore(std::uint64_t size_bytes, const WallClock& clock, std::shared_ptr<Region> region)
        : size_bytes_max_(size_bytes), clock_(clock), region_(std::move(region)) {}

    void submit(std::span<Op> ops, CompletionQueue& queue) override {
        std::vector<Completion> batch;
        batch.reserve(ops.size());
        for (auto& op : ops) batch.push_back({op.tag, outcome_of(op)});
        queue.push(std::move(batch));
    }

    Capabilities capabilities() const override {
        return {.durable = false,
                .shared = false,
                .ranged = true,
                .conditional_put = true,
                .immediate = true,
                .cheap_stat = true,
                .key_bytes_max = limits::key_bytes_max,
                .metadata_bytes_max = limits::metadata_bytes_max};
    }

    std::string describe() const override {
        return "mem: at most " + format_size(size_bytes_max_) + " in this process, least recently used forgotten first";
    }

    void attach(std::shared_ptr<Region>) override {}

    bool close(std::chrono::milliseconds) override {
        const std::lock_guard lock(mutex_);
        closed_ = true;
        return true;
    }

  private:
    Outcome outcome_of(Op& op);
    Outcome get(const Op& op);
    Outcome put(Op& op);
    Outcome stat(const Op& op);
    Outcome remove(const Op& op);
    Outcome list(const Op& op);
    Outcome begin(Op& op);
    Outcome append(const Op& op);
    Outcome commit(Op& op);
    Outcome abort(const Op& op);
    Outcome space();

    // Room for a value; forgets others where the region has none. Takes mutex_.
    std::shared_ptr<Bytes> allocate(std::size_t size_bytes);
    std::shared_ptr<const Bytes> copied(const std::vector<Buffer>& buffers);
    void mark_used(const std::string& key, const Stat& read);  // takes mutex_

    // All below: REQUIRES mutex_ held.
    Outcome condition_failure(const Op& op, const std::string& key) const;  // ok if the condition holds
    Outcome insert(const std::string& key, std::string metadata, std::shared_ptr<const Bytes> bytes);
    bool make_room(std::uint64_t size_bytes);
    void erase(std::map<std::string, Value>::iterator entry);
    static std::uint64_t cost(const std::string& key, const std::string& metadata, std::uint64_t size_bytes) {
        return key.size() + metadata.size() + size_bytes;
    }
    Outcome too_big(std::uint64_t size_bytes) const {
        return failed(ErrorCode::no_space, format_size(size_bytes) + " do not fit into mem: of " +
                                               format_size(size_bytes_max_) + ": raise its size parameter");
    }

    const std::uint64_t size_bytes_max_;
    const WallClock& clock_;
    const std::shared_ptr<Region> region_;  // none where the whole store is small
    std::mutex mutex_;
    bool closed_ = false;
    std::map<std::string, Value> values_;
    std::list<std::string> order_;  // most recently used first
    std::map<std::uint64_t, Upload> uploads_;
    std::uint64_t used_bytes_ = 0;  // values and open uploads
    std::uint64_t version_ = 0;
    std::uint64_t next_upload_ = 1;
};

Outcome MemStore::outcome_of(Op& op) {
    {
        const std::lock_guard lock(mutex_);
        if (closed_) return failed(ErrorCode::unavailable, "the store is closed");
    }
    if (auto checked = check_op(op); !checked) return failed(checked.error());
    switch (op.kind) {
        case OpKind::get:
            return get(op);
        case OpKind::put:
            return put(op);
        case OpKind::stat:
            return stat(op);
        case OpKind::remove:
            return remove(op);
        case OpKind::list:
            return list(op);
        case OpKind::begin:
            return begin(op);
        case OpKind::append:
            return append(op);
        case OpKind::commit:
            return commit(op);
        case OpKind::abort:
            return abort(op);
        case OpKind::space:
            return space();
    }
    return failed(ErrorCode::internal, "unknown operation");
}

std::shared_ptr<Bytes> MemStore::allocate(std::size_t size_bytes) {
    if (!region_ || size_bytes < limits::mem_region_from_bytes) return std::make_shared<Bytes>(size_bytes);
    for (;;) {
        if (auto lease = region_->try_lease(size_bytes)) return std::make_shared<Bytes>(std::move(*lease), size_bytes);
        // Free parts are too small each: the oldest values give theirs back, except to who reads them now.
        const std::lock_guard lock(mutex_);
        if (order_.empty()) return std::make_shared<Bytes>(size_bytes);
        erase(values_.find(order_.back()));
    }
}

std::shared_ptr<const Bytes> MemStore::copied(const std::vector<Buffer>& buffers) {
    auto bytes = allocate(total_bytes(buffers));
    copy_in(bytes->data, buffers);
    return bytes;
}

Outcome MemStore::get(const Op& op) {
    Outcome outcome;
    std::shared_ptr<const Bytes> bytes;
    {
        const std::lock_guard lock(mutex_);
        const auto entry = values_.find(op.key);
        if (entry == values_.end()) return missed();
        order_.splice(order_.begin(), order_, entry->second.used);
        bytes = entry->second.bytes;
        outcome.stat = stat_for(op, entry->second);
    }
    const auto range = check_range(op, bytes->size_bytes);
    if (!range) {
        outcome.error = range.error();
        return outcome;
    }
    copy_out(bytes->data + op.offset, *range, op.buffers);
    outcome.status = Status::ok;
    outcome.bytes = *range;
    if (op.mark_used) mark_used(op.key, outcome.stat);
    return outcome;
}

void MemStore::mark_used(const std::string& key, const Stat& read) {
    const auto now_ns = clock_.now_ns();
    if (now_ns - read.mtime_ns <= std::chrono::nanoseconds(limits::use_mark_interval).count()) return;
    const std::lock_guard lock(mutex_);
    const auto entry = values_.find(key);
    if (entry != values_.end() && entry->second.stat.etag == read.etag) entry->second.stat.mtime_ns = now_ns;
}

Outcome MemStore::condition_failure(const Op& op, const std::string& key) const {
    Outcome outcome;
    const auto entry = values_.find(key);
    const bool exists = entry != values_.end();
    const bool holds = op.condition == Condition::any || (op.condition == Condition::absent && !exists) ||
                       (op.condition == Condition::etag && exists && entry->second.stat.etag == op.etag);
    if (holds) {
        outcome.status = Status::ok;
        return outcome;
    }
    outcome = failed(precondition_failure(op.condition, exists));
    if (exists) outcome.stat = stat_for(op, entry->second);
    return outcome;
}

Outcome MemStore::put(Op& op) {
    {
        const std::lock_guard lock(mutex_);  // a put of what exists costs one look, not a copy
        if (auto outcome = condition_failure(op, op.key); outcome.status != Status::ok) return outcome;
    }
    if (const auto size = cost(op.key, op.metadata, total_bytes(op.buffers)); size > size_bytes_max_) {
        return too_big(size);
    }
    auto bytes = copied(op.buffers);
    const std::lock_guard lock(mutex_);
    if (auto outcome = condition_failure(op, op.key); outcome.status != Status::ok) return outcome;
    return insert(op.key, std::move(op.metadata), std::move(bytes));
}

Outcome MemStore::insert(const std::string& key, std::string metadata, std::shared_ptr<const Bytes> bytes) {
    if (const auto entry = values_.find(key); entry != values_.end()) erase(entry);
    const auto size = cost(key, metadata, bytes->size_bytes);
    if (!make_room(size)) return too_big(size);
    used_bytes_ += size;
    order_.push_front(key);
    Outcome outcome;
    outcome.status = Status::ok;
    outcome.bytes = bytes->size_bytes;
    outcome.stat = Stat{bytes->size_bytes, clock_.now_ns(), "mem-" + std::to_string(++version_), std::move(metadata)};
    values_.emplace(key, Value{std::move(bytes), outcome.stat, order_.begin()});
    outcome.stat.metadata.clear();
    return outcome;
}

bool MemStore::make_room(std::uint64_t size_bytes) {
    if (size_bytes > size_bytes_max_) return false;
    while (used_bytes_ + size_bytes > size_bytes_max_ && !order_.empty()) erase(values_.find(order_.back()));
    return used_bytes_ + size_bytes <= size_bytes_max_;
}

void MemStore::erase(std::map<std::string, Value>::iterator entry) {
    const auto& value = entry->second;
    used_bytes_ -= cost(entry->first, value.stat.metadata, value.stat.size_bytes);
    order_.erase(value.used);
    values_.erase(entry);
}

Outcome MemStore::stat(const Op& op) {
    const std::lock_guard lock(mutex_);
    const auto entry = values_.find(op.key);
    if (entry == values_.end()) return missed();
    Outcome outcome;
    outcome.status = Status::ok;
    outcome.stat = stat_for(op, entry->second);
    return outcome;
}

Outcome MemStore::remove(const Op& op) {
    const std::lock_guard lock(mutex_);
    const auto entry = values_.find(op.key);
    if (entry == values_.end()) return missed();
    if (auto outcome = condition_failure(op, op.key); outcome.status != Status::ok) return outcome;
    erase(entry);
    Outcome outcome;
    outcome.status = Status::ok;
    return outcome;
}

Outcome MemStore::list(const Op& op) {
    const auto limit = std::min(op.limit, limits::list_entries_max);
    Outcome outcome;
    outcome.status = Status::ok;
    const std::lock_guard lock(mutex_);
    auto entry = op.after >= op.key ? values_.upper_bound(op.after) : values_.lower_bound(op.key);
    for (; entry != values_.end() && entry->first.starts_with(op.key); ++entry) {
        if (outcome.entries.size() == limit) {
            outcome.more = true;
            break;
        }
        const auto& stat = entry->second.stat;
        outcome.entries.push_back(Entry{entry->first, stat.size_bytes, stat.mtime_ns, stat.etag});
    }
    return outcome;
}

Outcome MemStore::begin(Op& op) {
    const std::lock_guard lock(mutex_);
    if (uploads_.size() >= limits::open_uploads_max) return busy(too_many_uploads());
    Outcome outcome;
    outcome.status = Status::ok;
    outcome.upload = next_upload_++;
    uploads_.emplace(outcome.upload, Upload{op.key, std::move(op.metadata), {}, 0});
    return outcome;
}

Outcome MemStore::append(const Op& op) {
    if (const auto size = total_bytes(op.buffers); size > size_bytes_max_) return too_big(size);
    auto bytes = copied(op.buffers);
    const std::lock_guard lock(mutex_);
    const auto upload = uploads_.find(op.upload);
    if (upload == uploads_.end()) return failed(unknown_upload(op.upload));
    if (!make_room(bytes->size_bytes)) return too_big(upload->second.size_bytes + bytes->size_bytes);
    used_bytes_ += bytes->size_bytes;
    Outcome outcome;
    outcome.status = Status::ok;
    outcome.bytes = bytes->size_bytes;
    upload->second.size_bytes += bytes->size_bytes;
    upload->second.parts.push_back(std::move(bytes));
    return outcome;
}

Outcome MemStore::commit(Op& op) {
    Upload upload;
    {
        const std::lock_guard lock(mutex_);
        const auto found = uploads_.find(op.upload);
        if (found == uploads_.end()) return failed(unknown_upload(op.upload));
        upload = std::move(found->second);
        uploads_.erase(found);  // whatever the outcome, the upload is over; its bytes count until they are joined
    }
    if (!op.metadata.empty()) upload.metadata = std::move(op.metadata);
    auto whole = allocate(upload.size_bytes);
    auto* to = whole->data;
    for (auto& part : upload.parts) {
        if (part->size_bytes > 0) std::memcpy(to, part->data, part->size_bytes);
        to += part->size_bytes;
        part.reset();
    }
    const std::lock_guard lock(mutex_);
    used_bytes_ -= upload.size_bytes;
    if (auto outcome = condition_failure(op, upload.key); outcome.status != Status::ok) return outcome;
    return insert(upload.key, std::move(upload.metadata), std::move(whole));
}

Outcome MemStore::abort(const Op& op) {
    const std::lock_guard lock(mutex_);
    const auto upload = uploads_.find(op.upload);
    if (upload == uploads_.end()) return failed(unknown_upload(op.upload));
    used_bytes_ -= upload->second.size_bytes;
    uploads_.erase(upload);
    Outcome outcome;
    outcome.status = Status::ok;
    return outcome;
}

Outcome MemStore::space() {
    const std::lock_guard lock(mutex_);
    Outcome outcome;
    outcome.status = Status::ok;
    outcome.space = Space{size_bytes_max_, size_bytes_max_ - used_bytes_, 0};
    return outcome;
}

}  // namespace

namespace {

// None where it can't be had: then all values lie on the heap.
std::shared_ptr<Region> make_region(std::uint64_t size_bytes) {
    if (size_bytes < 2 * limits::mem_region_from_bytes) return nullptr;
    RegionOptions options;
    options.name = "kvern-mem";
    options.size_bytes = size_bytes;
    options.touch_in_background = false;
    auto region = Region::create(options);
    return region ? std::move(*region) : nullptr;
}

}  // namespace

std::unique_ptr<Store> make_mem_store(std::uint64_t size_bytes, const WallClock& clock) {
    return std::make_unique<MemStore>(size_bytes, clock, make_region(size_bytes));
}

Result<std::unique_ptr<Store>> open_mem_store(const Uri& uri) {
    static constexpr std::array<std::string_view, 1> known{"size"};
    if (auto checked = uri.only(known); !checked) return tl::unexpected(checked.error());
    if (!uri.host.empty() || !uri.path.empty()) {
        return fail(ErrorCode::invalid_argument, "store '" + uri.text + "': mem: takes no host and no path");
    }
    const auto size = uri.size("size", limits::mem_store_bytes_default, limits::page_bytes);
    if (!size) return tl::unexpected(size.error());
    return make_mem_store(*size, WallClock::system());
}

}  // namespace kvern
