// SPDX-License-Identifier: Apache-2.0
// The tasks of a file store's thread pool. Each answers its jobs exactly once, by run() or by cancel().
#pragma once

#include <memory>
#include <vector>

#include "store/file/context.h"
#include "store/thread_pool.h"

namespace kvern {

// Answers puts, stats, removes and lists, one after the other; the completions are pushed together.
std::unique_ptr<Task> blocking_task(std::shared_ptr<FileContext> context, std::vector<Job>&& jobs);
std::unique_ptr<Task> blocking_task(std::shared_ptr<FileContext> context, Job&& job);

// A get by preads. A value of several pieces is shared with other threads of the pool that have nothing else to read.
std::unique_ptr<Task> read_task(std::shared_ptr<FileContext> context, std::weak_ptr<ThreadPool> pool, Job&& job);

// Marks files as used, when nothing else is to be done.
std::unique_ptr<Task> mark_task(std::vector<UsedFile>&& files);

// Removes old temporaries.
std::unique_ptr<Task> collect_task(std::shared_ptr<FileContext> context);

}  // namespace kvern
