// SPDX-License-Identifier: Apache-2.0
#include "store/file/publish.h"

#include <dirent.h>
#include <fcntl.h>

#include <cerrno>
#include <ctime>

#include "base/log.h"
#include "kvern/limits.h"
#include "store/file/look.h"

namespace kvern {
namespace {

constexpr int attempts_max = 32;  // against others that remove the folder, or the key, meanwhile

// What stands at a place: 0 and `status`, or a negative errno value.
int look(const Place& place, struct stat& status) {
    return fstatat(place.dir, place.name, &status, AT_SYMLINK_NOFOLLOW) == 0 ? 0 : -errno;
}

Outcome exists_already(const struct stat& status) {
    if (!is_value(status)) {
        return failed(ErrorCode::precondition, "something that is not a regular file has this name");
    }
    auto outcome = failed(precondition_failure(Condition::absent, true));
    outcome.stat = stat_of(status);
    return outcome;
}

Outcome etag_differs(int error, const struct stat& status) {
    const bool exists = error == 0 && is_value(status);
    auto outcome = failed(precondition_failure(Condition::etag, exists));
    if (exists) outcome.stat = stat_of(status);
    return outcome;
}

// Whether the condition holds for what stands there now; if not, `outcome` says so.
bool holds(const Op& op, int error, const struct stat& status, Outcome& outcome) {
    if (op.condition == Condition::absent && error == 0) {
        outcome = exists_already(status);
        return false;
    }
    if (op.condition == Condition::etag && (error != 0 || !is_value(status) || etag_of(status) != op.etag)) {
        outcome = etag_differs(error, status);
        return false;
    }
    return true;
}

// One attempt to give the file its name. -EEXIST: `outcome` says what is there.
int publish_once(const FileRoot& root, const Op& op, NewFile& file, const Place& place, Outcome& outcome) {
    struct stat status {};
    if (op.condition == Condition::absent) {
        const int error = file.link(place.dir, place.name);
        if (error != -EEXIST) return error;
        if (look(place, status) != 0) return -ENOENT;  // gone again: try once more
        outcome = exists_already(status);
        return -EEXIST;
    }
    ChangeLock lock;
    if (const int error = lock.take(root, op.condition == Condition::etag); error != 0) return error;
    if (op.condition == Condition::etag && !holds(op, look(place, status), status, outcome)) return -EEXIST;
    const int error = file.rename(place.dir, place.name);
    return error == -EEXIST ? -ENOTEMPTY : error;
}

// Creating in a folder that was removed after it was opened: ENOENT, or EPERM on ext4. A real EPERM comes again.
bool may_be_gone(int error) {
    return error == -ENOENT || error == -EPERM;
}

Outcome metadata_failure(const FileRoot& root, const std::string& key, std::size_t size_bytes, int error) {
    if (error == -EOPNOTSUPP || error == -ENOSPC || error == -E2BIG || error == -ERANGE) {
        return failed(ErrorCode::not_supported, root.path() + "/" + key + ": this file system has no room for " +
                                                    std::to_string(size_bytes) +
                                                    " bytes of metadata in an extended attribute");
    }
    return file_failure(root, key, "metadata", error);
}

}  // namespace

Outcome file_put(const FileRoot& root, const FileFacts& facts, bool direct, const Op& op) {
    Place place;
    int error = root.open_place(op.key, false, place);
    if (error != 0 && error != -ENOENT) return file_failure(root, op.key, "open", error);
    struct stat status {};
    Outcome outcome;
    const int there = error == 0 ? look(place, status) : error;
    if (!holds(op, there, status, outcome)) return outcome;
    if (error != 0 && (error = root.open_place(op.key, true, place)) != 0) {
        return file_failure(root, op.key, "making its folder", error);
    }
    NewFile file;
    const bool unnamed = op.condition == Condition::absent;
    for (int attempt = 0; attempt < attempts_max; ++attempt) {
        error = unnamed ? file.create_unnamed(root, facts, place.dir, direct) : file.create_named(root, direct);
        if (!may_be_gone(error)) break;
        if (const int made = root.open_place(op.key, true, place); made != 0) {
            return file_failure(root, op.key, "making its folder", made);
        }
    }
    if (error != 0) return file_failure(root, op.key, "creating a file", error);
    if (error = file.write(0, op.buffers, true); error != 0) return file_failure(root, op.key, "write", error);
    return file_publish(root, op, op.key, file, total_bytes(op.buffers), op.metadata, std::move(place));
}

Outcome file_publish(const FileRoot& root, const Op& op, const std::string& key, NewFile& file,
                     std::uint64_t size_bytes, const std::string& metadata, Place place) {
    struct stat status {};
    if (const int error = file.finish(size_bytes, metadata, status); error != 0) {
        return file.metadata_failed() ? metadata_failure(root, key, metadata.size(), error)
                                      : file_failure(root, key, "finishing the file", error);
    }
    Outcome outcome;
    int error = -ENOENT;
    for (int attempt = 0; error == -ENOENT && attempt < attempts_max; ++attempt) {
        error = attempt == 0 && place.dir >= 0 ? 0 : root.open_place(key, true, place);
        if (error == 0) error = publish_once(root, op, file, place, outcome);
    }
    if (error == -EEXIST) return outcome;
    if (error != 0) return file_failure(root, key, "publishing", error);
    outcome.status = Status::ok;
    outcome.bytes = size_bytes;
    outcome.stat = stat_of(status);
    return outcome;
}

std::size_t collect_temporaries(const FileRoot& root) {
    const int fd = root.open_below(temporaries_name, O_RDONLY | O_DIRECTORY);
    if (fd < 0) return 0;
    DIR* const folder = fdopendir(fd);
    if (folder == nullptr) {
        close(fd);
        return 0;
    }
    const auto age_max = std::chrono::duration_cast<std::chrono::seconds>(limits::temporary_age_max).count();
    const auto oldest = std::time(nullptr) - age_max;
    std::size_t removed = 0;
    while (const auto* entry = readdir(folder)) {
        struct stat status {};
        if (fstatat(fd, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0 || !is_value(status)) continue;
        if (std::string_view(entry->d_name) == "lock" || status.st_mtim.tv_sec > oldest) continue;
        if (unlinkat(fd, entry->d_name, 0) == 0) ++removed;
    }
    closedir(folder);
    if (removed > 0) {
        log(LogLevel::info, "store",
            root.path() + ": removed " + std::to_string(removed) + " temporaries that ended processes had left");
    }
    return removed;
}

}  // namespace kvern
