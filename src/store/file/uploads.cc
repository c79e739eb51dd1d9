// SPDX-License-Identifier: Apache-2.0
#include "store/file/uploads.h"

#include "store/file/look.h"
#include "store/file/publish.h"
#include "store/op_check.h"

namespace kvern {

struct FileUploads::Upload {
    Upload(std::string upload_key, std::string upload_metadata, NewFile&& new_file)
        : key(std::move(upload_key)), metadata(std::move(upload_metadata)), file(std::move(new_file)) {}

    // Ends the upload: its file is published, or nothing of it is left.
    Outcome finish(FileContext& context, const Op& op);
    Outcome publish(FileContext& context, const Op& op);
    // One part is over. Returns the job that waited for the last one.
    std::optional<Job> part_ended(std::optional<Error> part_error);

    const std::string key;
    const std::string metadata;
    NewFile file;

    std::mutex mutex;  // guards all below
    std::uint64_t size_bytes = 0;
    unsigned parts_running = 0;
    std::optional<Error> error;
    std::optional<Job> ending;
};

Outcome FileUploads::Upload::finish(FileContext& context, const Op& op) {
    auto outcome = publish(context, op);
    file.discard();  // what it has not been published as, before the answer
    return outcome;
}

Outcome FileUploads::Upload::publish(FileContext& context, const Op& op) {
    std::uint64_t size = 0;
    {
        const std::lock_guard lock(mutex);
        size = size_bytes;
        if (op.kind == OpKind::commit && error) {
            return failed(error->code, "a part failed before: " + error->message);
        }
    }
    if (op.kind == OpKind::commit) {
        const auto& latest = op.metadata.empty() ? metadata : op.metadata;
        return file_publish(*context.root, op, key, file, size, latest, Place{});
    }
    Outcome outcome;
    outcome.status = Status::ok;
    return outcome;
}

std::optional<Job> FileUploads::Upload::part_ended(std::optional<Error> part_error) {
    const std::lock_guard lock(mutex);
    if (part_error && !error) error = std::move(part_error);
    std::optional<Job> next;
    if (--parts_running == 0) next.swap(ending);
    return next;
}

class FileUploads::BeginTask final : public Task {
  public:
    BeginTask(std::shared_ptr<FileUploads> uploads, Job&& job) : uploads_(std::move(uploads)), job_(std::move(job)) {}
    void run() override { uploads_->context_->delivery.finish(job_, uploads_->begin(job_.op)); }
    void cancel() override { uploads_->context_->delivery.finish(job_, cancelled_by_close()); }

  private:
    std::shared_ptr<FileUploads> uploads_;
    Job job_;
};

class FileUploads::AppendTask final : public Task {
  public:
    AppendTask(std::shared_ptr<FileContext> context, std::shared_ptr<Upload> upload, std::uint64_t offset, Job&& job)
        : context_(std::move(context)), upload_(std::move(upload)), offset_(offset), job_(std::move(job)) {}

    void run() override {
        const int error = upload_->file.write(offset_, job_.op.buffers, false);
        if (error != 0) return over(file_failure(*context_->root, upload_->key, "append", error), false);
        Outcome outcome;
        outcome.status = Status::ok;
        outcome.bytes = total_bytes(job_.op.buffers);
        over(std::move(outcome), false);
    }
    void cancel() override { over(cancelled_by_close(), true); }

  private:
    void over(Outcome&& outcome, bool cancelled) {
        std::optional<Error> error;
        if (outcome.status != Status::ok) error = outcome.error;
        auto next = upload_->part_ended(std::move(error));
        context_->delivery.finish(job_, std::move(outcome));
        if (!next) return;
        context_->delivery.finish(*next, cancelled ? cancelled_by_close() : upload_->finish(*context_, next->op));
    }

    std::shared_ptr<FileContext> context_;
    std::shared_ptr<Upload> upload_;
    std::uint64_t offset_;
    Job job_;
};

class FileUploads::EndTask final : public Task {
  public:
    EndTask(std::shared_ptr<FileContext> context, std::shared_ptr<Upload> upload, Job&& job)
        : context_(std::move(context)), upload_(std::move(upload)), job_(std::move(job)) {}
    void run() override { context_->delivery.finish(job_, upload_->finish(*context_, job_.op)); }
    void cancel() override { context_->delivery.finish(job_, cancelled_by_close()); }

  private:
    std::shared_ptr<FileContext> context_;
    std::shared_ptr<Upload> upload_;
    Job job_;
};

class FileUploads::AbandonTask final : public Task {
  public:
    explicit AbandonTask(std::map<std::uint64_t, std::shared_ptr<Upload>>&& uploads) : uploads_(std::move(uploads)) {}
    void run() override { uploads_.clear(); }
    void cancel() override {}

  private:
    std::map<std::uint64_t, std::shared_ptr<Upload>> uploads_;
};

std::unique_ptr<Task> FileUploads::task(Job&& job) {
    switch (job.op.kind) {
        case OpKind::begin:
            return std::make_unique<BeginTask>(shared_from_this(), std::move(job));
        case OpKind::append:
            return append(std::move(job));
        default:
            return end(std::move(job));
    }
}

Outcome FileUploads::begin(Op& op) {
    {
        const std::lock_guard lock(mutex_);
        if (open_ >= limits::open_uploads_max) return busy(too_many_uploads());
        ++open_;
    }
    NewFile file;
    const int error = file.create_named(*context_->root, context_->direct);
    const std::lock_guard lock(mutex_);
    if (error != 0) {
        --open_;
        return file_failure(*context_->root, op.key, "creating a file", error);
    }
    Outcome outcome;
    outcome.status = Status::ok;
    outcome.upload = next_id_++;
    uploads_.emplace(outcome.upload, std::make_shared<Upload>(op.key, std::move(op.metadata), std::move(file)));
    return outcome;
}

std::unique_ptr<Task> FileUploads::append(Job&& job) {
    std::unique_lock lock(mutex_);
    const auto found = uploads_.find(job.op.upload);
    if (found == uploads_.end()) {
        lock.unlock();
        context_->delivery.finish(job, failed(unknown_upload(job.op.upload)));
        return nullptr;
    }
    const auto upload = found->second;
    const std::lock_guard upload_lock(upload->mutex);
    const auto offset = upload->size_bytes;
    upload->size_bytes += total_bytes(job.op.buffers);
    ++upload->parts_running;
    return std::make_unique<AppendTask>(context_, upload, offset, std::move(job));
}

std::unique_ptr<Task> FileUploads::end(Job&& job) {
    std::unique_lock lock(mutex_);
    const auto found = uploads_.find(job.op.upload);
    if (found == uploads_.end()) {
        lock.unlock();
        context_->delivery.finish(job, failed(unknown_upload(job.op.upload)));
        return nullptr;
    }
    const auto upload = std::move(found->second);
    uploads_.erase(found);
    --open_;
    lock.unlock();
    const std::lock_guard upload_lock(upload->mutex);
    if (upload->parts_running > 0) {
        upload->ending = std::move(job);
        return nullptr;
    }
    return std::make_unique<EndTask>(context_, upload, std::move(job));
}

std::unique_ptr<Task> FileUploads::abandon_all() {
    const std::lock_guard lock(mutex_);
    if (uploads_.empty()) return nullptr;
    return std::make_unique<AbandonTask>(std::move(uploads_));
}

}  // namespace kvern
