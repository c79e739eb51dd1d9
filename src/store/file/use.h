// SPDX-License-Identifier: Apache-2.0
// Marking a value of a file store as used: its mtime moves to now, its etag stays. Blocking system calls, any thread.
//
// The nanoseconds of mtime belong to the version (etag_of), so only the seconds move; the new mtime is at most a second
// behind the clock and never ahead of it. Such a time may only be set by the file's owner or root. Another user who may
// write the file gets the time of the file system's clock instead, which makes the etag another one: a removal or
// replacement under the old etag then does nothing, which is the safe side, and holds for the next reader again.
#pragma once

#include <sys/stat.h>

#include <optional>
#include <vector>

#include "base/fd.h"

namespace kvern {

struct UseMark {
    long nanoseconds = 0;  // of the mtime, to be kept
};

struct UsedFile {
    Fd fd;
    UseMark mark;
};

// The mark to make, if the mtime is older than limits::use_mark_interval and can be marked.
std::optional<UseMark> use_mark_due(const struct stat& status);

// Best effort: errors are ignored. `fd` may be open for reading only.
void mark_used(int fd, const UseMark& mark);

}  // namespace kvern
