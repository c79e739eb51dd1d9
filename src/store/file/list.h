// SPDX-License-Identifier: Apache-2.0
// Listing a file store in byte order of the keys. Blocking system calls, any thread.
//
// Reads only folders that can hold a key with the prefix and behind `after`. The names of the folders in which a page
// ended are kept for the next page, so that paging through a folder costs one reading of it, however many pages that
// takes; they are used only while the folder's mtime says that nothing was added or removed since.
#pragma once

#include <sys/stat.h>

#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "store/file/root.h"
#include "store/op_check.h"

namespace kvern {

// The names of a folder that are keys, or folders of keys, with a prefix.
struct FolderNames {
    std::string path, prefix;        // "" or ending in '/'; the prefix of the list
    std::vector<std::string> names;  // sorted; folders end in '/', so that sorting names sorts the keys below them
    struct stat status {};           // of the folder, before it was read
    std::int64_t read_ns = 0;        // when
};

// What lists keep between pages. Any thread.
class ListMemory {
  public:
    // False: nothing is kept of this folder that still holds. `wanted` has path, prefix and status.
    bool take(FolderNames& wanted);
    void keep(FolderNames&& folder);

  private:
    std::mutex mutex_;
    std::deque<FolderNames> folders_;  // newest first
};

// `skipped`: names that are no values (symlinks, devices, names that can't be keys) and would have been in this page.
Outcome file_list(const FileRoot& root, const Op& op, ListMemory& memory, std::size_t& skipped);

}  // namespace kvern
