// SPDX-License-Identifier: Apache-2.0
#include "server/buckets.h"

#include "kvern/limits.h"
#include "server/key_map.h"
#include "server/object_io.h"

namespace kvern::server {

using http::refuse;
using http::S3Code;
using http::S3Result;
using http::Task;

namespace {

Op plain(OpKind kind, std::string key) {
    Op op;
    op.kind = kind;
    op.key = std::move(key);
    return op;
}

tl::unexpected<http::S3Error> no_such_bucket() {
    return refuse(S3Code::no_such_bucket, "The specified bucket does not exist");
}

}  // namespace

std::string bucket_record_key(std::string_view bucket) {
    return "bucket/" + std::string(bucket);
}
std::string object_key(std::string_view bucket, std::string_view key) {
    return objects_prefix(bucket) + map_key(key);
}
std::string objects_prefix(std::string_view bucket) {
    return "object/" + std::string(bucket) + "/";
}
std::string upload_folder(std::string_view bucket, std::string_view key, std::string_view upload) {
    return uploads_prefix(bucket) + map_key(key) + "/" + std::string(upload) + "/";
}
std::string uploads_prefix(std::string_view bucket) {
    return "upload/" + std::string(bucket) + "/";
}

void Buckets::learn(const Bucket& bucket) {
    const std::lock_guard lock(mutex_);
    known_[bucket.name] = {bucket, Clock::steady().now() + limits::bucket_known_for};
}

void Buckets::forget(const std::string& name) {
    const std::lock_guard lock(mutex_);
    known_.erase(name);
}

Task<S3Result<Bucket>> Buckets::find(StorePort& port, std::string name) {
    {
        const std::lock_guard lock(mutex_);
        const auto found = known_.find(name);
        if (found != known_.end() && found->second.until > Clock::steady().now()) co_return found->second.bucket;
    }
    if (!check_key(bucket_record_key(name))) co_return no_such_bucket();
    const auto outcome = co_await port.ask(plain(OpKind::stat, bucket_record_key(name)));
    if (outcome.status == Status::miss) {
        forget(name);
        co_return no_such_bucket();
    }
    if (outcome.status != Status::ok) co_return tl::unexpected(error_of(outcome, "bucket " + name));
    const Bucket bucket{name, outcome.stat.mtime_ns};
    learn(bucket);
    co_return bucket;
}

Task<S3Result<bool>> Buckets::create(StorePort& port, std::string name, std::int64_t now_ns) {
    auto op = plain(OpKind::put, bucket_record_key(name));
    op.condition = Condition::absent;
    const auto outcome = co_await port.ask(std::move(op));
    const bool existed = outcome.status == Status::failed && outcome.error.code == ErrorCode::precondition;
    if (outcome.status != Status::ok && !existed) co_return tl::unexpected(error_of(outcome, "bucket " + name));
    learn({name, existed ? outcome.stat.mtime_ns : now_ns});
    co_return !existed;
}

Task<S3Result<>> Buckets::remove(StorePort& port, std::string name) {
    auto list = plain(OpKind::list, objects_prefix(name));
    list.limit = 1;
    const auto listed = co_await port.ask(std::move(list));
    if (listed.status != Status::ok) co_return tl::unexpected(error_of(listed, "bucket " + name));
    if (!listed.entries.empty()) {
        co_return refuse(S3Code::bucket_not_empty, "The bucket you tried to delete is not empty");
    }
    forget(name);
    const auto removed = co_await port.ask(plain(OpKind::remove, bucket_record_key(name)));
    if (removed.status == Status::miss) co_return no_such_bucket();
    if (removed.status != Status::ok) co_return tl::unexpected(error_of(removed, "bucket " + name));
    co_return co_await remove_all(port, uploads_prefix(name));
}

Task<S3Result<std::vector<Bucket>>> Buckets::all(StorePort& port) {
    constexpr std::string_view prefix = "bucket/";
    std::vector<Bucket> buckets;
    auto op = plain(OpKind::list, std::string(prefix));
    for (;;) {
        auto next = op;
        const auto outcome = co_await port.ask(std::move(next));
        if (outcome.status != Status::ok) co_return tl::unexpected(error_of(outcome, "the list of buckets"));
        for (const auto& entry : outcome.entries) buckets.push_back({entry.key.substr(prefix.size()), entry.mtime_ns});
        if (!outcome.more) co_return buckets;
        op.after = outcome.entries.back().key;
    }
}

Task<S3Result<>> remove_all(StorePort& port, std::string prefix) {
    for (;;) {
        const auto listed = co_await port.ask(plain(OpKind::list, prefix));
        if (listed.status != Status::ok) co_return tl::unexpected(error_of(listed, prefix));
        if (listed.entries.empty()) co_return S3Result<>{};
        std::vector<Op> ops;
        for (const auto& entry : listed.entries) ops.push_back(plain(OpKind::remove, entry.key));
        const auto outcomes = co_await port.ask_all(std::move(ops));
        for (const auto& outcome : outcomes) {
            if (outcome.status == Status::busy || outcome.status == Status::failed) {
                co_return tl::unexpected(error_of(outcome, prefix));
            }
        }
    }
}

}  // namespace kvern::server
