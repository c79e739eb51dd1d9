// SPDX-License-Identifier: Apache-2.0
#include "store/file/tasks.h"

#include <algorithm>
#include <mutex>
#include <optional>

#include "store/file/list.h"
#include "store/file/look.h"
#include "store/file/publish.h"
#include "store/file/read.h"
#include "store/file/space.h"
#include "store/op_check.h"

namespace kvern {
namespace {

// `lock` is for changes, and may be held from one operation to the next.
Outcome perform(FileContext& context, const Op& op, ChangeLock& lock) {
    switch (op.kind) {
        case OpKind::put:
            return file_put(*context.root, context.facts, context.direct, op);
        case OpKind::stat:
            return file_stat(*context.root, context.facts, op);
        case OpKind::remove:
            return file_remove(*context.root, op, lock);
        case OpKind::list: {
            std::size_t skipped = 0;
            auto outcome = file_list(*context.root, op, context.list_memory, skipped);
            context.skipped += skipped;
            return outcome;
        }
        case OpKind::space:
            return file_space(*context.root);
        default:
            return failed(ErrorCode::internal, "not an operation of the thread pool");
    }
}

class BlockingTask final : public Task {
  public:
    BlockingTask(std::shared_ptr<FileContext> context, std::vector<Job>&& jobs)
        : context_(std::move(context)), jobs_(std::move(jobs)) {}

    void run() override {
        CompletionBatch batch;
        {
            ChangeLock lock;
            for (auto& job : jobs_) batch.add(job, perform(*context_, job.op, lock));
        }
        batch.flush(context_->delivery);
    }
    void cancel() override { context_->delivery.cancel(jobs_); }

  private:
    std::shared_ptr<FileContext> context_;
    std::vector<Job> jobs_;
};

class SingleTask final : public Task {
  public:
    SingleTask(std::shared_ptr<FileContext> context, Job&& job) : context_(std::move(context)), job_(std::move(job)) {}
    void run() override {
        ChangeLock lock;
        context_->delivery.finish(job_, perform(*context_, job_.op, lock));
    }
    void cancel() override { context_->delivery.finish(job_, cancelled_by_close()); }

  private:
    std::shared_ptr<FileContext> context_;
    Job job_;
};

// One value that several threads read. The last one to leave delivers.
struct SharedRead {
    SharedRead(std::shared_ptr<FileContext> file_context, Job&& read_job)
        : context(std::move(file_context)), job(std::move(read_job)) {}

    bool join();  // false: there is nothing left to help with
    std::optional<Piece> next_piece();
    void fail(Error error);
    void read();

    const std::shared_ptr<FileContext> context;
    Job job;
    OpenValue value;
    Outcome outcome;

    std::mutex mutex;  // guards all below, and outcome while several threads read
    BufferWalk walk;
    std::uint64_t offset = 0;
    std::uint64_t left = 0;
    unsigned readers = 1;
    bool failed = false;
};

bool SharedRead::join() {
    const std::lock_guard lock(mutex);
    if (left == 0 || failed) return false;
    ++readers;
    return true;
}

std::optional<Piece> SharedRead::next_piece() {
    const std::lock_guard lock(mutex);
    if (left == 0 || failed) return std::nullopt;
    Piece piece(walk, offset, std::min<std::uint64_t>(left, limits::file_piece_bytes));
    offset += piece.size_bytes();
    left -= piece.size_bytes();
    return piece;
}

void SharedRead::fail(Error error) {
    const std::lock_guard lock(mutex);
    if (failed) return;
    failed = true;
    outcome.error = std::move(error);
}

void SharedRead::read() {
    while (auto piece = next_piece()) {
        const int error = read_piece(value, *piece);
        if (error > 0) fail(ended_early(*context->root, job.op.key));
        if (error < 0) fail(file_failure(*context->root, job.op.key, "read", error).error);
    }
    {
        const std::lock_guard lock(mutex);
        if (--readers > 0) return;
    }
    if (!failed) {
        outcome.status = Status::ok;
        outcome.bytes = value.length;
    }
    const bool used = !failed && value.use;
    if (!used) value.fd.reset();
    context->delivery.finish(job, std::move(outcome));
    if (used) mark_used(value.fd.get(), *value.use);
}

// Helps with a value. Nobody waits for one that has not come yet.
class HelpTask final : public Task {
  public:
    explicit HelpTask(std::shared_ptr<SharedRead> shared) : shared_(std::move(shared)) {}
    void run() override {
        if (shared_->join()) shared_->read();
    }
    void cancel() override {}

