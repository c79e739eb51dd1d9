// SPDX-License-Identifier: Apache-2.0
#include "store/file_list.h"

#include <dirent.h>
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "kvern/limits.h"
#include "store/file_look.h"

namespace kvern {
namespace {

struct Name {
    std::string text;  // folders end in '/', so that sorting names sorts the keys below them
    bool folder() const { return text.back() == '/'; }
    bool operator<(const Name& other) const { return text < other.text; }
};

class Lister {
  public:
    Lister(const FileRoot& root, const Op& op)
        : root_(root), op_(op), limit_(std::min(op.limit, limits::list_entries_max)) {}

    Outcome list();
    std::size_t skipped() const { return skipped_; }

  private:
    // Adds what is below the folder `path` ("" or ending in '/'). Takes `fd`. False: the page is full, or error_ is
    // set.
    bool add_folder(Fd fd, const std::string& path);
    int read_names(int fd, const std::string& path, std::vector<Name>& names);
    bool add_file(int dir, const std::string& path, const std::string& name);
    bool wanted(const std::string& key) const { return key.starts_with(op_.key) && key > op_.after; }
    // `path` ends in '/': whether a key below it can be wanted.
    bool can_hold_wanted(const std::string& path) const {
        const bool in_prefix = path.starts_with(op_.key) || op_.key.starts_with(path);
        return in_prefix && op_.after.compare(0, path.size(), path) <= 0;
    }

    const FileRoot& root_;
    const Op& op_;
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
    std::vector<Name> names;
    if (const int error = read_names(fd.get(), path, names); error != 0) {
        outcome_ = file_failure(root_, path, "list", error);
        return false;
    }
    std::sort(names.begin(), names.end());
    for (const auto& name : names) {
        if (!name.folder()) {
            if (!add_file(fd.get(), path, name.text)) return false;
            continue;
        }
        const auto plain = name.text.substr(0, name.text.size() - 1);
        Fd below(openat(fd.get(), plain.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
        if (!below && means_miss(errno)) continue;  // removed meanwhile
        if (!below) {
            outcome_ = file_failure(root_, path + plain, "list", -errno);
            return false;
        }
        if (!add_folder(std::move(below), path + name.text)) return false;
    }
    return true;
}

int Lister::read_names(int fd, const std::string& path, std::vector<Name>& names) {
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
        if (type == DT_DIR ? !can_hold_wanted(key + "/") : !wanted(key)) continue;
        if ((type != DT_DIR && type != DT_REG) || !check_key(key)) {
            ++skipped_;
            continue;
        }
        names.push_back(Name{type == DT_DIR ? name + "/" : name});
    }
    return -errno;
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

Outcome file_list(const FileRoot& root, const Op& op, std::size_t& skipped) {
    Lister lister(root, op);
    auto outcome = lister.list();
    skipped = lister.skipped();
    return outcome;
}

}  // namespace kvern
