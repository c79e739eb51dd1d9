// SPDX-License-Identifier: Apache-2.0
#include "store/s3/uploads.h"

#include <algorithm>
#include <cstring>

#include "kvern/limits.h"
#include "store/op_check.h"
#include "store/s3/reads.h"
#include "store/s3/writes.h"

namespace kvern {
namespace {

Outcome done() {
    Outcome outcome;
    outcome.status = Status::ok;
    return outcome;
}

void gather(std::vector<std::byte>& to, const std::vector<Buffer>& list) {
    for (const auto& buffer : list) to.insert(to.end(), buffer.data, buffer.data + buffer.size_bytes);
}

http::Task<void> upload_into(S3Multipart& multipart, unsigned number, std::vector<Buffer> bytes,
                             std::optional<Outcome>& trouble) {
    auto ended = co_await multipart.upload(number, std::move(bytes));
    if (ended && !trouble) trouble = std::move(ended);
}

}  // namespace

struct S3Uploads::Upload {
    Upload(S3Endpoint& of, const Op& op, const std::string& metadata_text)
        : id(op.upload),
          endpoint(of),
          key(op.key),
          metadata(op.metadata),
          multipart(of, of.s3_key(op.key), metadata_text) {}

    // Larger the more parts there are, so that thousands of them suffice for hundreds of gigabytes.
    std::uint64_t part_bytes() const { return limits::s3_part_bytes_min * (1 + parts / 1000); }

