// SPDX-License-Identifier: Apache-2.0
// FileRoot: the directory of a file store, and every way to a name below it.
//
// Any thread; immutable after open() but for the descriptor of the temporaries' folder, which is under a lock. Results
// are the kernel's: a descriptor or 0, or a negative errno value; the callers make errors of them.
//
// The root itself may be reached through symlinks. Below it no symlink, no magic link and no ".." is ever followed:
// openat2(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS), or where that call is forbidden (an old
// kernel, seccomp) a walk that opens one component at a time with O_NOFOLLOW. Does not check keys (check_key) and moves
// no bytes.
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "kvern/result.h"
#include "kvern/store.h"

namespace kvern {

// The extended attribute that holds a value's metadata.
inline constexpr const char* metadata_attribute = "user.kvern.metadata";
inline constexpr const char* temporaries_name = ".kvern-tmp";

// Where a key lives: its directory, and its name in it. `name` points into the key.
struct Place {
    Fd owned;  // none where the directory is the root itself
    int dir = -1;
    const char* name = nullptr;
};

// Where the process's umask is not wanted, a thread can have one of its own (0). False where that is forbidden; files
// and directories then get their mode by a further system call. For threads of this store only.
bool take_own_umask();

class FileRoot {
  public:
    // Errors: missing (with the remedy), not a directory, no permission.
    static Result<std::unique_ptr<FileRoot>> open(const std::string& path);

    const std::string& path() const { return path_; }
    int fd() const { return fd_.get(); }
    bool walks() const { return !openat2_; }  // openat2 is not available
    // For files and directories created here, from the mode of the root.
    mode_t file_mode() const { return mode_ & 0666; }
    mode_t dir_mode() const { return mode_ & 03777; }

    // Opens `path` (components separated by '/', "." for the root). Never follows a link. O_CLOEXEC is added.
    int open_below(const char* path, int flags) const;
    // The directory of `key`, as O_PATH. With `create` missing directories are made, also when others remove or make
    // them at the same time. `key` must outlive `place`.
    int open_place(const std::string& key, bool create, Place& place) const;

    // The folder for unfinished files, created if missing; `again` opens it anew after it vanished.
    int temporaries(std::shared_ptr<const Fd>& folder, bool again = false) const;
    std::string temporary_name() const;  // unique over processes and hosts

    // A new file in `dir` with the mode of this store: `name`, which must not exist, or null for a file without a name.
    int create_file(int dir, const char* name, int flags) const;

  private:
    FileRoot(std::string path, Fd fd, const struct stat& status);
    int walk(const char* path, int flags) const;
    int make_directories(std::string_view path) const;
    int make_directory(int parent, const char* name) const;

    std::string path_;
    Fd fd_;
    mode_t mode_;
    bool openat2_ = false;
    std::string unique_;
    mutable std::atomic<std::uint64_t> counter_{0};
    mutable std::mutex mutex_;
    mutable std::shared_ptr<const Fd> temporaries_;
};

// inode, size, and the part of mtime below a second. Publishing sets mtime to the nanosecond, so that part is another
// one in a new version, also in a reused inode of the same size, and where the file system's own clock ticks in
// milliseconds; marking a value as used moves only the seconds (use.h). Where a file system keeps whole
// seconds only, they are in the etag, and nothing is marked there.
std::string etag_of(const struct stat& status);
inline bool has_whole_seconds(const struct stat& status) {
    return status.st_mtim.tv_nsec == 0;
}
Stat stat_of(const struct stat& status);
// Whether the fstat of what stands at a key makes it a value: only regular files do.
inline bool is_value(const struct stat& status) {
    return S_ISREG(status.st_mode);
}

// Errno values that mean: there is no value at this key, and never was a readable one (missing, a file where a
// directory should be, a symlink in the way).
bool means_miss(int errno_value);

}  // namespace kvern
