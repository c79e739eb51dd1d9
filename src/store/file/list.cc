// SPDX-License-Identifier: Apache-2.0
#include "store/file/list.h"

#include <dirent.h>
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "base/clock.h"
#include "kvern/limits.h"
#include "store/file/look.h"

namespace kvern {
namespace {

constexpr std::size_t folders_kept = 8;  // of a few lists at a time, a few levels each
// A change within this time after the folder's last one may have left its mtime as it was.
constexpr std::int64_t tick_ns = 1'000'000'000;

bool is_folder(const std::string& name) {
    return name.back() == '/';
}

bool same_time(const struct stat& a, const struct stat& b) {
    return a.st_mtim.tv_sec == b.st_mtim.tv_sec && a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

class Lister {
  public:
    Lister(const FileRoot& root, const Op& op, ListMemory& memory)
        : root_(root), op_(op), memory_(memory), limit_(std::min(op.limit, limits::list_entries_max)) {}

    Outcome list();
    std::size_t skipped() const { return skipped_; }

  private:
    // Adds what is below the folder `path` ("" or ending in '/'). Takes `fd`. False: the page is full, or error_ is
    // set.
    bool add_folder(Fd fd, const std::string& path);
    bool add_names(int fd, const FolderNames& folder);
    int read_names(int fd, FolderNames& folder);
    std::size_t first_wanted(const FolderNames& folder) const;
    bool add_file(int dir, const std::string& path, const std::string& name);
    // `path` ends in '/': whether a key below it can have the prefix.
    bool can_hold_prefix(const std::string& path) const {
        return path.starts_with(op_.key) || op_.key.starts_with(path);
    }

    const FileRoot& root_;
    const Op& op_;
    ListMemory& memory_;
    const std::size_t limit_;
    Outcome outcome_;
    std::size_t skipped_ = 0;
};

Outcome Lister::list() {
    outcome_.status = Status::ok;
    const auto slash = op_.key.rfind('/');
    const auto path = slash == std::string::npos ? std::string() : op_.key.substr(0, slash + 1);
    const auto folder = path.empty() ? std::string(".") : path.substr(0, slash);
    const int fd = root_.open_below(folder.c_str(), O_RDONLY | O_DIRECTORY);
    if (fd < 0) return means_miss(-fd) ? outcome_ : file_failure(root_, folder, "list", fd);
    add_folder(Fd(fd), path);
    return std::move(outcome_);
}

bool Lister::add_folder(Fd fd, const std::string& path) {
    FolderNames folder{path, op_.key, {}, {}, WallClock::system().now_ns()};
    int error = fstat(fd.get(), &folder.status) == 0 ? 0 : -errno;
    if (error == 0 && !memory_.take(folder)) error = read_names(fd.get(), folder);
    if (error != 0) {
        outcome_ = file_failure(root_, path, "list", error);
        return false;
    }
    if (add_names(fd.get(), folder)) return true;
    if (outcome_.more) memory_.keep(std::move(folder));
    return false;
}

bool Lister::add_names(int fd, const FolderNames& folder) {
    for (auto i = first_wanted(folder); i < folder.names.size(); ++i) {
        const auto& name = folder.names[i];
        if (!is_folder(name)) {
            if (!add_file(fd, folder.path, name)) return false;
            continue;
        }
        const auto plain = name.substr(0, name.size() - 1);
        Fd below(openat(fd, plain.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
        if (!below && means_miss(errno)) continue;  // removed meanwhile
        if (!below) {
            outcome_ = file_failure(root_, folder.path + plain, "list", -errno);
            return false;
        }
        if (!add_folder(std::move(below), folder.path + name)) return false;
    }
    return true;
}

// Of the names, sorted, those that lie behind `after` or, being folders, can hold a key that does.
std::size_t Lister::first_wanted(const FolderNames& folder) const {
    if (!op_.after.starts_with(folder.path)) return op_.after > folder.path ? folder.names.size() : 0;
    const std::string_view after = std::string_view(op_.after).substr(folder.path.size());
    const auto done = [&](const std::string& name) {
        return is_folder(name) ? after.substr(0, name.size()) > name : name <= after;
    };
    return static_cast<std::size_t>(std::partition_point(folder.names.begin(), folder.names.end(), done) -
                                    folder.names.begin());
}

int Lister::read_names(int fd, FolderNames& folder) {
    const auto& path = folder.path;
    // The stream has its own descriptor and is closed before going deeper: its buffer is 32 KiB.
    const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0) return -errno;
    const std::unique_ptr<DIR, int (*)(DIR*)> stream(fdopendir(own), closedir);
    if (!stream) {
        const int error = -errno;
        close(own);
        return error;
    }
    for (errno = 0; const auto* entry = readdir(stream.get()); errno = 0) {
        const std::string name(entry->d_name);
        if (name == "." || name == ".." || (path.empty() && name == temporaries_name)) continue;
        auto type = entry->d_type;
        if (type == DT_UNKNOWN) {
            struct stat status {};
            if (fstatat(fd, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
            type = static_cast<unsigned char>(S_ISREG(status.st_mode)   ? DT_REG
                                              : S_ISDIR(status.st_mode) ? DT_DIR
                                                                        : DT_LNK);
        }
        const auto key = path + name;
        if (type == DT_DIR ? !can_hold_prefix(key + "/") : !key.starts_with(op_.key)) continue;
        if ((type != DT_DIR && type != DT_REG) || !check_key(key)) {
            skipped_ += key > op_.after ? 1 : 0;
            continue;
        }
        folder.names.push_back(type == DT_DIR ? name + "/" : name);
    }
    const int error = -errno;
    std::sort(folder.names.begin(), folder.names.end());
    return error;
}

bool Lister::add_file(int dir, const std::string& path, const std::string& name) {
    struct stat status {};
    if (fstatat(dir, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 || !is_value(status)) return true;
    if (outcome_.entries.size() == limit_) {
        outcome_.more = true;
        return false;
    }
    auto stat = stat_of(status);
    outcome_.entries.push_back(Entry{path + name, stat.size_bytes, stat.mtime_ns, std::move(stat.etag)});
    return true;
}

}  // namespace

bool ListMemory::take(FolderNames& wanted) {
    const std::lock_guard lock(mutex_);
    const auto same = [&](const FolderNames& one) { return one.path == wanted.path && one.prefix == wanted.prefix; };
    const auto found = std::find_if(folders_.begin(), folders_.end(), same);
    if (found == folders_.end()) return false;
    auto folder = std::move(*found);
    folders_.erase(found);
    const auto changed_ns = stat_of(wanted.status).mtime_ns;
    if (folder.status.st_ino != wanted.status.st_ino || !same_time(folder.status, wanted.status) ||
        folder.read_ns - changed_ns < tick_ns)
        return false;
    wanted = std::move(folder);
    return true;
}

void ListMemory::keep(FolderNames&& folder) {
    const std::lock_guard lock(mutex_);
    folders_.push_front(std::move(folder));
    if (folders_.size() > folders_kept) folders_.pop_back();
}

Outcome file_list(const FileRoot& root, const Op& op, ListMemory& memory, std::size_t& skipped) {
    Lister lister(root, op, memory);
    auto outcome = lister.list();
    skipped = lister.skipped();
    return outcome;
}

}  // namespace kvern
