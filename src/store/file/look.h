// SPDX-License-Identifier: Apache-2.0
// Looking at values of a file store and removing them: blocking system calls, any thread.
//
// Only regular files are values: a symlink, a folder or a fifo at a key is a miss. Moves no bytes of values.
#pragma once

#include "store/file/facts.h"
#include "store/file/root.h"
#include "store/op_check.h"

namespace kvern {

// An error about one key: "<root>/<key>: <what>: <the system's words>".
Outcome file_failure(const FileRoot& root, const std::string& key, std::string_view what, int error);

Outcome file_stat(const FileRoot& root, const FileFacts& facts, const Op& op);

// The metadata of an open file; empty if it has none. `fd` may be O_PATH if `path_only`.
std::string read_metadata(int fd, bool path_only);

// The lock that orders everything that replaces or removes a value: shared for unconditional changes, exclusive for a
// comparison of etags with the change that depends on it. It is a flock of .kvern-tmp/lock, so it holds between all
// Kvern processes that share the file system (NFS: where the mount passes locks to the server), not against other
// programs. Putting an absent key needs no lock: the link itself decides.
class ChangeLock {
  public:
    // 0, or a negative errno value: -EWOULDBLOCK if others held it for limits::file_lock_wait. Nothing is done where it
    // is held this way already.
    int take(const FileRoot& root, bool exclusive);

  private:
    Fd fd_;  // closing it unlocks
    bool exclusive_ = false;
};

// `lock` may hold from an earlier removal, and holds afterwards where it was needed.
Outcome file_remove(const FileRoot& root, const Op& op, ChangeLock& lock);

}  // namespace kvern
