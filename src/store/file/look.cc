// SPDX-License-Identifier: Apache-2.0
#include "store/file/look.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/xattr.h>

#include <cerrno>
#include <cstdio>
#include <thread>

#include "kvern/limits.h"

namespace kvern {

Outcome file_failure(const FileRoot& root, const std::string& key, std::string_view what, int error) {
    const auto where = root.path() + "/" + key + ": ";
    switch (-error) {
        case EISDIR:
        case ENOTEMPTY:
        case ENOTDIR:
            return failed(ErrorCode::not_supported,
                          where + "in a file store one key can't be the folder of another: " + std::string(what));
        case ELOOP:
            return failed(ErrorCode::permission,
                          where + "a symlink is in the way, and links below the root are never followed");
        case EWOULDBLOCK:
            return busy(where + "others have held the lock for etags too long");
        default:
            return failed(error_from_errno(-error, where + std::string(what)));
    }
}

std::string read_metadata(int fd, bool path_only) {
    char bytes[limits::metadata_bytes_max];
    ssize_t size = 0;
    if (path_only) {
        char path[32];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        size = getxattr(path, metadata_attribute, bytes, sizeof bytes);
    } else {
        size = fgetxattr(fd, metadata_attribute, bytes, sizeof bytes);
    }
    return size > 0 ? std::string(bytes, static_cast<std::size_t>(size)) : std::string();
}

Outcome file_stat(const FileRoot& root, const FileFacts& facts, const Op& op) {
    const int opened = root.open_below(op.key.c_str(), O_PATH | O_NOFOLLOW);
    if (opened < 0) return means_miss(-opened) ? missed() : file_failure(root, op.key, "open", opened);
    const Fd fd(opened);
    struct stat status {};
    if (fstat(fd.get(), &status) != 0) return file_failure(root, op.key, "stat", -errno);
    if (!is_value(status)) return missed();
    Outcome outcome;
    outcome.status = Status::ok;
    outcome.stat = stat_of(status);
    if (op.with_metadata && facts.attributes) outcome.stat.metadata = read_metadata(fd.get(), true);
    return outcome;
}

Outcome file_remove(const FileRoot& root, const Op& op, ChangeLock& lock) {
    Place place;
    if (const int error = root.open_place(op.key, false, place); error != 0) {
        return means_miss(-error) ? missed() : file_failure(root, op.key, "open", error);
    }
    struct stat status {};
    const auto look = [&] { return fstatat(place.dir, place.name, &status, AT_SYMLINK_NOFOLLOW) == 0 ? 0 : -errno; };
    if (const int error = look(); error != 0) {
        return means_miss(-error) ? missed() : file_failure(root, op.key, "stat", error);
    }
    if (!is_value(status)) return missed();
    if (const int error = lock.take(root, op.condition == Condition::etag); error != 0) {
        return file_failure(root, op.key, "lock", error);
    }
    if (op.condition == Condition::etag) {
        const int error = look();
        if (error == -ENOENT || (error == 0 && !is_value(status))) return missed();
        if (error != 0) return file_failure(root, op.key, "stat", error);
        if (etag_of(status) != op.etag) {
            auto outcome = failed(precondition_failure(op.condition, true));
            outcome.stat = stat_of(status);
            return outcome;
        }
    }
    if (unlinkat(place.dir, place.name, 0) != 0) {
        return errno == ENOENT ? missed() : file_failure(root, op.key, "unlink", -errno);
    }
    Outcome outcome;
    outcome.status = Status::ok;
    return outcome;
}

namespace {

// For writing, since NFS 4 locks exclusively only what is open so; elsewhere anybody who may read it may lock it.
int open_lock(int folder) {
    const int fd = openat(folder, "lock", O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 || (errno != EACCES && errno != EROFS)) return fd;
    return openat(folder, "lock", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
}

}  // namespace

int ChangeLock::take(const FileRoot& root, bool exclusive) {
    if (fd_ && exclusive == exclusive_) return 0;
    fd_.reset();
    std::shared_ptr<const Fd> folder;
    int error = root.temporaries(folder);
    for (int attempt = 0; error == 0; ++attempt) {
        fd_.reset(open_lock(folder->get()));
        if (!fd_ && errno == ENOENT && attempt < 4) {
            fd_.reset(root.create_file(folder->get(), "lock", O_RDWR));
            if (!fd_ && attempt == 2) error = root.temporaries(folder, true);
            if (!fd_) continue;
        }
        if (!fd_) return -errno;
        break;
    }
    if (error != 0) return error;
    const auto deadline = std::chrono::steady_clock::now() + limits::file_lock_wait;
    while (flock(fd_.get(), (exclusive ? LOCK_EX : LOCK_SH) | LOCK_NB) != 0) {
        const int failure = errno;
        const bool late = std::chrono::steady_clock::now() > deadline;
        if (late || (failure != EWOULDBLOCK && failure != EINTR)) {
            fd_.reset();  // else it would look held
            return late ? -EWOULDBLOCK : -failure;
        }
        // A blocking flock can't be given a deadline, and its holder may be a stopped process.
        std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    exclusive_ = exclusive;
    return 0;
}

}  // namespace kvern
