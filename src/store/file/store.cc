// SPDX-License-Identifier: Apache-2.0
#include "store/file/store.h"

#include <algorithm>
#include <array>
#include <future>
#include <mutex>
#include <shared_mutex>
#include <system_error>
#include <thread>

#include "base/text.h"
#include "base/thread.h"
#include "store/file/tasks.h"
#include "store/file/uploads.h"
#include "store/op_check.h"
#include "store/thread_pool.h"
#include "store/uring_reader.h"

namespace kvern {
namespace {

constexpr std::size_t no_limit = ~std::size_t{0};

class FileStore final : public Store {
  public:
    // `threads_why`: why reads take the pool; empty: they take io_uring, if they are at most `ring_bytes_max` long.
    FileStore(std::shared_ptr<FileContext> context, std::string threads_why, unsigned depth,
              std::size_t ring_bytes_max);
    ~FileStore() override { FileStore::close(limits::close_wait); }

    void submit(std::span<Op> ops, CompletionQueue& queue) override;
    Capabilities capabilities() const override {
        return {.durable = true,
                .shared = true,
                .ranged = true,
                .conditional_put = true,
                .cheap_stat = cheap_stat_,
                .key_bytes_max = limits::key_bytes_max,
                .metadata_bytes_max = context_->facts.attributes ? limits::metadata_bytes_max : 0};
    }
    std::string describe() const override;
    void attach(std::shared_ptr<Region> region) override;
    bool close(std::chrono::milliseconds wait) override;

  private:
    // The operations of one submit, by the way they take.
    struct Sorted {
        std::vector<Job> ring_reads;
        std::vector<Job> pool_reads;
        std::vector<Job> stats;
        std::vector<Job> removes;
        std::vector<std::unique_ptr<Task>> looks;
        std::vector<std::unique_ptr<Task>> writes;
    };
    void sort(Job&& job, Sorted& sorted);
    void hand_out(Sorted&& sorted);

    const std::shared_ptr<FileContext> context_;
    const std::shared_ptr<ThreadPool> pool_;
    const std::shared_ptr<FileUploads> uploads_;
    const std::string threads_why_;
    const unsigned depth_;
    const std::size_t ring_bytes_max_;
    const bool cheap_stat_;
    std::unique_ptr<UringReader> ring_;  // none: reads take the pool