  private:
    std::shared_ptr<SharedRead> shared_;
};

class ReadTask final : public Task {
  public:
    ReadTask(std::shared_ptr<FileContext> context, std::weak_ptr<ThreadPool> pool, Job&& job)
        : context_(std::move(context)), pool_(std::move(pool)), job_(std::move(job)) {}

    void run() override {
        auto shared = std::make_shared<SharedRead>(context_, std::move(job_));
        auto& op = shared->job.op;
        if (!open_value(*context_->root, context_->facts, op, context_->direct, shared->value, shared->outcome)) {
            context_->delivery.finish(shared->job, std::move(shared->outcome));
            return;
        }
        shared->walk = BufferWalk(op.buffers);
        shared->offset = op.offset;
        shared->left = shared->value.length;
        ask_for_help(shared);
        shared->read();
    }
    void cancel() override { context_->delivery.finish(job_, cancelled_by_close()); }

  private:
    void ask_for_help(const std::shared_ptr<SharedRead>& shared) {
        const auto pieces = (shared->left + limits::file_piece_bytes - 1) / limits::file_piece_bytes;
        const auto helpers = std::min<std::uint64_t>(pieces - 1, limits::file_threads_default - 1);
        const auto pool = pool_.lock();
        if (helpers == 0 || !pool) return;
        std::vector<std::unique_ptr<Task>> tasks;
        for (std::uint64_t i = 0; i < helpers; ++i) tasks.push_back(std::make_unique<HelpTask>(shared));
        pool->post(Lane::read, std::move(tasks));
    }

    std::shared_ptr<FileContext> context_;
    std::weak_ptr<ThreadPool> pool_;
    Job job_;
};

class MarkTask final : public Task {
  public:
    explicit MarkTask(std::vector<UsedFile>&& files) : files_(std::move(files)) {}
    void run() override {
        for (const auto& file : files_) mark_used(file.fd.get(), file.mark);
    }
    void cancel() override {}

  private:
    std::vector<UsedFile> files_;
};

class CollectTask final : public Task {
  public:
    explicit CollectTask(std::shared_ptr<FileContext> context) : context_(std::move(context)) {}
    void run() override { collect_temporaries(*context_->root); }
    void cancel() override {}

  private:
    std::shared_ptr<FileContext> context_;
};

}  // namespace

std::unique_ptr<Task> blocking_task(std::shared_ptr<FileContext> context, std::vector<Job>&& jobs) {
    return std::make_unique<BlockingTask>(std::move(context), std::move(jobs));
}

std::unique_ptr<Task> blocking_task(std::shared_ptr<FileContext> context, Job&& job) {
    return std::make_unique<SingleTask>(std::move(context), std::move(job));
}

std::unique_ptr<Task> read_task(std::shared_ptr<FileContext> context, std::weak_ptr<ThreadPool> pool, Job&& job) {
    return std::make_unique<ReadTask>(std::move(context), std::move(pool), std::move(job));
}

std::unique_ptr<Task> mark_task(std::vector<UsedFile>&& files) {
    return std::make_unique<MarkTask>(std::move(files));
}

std::unique_ptr<Task> collect_task(std::shared_ptr<FileContext> context) {
    return std::make_unique<CollectTask>(std::move(context));
}

}  // namespace kvern
