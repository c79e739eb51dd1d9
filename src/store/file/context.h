// SPDX-License-Identifier: Apache-2.0
// FileContext: what all threads of one file store share. Threads hold it by shared_ptr, so that one that is stuck in
// the kernel can be left behind. Any thread; the parts say themselves what is locked.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "kvern/limits.h"
#include "store/delivery.h"
#include "store/file/facts.h"
#include "store/file/list.h"
#include "store/file/root.h"
#include "store/file/use.h"

namespace kvern {

struct FileContext {
    std::unique_ptr<const FileRoot> root;
    FileFacts facts;
    bool direct = false;  // aligned transfers bypass the page cache
    Delivery delivery{limits::queued_ops_max};
    ListMemory list_memory;
    std::atomic<std::size_t> skipped{0};  // names that lists passed over
    // Marks files as used, some time later and by another thread. Set before any thread starts.
    std::function<void(std::vector<UsedFile>&&)> mark_later;

    std::mutex mutex;                              // guards regions
    std::vector<std::shared_ptr<Region>> regions;  // attached; kept until no thread can write there any more
};

}  // namespace kvern