    std::shared_mutex mutex_;  // shared by submit, so that close() comes before or after a submit
    bool closed_ = false;
    std::mutex close_mutex_;
    bool ended_ = false;  // under close_mutex_: what close() has returned
    bool close_result_ = false;
};

// Kept apart from the class: the ring's thread may outlive the store.
std::vector<std::unique_ptr<Task>> make_read_tasks(const std::shared_ptr<FileContext>& context,
                                                   const std::shared_ptr<ThreadPool>& pool, std::vector<Job>&& jobs) {
    std::vector<std::unique_ptr<Task>> tasks;
    tasks.reserve(jobs.size());
    for (auto& job : jobs) tasks.push_back(read_task(context, pool, std::move(job)));
    return tasks;
}

// Whether a look asks a server: then thousands of them are too many.
bool is_remote(const FileFacts& facts) {
    static constexpr std::array<std::string_view, 9> remote{"nfs",    "cifs", "smb2", "ceph", "lustre",
                                                            "beegfs", "gpfs", "fuse", "9p"};
    return std::find(remote.begin(), remote.end(), facts.file_system) != remote.end();
}

FileStore::FileStore(std::shared_ptr<FileContext> context, std::string threads_why, unsigned depth,
                     std::size_t ring_bytes_max)
    : context_(std::move(context)),
      pool_(std::make_shared<ThreadPool>(limits::file_threads_default, limits::file_look_threads)),
      uploads_(std::make_shared<FileUploads>(context_)),
      threads_why_(std::move(threads_why)),
      depth_(depth),
      ring_bytes_max_(ring_bytes_max),
      cheap_stat_(!is_remote(context_->facts)) {
    context_->mark_later = [pool = std::weak_ptr(pool_)](std::vector<UsedFile>&& files) {
        if (const auto shared = pool.lock()) shared->post(Lane::write, mark_task(std::move(files)));
    };
    if (threads_why_.empty()) {
        ring_ =
            std::make_unique<UringReader>(context_, depth_, [ctx = context_, pool = pool_](std::vector<Job>&& jobs) {
                pool->post(Lane::read, make_read_tasks(ctx, pool, std::move(jobs)));
            });
    }
    if (context_->facts.writable) pool_->post(Lane::write, collect_task(context_));
}

void FileStore::submit(std::span<Op> ops, CompletionQueue& queue) {
    Sorted sorted;
    const std::shared_lock lock(mutex_);
    context_->delivery.enter(ops, queue, closed_, check_op, [&](Job&& job) { sort(std::move(job), sorted); });
    hand_out(std::move(sorted));
}

void FileStore::sort(Job&& job, Sorted& sorted) {
    switch (job.op.kind) {
        case OpKind::get: {
            const bool by_ring = ring_ && total_bytes(job.op.buffers) <= ring_bytes_max_;
            (by_ring ? sorted.ring_reads : sorted.pool_reads).push_back(std::move(job));
            break;
        }
        case OpKind::stat:
            sorted.stats.push_back(std::move(job));
            if (sorted.stats.size() == limits::file_stats_per_task) {
                sorted.looks.push_back(blocking_task(context_, std::move(sorted.stats)));
                sorted.stats.clear();
            }
            break;
        case OpKind::remove:
            sorted.removes.push_back(std::move(job));
            if (sorted.removes.size() == limits::file_removes_per_task) {
                sorted.looks.push_back(blocking_task(context_, std::move(sorted.removes)));
                sorted.removes.clear();
            }
            break;
        case OpKind::list:
        case OpKind::space:
            sorted.looks.push_back(blocking_task(context_, std::move(job)));
            break;
        case OpKind::put:
            sorted.writes.push_back(blocking_task(context_, std::move(job)));
            break;
        case OpKind::begin:
        case OpKind::append:
        case OpKind::commit:
        case OpKind::abort:
            if (auto task = uploads_->task(std::move(job))) sorted.writes.push_back(std::move(task));
            break;
    }
}

void FileStore::hand_out(Sorted&& sorted) {
    for (auto* const rest : {&sorted.stats, &sorted.removes}) {
        if (!rest->empty()) sorted.looks.push_back(blocking_task(context_, std::move(*rest)));
    }
    if (!sorted.looks.empty()) pool_->post(Lane::look, std::move(sorted.looks));
    if (!sorted.ring_reads.empty()) ring_->submit(std::move(sorted.ring_reads));
    if (!sorted.pool_reads.empty()) {
        pool_->post(Lane::read, make_read_tasks(context_, pool_, std::move(sorted.pool_reads)));
    }
    if (!sorted.writes.empty()) pool_->post(Lane::write, std::move(sorted.writes));
}

std::string FileStore::describe() const {
    const auto& facts = context_->facts;
    auto text = "file: " + context_->root->path() + " (" + facts.file_system + "): ";
    text += context_->direct ? "direct" : "buffered (" + facts.buffered_why + ")";
    const auto larger = ring_bytes_max_ == no_limit
                            ? std::string()
                            : "; reads above " + format_size(ring_bytes_max_) +
                                  " by threads (copies from the page cache use more than one core)";
    text += ring_ ? "; reads by io_uring, depth " + std::to_string(depth_) + ", " + ring_->describe() + larger
                  : "; reads by " + std::to_string(limits::file_threads_default) + " threads (" + threads_why_ + ")";
    text += "; writes by " + std::to_string(limits::file_threads_default) + " threads";
    if (!facts.writable) {
        text += ", but the root can't be written: " + facts.not_writable_why;
    } else if (facts.link_way == LinkWay::by_name) {
        text += ", published from .kvern-tmp (" + facts.named_why + ")";
    } else {
        text += ", published from files without a name";
    }
    if (!facts.attributes) text += "; no metadata: this file system has no extended attributes";
    if (context_->root->walks()) text += "; paths walked one component at a time (openat2 is not available)";
    if (const auto skipped = context_->skipped.load(); skipped > 0) {
        text += "; lists skipped " + std::to_string(skipped) + " foreign names";
    }
    return text;
}

void FileStore::attach(std::shared_ptr<Region> region) {
    if (!region) return;
    {
        const std::lock_guard lock(context_->mutex);
        context_->regions.push_back(region);
    }
    if (ring_) ring_->attach(std::move(region));
}

bool FileStore::close(std::chrono::milliseconds wait) {
    const std::lock_guard close_lock(close_mutex_);
    if (ended_) return close_result_;
    ended_ = true;
    const auto deadline = std::chrono::steady_clock::now() + wait;
    {
        const std::unique_lock lock(mutex_);
        closed_ = true;
    }
    if (ring_) ring_->stop();
    pool_->stop(uploads_->abandon_all());
    const bool ring_ended = !ring_ || ring_->join_until(deadline);
    const bool pool_ended = pool_->join_until(deadline);
    context_->delivery.end();
    close_result_ = ring_ended && pool_ended;
    if (close_result_) {  // else a thread may still write there
        const std::lock_guard lock(context_->mutex);
        context_->regions.clear();
    }
    return close_result_;
}

// Opens the root and finds out what its file system can do, in a thread of its own: a dead server may keep it for ever.
Result<std::shared_ptr<FileContext>> open_context(const std::string& path) {
    using Opened = Result<std::shared_ptr<FileContext>>;
    auto promise = std::make_shared<std::promise<Opened>>();
    auto answer = promise->get_future();
    std::thread opener;
    try {
        opener = start_thread("kvern-open", [promise, path] {
            auto root = FileRoot::open(path);
            if (!root) return promise->set_value(tl::unexpected(root.error()));
            auto context = std::make_shared<FileContext>();
            context->root = std::move(*root);
            context->facts = find_facts(*context->root);
            promise->set_value(std::move(context));
        });
    } catch (const std::system_error& error) {
        return fail(ErrorCode::resource, "store root " + path + ": no thread to open it: " + error.what());
    }
    if (answer.wait_for(limits::open_wait) == std::future_status::ready) {
        opener.join();  // a caller that forks next must find no thread of ours
        return answer.get();
    }
    opener.detach();
    return fail(ErrorCode::unavailable, "store root " + path + ": no answer within " +
                                            std::to_string(limits::open_wait.count()) +
                                            " ms: check that the server behind this mount answers, or unmount it");
}

}  // namespace

Result<FileOptions> file_options(const Uri& uri) {
    static constexpr std::array<std::string_view, 3> known{"io", "direct", "depth"};
    static constexpr std::array<std::string_view, 3> io_values{"auto", "uring", "threads"};
    static constexpr std::array<std::string_view, 3> direct_values{"auto", "on", "off"};
    if (auto checked = uri.only(known); !checked) return tl::unexpected(checked.error());
    auto io = uri.choice("io", "auto", io_values);
    if (!io) return tl::unexpected(io.error());
    auto direct = uri.choice("direct", "auto", direct_values);
    if (!direct) return tl::unexpected(direct.error());
    const auto depth = uri.number("depth", limits::file_depth_default, 1, limits::file_depth_max);
    if (!depth) return tl::unexpected(depth.error());
    if (!uri.host.empty() || !uri.path.starts_with('/')) {
        return fail(ErrorCode::invalid_argument,
                    "store '" + uri.text + "': the path must be absolute: file:///mnt/kv, with three slashes");
    }
    return FileOptions{std::move(*io), std::move(*direct), static_cast<unsigned>(*depth)};
}

Result<std::unique_ptr<Store>> open_file_store(const Uri& uri) {
    const auto options = file_options(uri);
    if (!options) return tl::unexpected(options.error());
    auto opened = open_context(uri.path);
    if (!opened) return tl::unexpected(opened.error());
    auto context = std::move(*opened);
    auto& facts = context->facts;
    if (options->direct == "off") facts.buffered_why = "direct=off";
    if (options->direct == "on" && !facts.direct && !facts.memory_file_system) {
        return fail(ErrorCode::not_supported,
                    "store '" + uri.text + "': direct=on is not possible: " + facts.buffered_why + ": use direct=auto");
    }
    context->direct = options->direct == "on" || (options->direct == "auto" && facts.direct);

    std::string threads_why;
    if (options->io == "threads") {
        threads_why = "io=threads";
    } else if (auto why = UringReader::unusable_why(); !why.empty()) {
        if (options->io == "uring") {
            return fail(ErrorCode::not_supported,
                        "store '" + uri.text + "': io=uring is not possible: " + why + ": use io=auto");
        }
        threads_why = std::move(why);
    }
    // What is in the page cache is copied by whoever reads it: worth a second core for big values, not the hand-off for
    // small ones.
    const auto ring_bytes_max =
        options->io == "auto" && !context->direct ? limits::file_ring_cached_bytes_max : no_limit;
    return std::make_unique<FileStore>(std::move(context), std::move(threads_why), options->depth, ring_bytes_max);
}

}  // namespace kvern