    const std::uint64_t id;
    S3Endpoint& endpoint;
    const std::string key, metadata;
    S3Multipart multipart;
    unsigned parts = 0;
    std::vector<std::byte> gathered;  // less than a part
    std::optional<Error> error;       // of a part
    std::deque<Job> waiting;
    bool running = false;
};

void S3Uploads::begin(S3Endpoint& endpoint, Job&& job) {
    const auto metadata = s3_metadata_text(job.op.metadata);
    if (!metadata) return finish_(job, failed(metadata.error()));
    if (closing_) return finish_(job, cancelled_by_close());
    if (open_.fetch_add(1) >= limits::open_uploads_max) {
        open_.fetch_sub(1);
        return finish_(job, busy(too_many_uploads()));
    }
    uploads_.emplace(job.op.upload, std::make_shared<Upload>(endpoint, job.op, *metadata));
    auto outcome = done();
    outcome.upload = job.op.upload;
    finish_(job, std::move(outcome));
}

void S3Uploads::take(Job&& job) {
    const auto found = uploads_.find(job.op.upload);
    if (found == uploads_.end()) return finish_(job, failed(unknown_upload(job.op.upload)));
    const auto upload = found->second;
    upload->waiting.push_back(std::move(job));
    start(upload);
}

void S3Uploads::start(const std::shared_ptr<Upload>& upload) {
    if (upload->running) return;
    upload->running = true;
    ++running_;
    http::detach(run(upload));
}

void S3Uploads::end(std::uint64_t id) {
    if (uploads_.erase(id) > 0) open_.fetch_sub(1);
}

void S3Uploads::close() {
    closing_ = true;
    const auto all = uploads_;
    for (const auto& [id, upload] : all) {
        for (auto& job : std::exchange(upload->waiting, {})) finish_(job, cancelled_by_close());
        start(upload);  // to abort it, unless it is running, and then does so itself
    }
}

http::Task<void> S3Uploads::run(std::shared_ptr<Upload> upload) {
    while (!upload->waiting.empty()) {
        auto job = std::move(upload->waiting.front());
        upload->waiting.pop_front();
        const bool last = job.op.kind != OpKind::append;
        auto outcome = co_await work(*upload, job.op);
        if (last) end(upload->id);  // whatever the outcome, it is over
        finish_(job, std::move(outcome));
        if (!last) continue;
        for (auto& late : std::exchange(upload->waiting, {})) finish_(late, failed(unknown_upload(upload->id)));
    }
    if (closing_ && uploads_.contains(upload->id)) {
        end(upload->id);
        co_await upload->multipart.abort();
    }
    upload->running = false;
    --running_;
}

http::Task<Outcome> S3Uploads::work(Upload& upload, const Op& op) {
    if (op.kind == OpKind::append) co_return co_await append(upload, op);
    if (op.kind == OpKind::commit) co_return co_await commit(upload, op);
    co_await upload.multipart.abort();
    co_return done();
}

// Uploads parts of `list` until less than `least` is left; `sent` counts their bytes.
http::Task<std::optional<Outcome>> S3Uploads::send(Upload& upload, std::vector<Buffer> list, std::uint64_t least,
                                                   std::uint64_t& sent) {
    std::optional<Outcome> trouble;
    if (!upload.multipart.created()) trouble = co_await upload.multipart.create();
    const auto size = total_bytes(list);
    http::Together parts;
    while (!trouble && size - sent >= least && size > sent) {
        const auto bytes = std::min(size - sent, upload.endpoint.options().multipart_bytes);
        auto part = part_of(list, sent, bytes);
        sent += bytes;
        parts.start(upload_into(upload.multipart, ++upload.parts, std::move(part), trouble));
        co_await parts.at_most(limits::s3_parts_in_flight - 1);
    }
    co_await parts.at_most(0);
    if (trouble) upload.error = trouble->error;
    co_return trouble;
}

http::Task<Outcome> S3Uploads::append(Upload& upload, const Op& op) {
    if (upload.error) co_return failed(upload.error->code, "a part failed before: " + upload.error->message);
    auto outcome = done();
    outcome.bytes = total_bytes(op.buffers);
    if (upload.gathered.size() + outcome.bytes < upload.part_bytes()) {
        gather(upload.gathered, op.buffers);
        co_return outcome;
    }
    auto before = std::exchange(upload.gathered, {});
    std::vector<Buffer> list{{before.data(), before.size()}};
    list.insert(list.end(), op.buffers.begin(), op.buffers.end());
    std::uint64_t sent = 0;
    auto trouble = co_await send(upload, list, upload.part_bytes(), sent);
    if (trouble) co_return std::move(*trouble);
    gather(upload.gathered, part_of(list, sent, total_bytes(list) - sent));
    co_return outcome;
}

http::Task<Outcome> S3Uploads::commit(Upload& upload, const Op& op) {
    if (upload.error) {
        co_await upload.multipart.abort();
        co_return failed(upload.error->code, "a part failed before: " + upload.error->message);
    }
    if (upload.multipart.created()) {
        Outcome outcome;
        if (op.metadata.empty() || op.metadata == upload.metadata) {
            outcome = co_await commit_parts(upload, op);
        } else {
            outcome = failed(ErrorCode::not_supported,
                             "commit with other metadata than begin's: S3 takes it before the first part");
        }
        if (outcome.status != Status::ok) co_await upload.multipart.abort();
        co_return outcome;
    }
    Op put;
    put.kind = OpKind::put;
    put.key = upload.key;
    put.metadata = op.metadata.empty() ? upload.metadata : op.metadata;
    put.condition = op.condition;
    put.etag = op.etag;
    put.buffers = {{upload.gathered.data(), upload.gathered.size()}};
    auto outcome = co_await s3_put(upload.endpoint, put);
    outcome.bytes = 0;
    co_return outcome;
}

http::Task<Outcome> S3Uploads::commit_parts(Upload& upload, const Op& op) {
    auto& endpoint = upload.endpoint;
    if (op.condition != Condition::any) {
        auto trouble = co_await endpoint.learn_conditions(endpoint.deadline());
        if (trouble) co_return std::move(*trouble);
        if (!endpoint.honours_conditions()) {
            const auto key = endpoint.s3_key(upload.key);
            auto fails = co_await s3_condition_fails(endpoint, key, op.condition, op.etag);
            if (fails) co_return std::move(*fails);
        }
    }
    if (!upload.gathered.empty()) {
        std::vector<Buffer> list{{upload.gathered.data(), upload.gathered.size()}};
        std::uint64_t sent = 0;
        auto trouble = co_await send(upload, list, 1, sent);
        if (trouble) co_return std::move(*trouble);
    }
    auto outcome = co_await upload.multipart.complete(op.condition, op.etag);
    outcome.bytes = 0;
    co_return outcome;
}

}  // namespace kvern
