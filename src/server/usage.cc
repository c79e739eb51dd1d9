// SPDX-License-Identifier: Apache-2.0
#include "server/usage.h"

#include "base/clock.h"
#include "base/text.h"
#include "kvern/limits.h"
#include "server/buckets.h"
#include "server/key_map.h"
#include "server/object_record.h"

namespace kvern::server {

using http::S3Code;
using http::S3Result;
using http::Task;

std::uint64_t Usage::quota(std::string_view bucket) const {
    const auto found = quotas_.find(std::string(bucket));
    return found == quotas_.end() ? default_quota_ : found->second;
}

S3Result<> Usage::take(std::string_view bucket, std::uint64_t bytes) {
    const auto limit = quota(bucket);
    const std::lock_guard lock(mutex_);
    auto& usage = usage_[std::string(bucket)];
    const auto wanted = usage.bytes + static_cast<std::int64_t>(bytes);
    if (limit > 0 && bytes > 0 && wanted > static_cast<std::int64_t>(limit)) {
        return http::refuse(S3Code::insufficient_storage,
                            "Bucket '" + std::string(bucket) + "' may hold " + format_size(limit) +
                                " (--quota), and holds " +
                                format_size(static_cast<std::uint64_t>(std::max<std::int64_t>(usage.bytes, 0))));
    }
    usage.bytes = wanted;
    since_[std::string(bucket)].bytes += static_cast<std::int64_t>(bytes);
    return {};
}

void Usage::give(std::string_view bucket, std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    usage_[std::string(bucket)].bytes -= static_cast<std::int64_t>(bytes);
    since_[std::string(bucket)].bytes -= static_cast<std::int64_t>(bytes);
}

void Usage::stored(std::string_view bucket, std::int64_t objects) {
    const std::lock_guard lock(mutex_);
    usage_[std::string(bucket)].objects += objects;
    since_[std::string(bucket)].objects += objects;
}

std::map<std::string, BucketUsage> Usage::all() const {
    const std::lock_guard lock(mutex_);
    return {usage_.begin(), usage_.end()};
}

std::int64_t Usage::scanned_ns() const {
    const std::lock_guard lock(mutex_);
    return scanned_ns_;
}

namespace {

// The text of a label that the cache left: a short object, its first line.
Task<std::string> read_label(StorePort& port, std::string key) {
    std::string text(limits::label_bytes_max, '\0');
    Op op;
    op.kind = OpKind::get;
    op.key = std::move(key);
    op.buffers.push_back({reinterpret_cast<std::byte*>(text.data()), text.size()});
    const auto outcome = co_await port.ask(std::move(op));
    if (outcome.status != Status::ok) co_return std::string();
    text.resize(std::min<std::size_t>(outcome.bytes, text.find_first_of("\r\n")));
    co_return text;
}

}  // namespace

Task<bool> Usage::scan_bucket(StorePort& port, std::string bucket, BucketUsage& usage) {
    const auto prefix = objects_prefix(bucket);
    std::map<std::string, std::int64_t> bytes_by_folder;
    std::map<std::string, std::string> labels;
    Op list;
    list.kind = OpKind::list;
    list.key = prefix;
    for (;;) {
        auto next = list;
        const auto outcome = co_await port.ask(std::move(next));
        if (outcome.status != Status::ok) co_return false;
        for (const auto& entry : outcome.entries) {
            const auto key = unmap_key(std::string_view(entry.key).substr(prefix.size()));
            if (!key) continue;
            const auto bytes = static_cast<std::int64_t>(entry.size_bytes);
            usage.bytes += bytes;
            ++usage.objects;
            // The cache's objects lie in a folder named by their namespace, and its label beside them.
            const auto label_at = key->ends_with("/label") ? key->size() - 6 : std::string::npos;
            if (label_at != std::string::npos && entry.size_bytes <= limits::label_bytes_max) {
                labels[key->substr(0, label_at)] = co_await read_label(port, entry.key);
            }
            for (auto slash = key->find('/'); slash != std::string::npos; slash = key->find('/', slash + 1)) {
                bytes_by_folder[key->substr(0, slash)] += bytes;
            }
        }
        if (!outcome.more) break;
        list.after = outcome.entries.back().key;
    }
    for (const auto& [folder, label] : labels)
        usage.bytes_by_label[label.empty() ? folder : label] += bytes_by_folder[folder];
    co_return true;
}

Task<void> Usage::scan(StorePort& port) {
    {
        const std::lock_guard lock(mutex_);
        since_.clear();
    }
    Buckets names;
    const auto buckets = co_await names.all(port);
    if (!buckets) co_return;
    std::map<std::string, BucketUsage, std::less<>> found;
    for (const auto& bucket : *buckets) {
        const bool whole = co_await scan_bucket(port, bucket.name, found[bucket.name]);
        if (!whole) co_return;
    }
    const std::lock_guard lock(mutex_);
    // What happened meanwhile may be counted twice: too much rather than too little, until the next scan.
    for (const auto& [name, change] : since_) {
        if (change.bytes > 0) found[name].bytes += change.bytes;
    }
    usage_ = std::move(found);
    scanned_ns_ = WallClock::system().now_ns();
}

}  // namespace kvern::server
