// SPDX-License-Identifier: Apache-2.0
// file: one file a value, below one directory of a local or shared file system.
//
// Any thread may submit. Reads: direct by one io_uring thread; out of the page cache by two where small and by a pool
// of threads where large; by the pool alone where io_uring is forbidden. Writes, looks, lists and removes by the pool.
// Threads start when they are first needed. A value is written under no name (or a temporary one in .kvern-tmp) and
// then published by a link or a rename, so that no reader ever sees a part of one, whoever is killed when.
//
// What it does not do:
// - It does not sync. After a power loss a value that was published shortly before may be short or hold zeros; loads
//   verify checksums, so that is a miss there. Other users of this store must check what they read.
// - Conditions with etags are atomic among Kvern processes that share the file system's locks, not against others.
// - It never removes folders, and leaves foreign things below the root alone: they are misses, and lists skip and
//   count them.
// - One key can't be the folder of another ("a" and "a/b").
#pragma once

#include <memory>
#include <string>

#include "base/uri.h"
#include "kvern/store.h"

namespace kvern {

// The parameters of a file: URI, checked; nothing is opened.
struct FileOptions {
    std::string io;      // auto, uring, threads
    std::string direct;  // auto, on, off
    unsigned depth = 0;  // reads in flight
};
Result<FileOptions> file_options(const Uri& uri);

// file:///path?io=auto|uring|threads&direct=auto|on|off&depth=N
Result<std::unique_ptr<Store>> open_file_store(const Uri& uri);

}  // namespace kvern
