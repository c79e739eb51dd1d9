// SPDX-License-Identifier: Apache-2.0
// FileUploads: values that arrive in parts (begin, append, commit, abort).
//
// Any thread. Each append gets its place in the file when it is submitted, so parts are in the order of submission and
// may be written at the same time. A commit or abort that is submitted while parts are still being written is done by
// the thread that ends the last of them. A failed part fails the commit. The file stands in .kvern-tmp until it is
// committed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "store/file/context.h"
#include "store/file/write.h"
#include "store/thread_pool.h"

namespace kvern {

class FileUploads : public std::enable_shared_from_this<FileUploads> {
  public:
    explicit FileUploads(std::shared_ptr<FileContext> context) : context_(std::move(context)) {}

    // The task that does this begin, append, commit or abort; none if it must wait for others, or was answered at once.
    std::unique_ptr<Task> task(Job&& job);
    // A task that drops the uploads that nobody will commit any more; none if there are none.
    std::unique_ptr<Task> abandon_all();

  private:
    struct Upload;
    class BeginTask;
    class AppendTask;
    class EndTask;
    class AbandonTask;

    std::unique_ptr<Task> append(Job&& job);
    std::unique_ptr<Task> end(Job&& job);
    Outcome begin(Op& op);

    const std::shared_ptr<FileContext> context_;
    std::mutex mutex_;
    std::map<std::uint64_t, std::shared_ptr<Upload>> uploads_;
    std::uint64_t next_id_ = 1;
    std::size_t open_ = 0;  // with begins under way
};

}  // namespace kvern
