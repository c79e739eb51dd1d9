// SPDX-License-Identifier: Apache-2.0
#include "store/file/root.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sched.h>
#include <sys/random.h>
#include <sys/syscall.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>

#include "base/clock.h"

namespace kvern {
namespace {

constexpr int attempts_max = 32;  // against others that make or remove directories, or rename them, meanwhile

thread_local bool has_own_umask = false;

int openat2_call(int dir, const char* path, int flags, std::uint64_t resolve) {
    open_how how{};
    how.flags = static_cast<std::uint64_t>(flags) | O_CLOEXEC;
    how.resolve = resolve;
    const auto fd = syscall(SYS_openat2, dir, path, &how, sizeof how);
    return fd < 0 ? -errno : static_cast<int>(fd);
}

constexpr std::uint64_t resolve_inside = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;

char* append_hex(char* to, char* end, std::uint64_t value) {
    return std::to_chars(to, end, value, 16).ptr;
}

}  // namespace

bool take_own_umask() {
    if (unshare(CLONE_FS) != 0) return false;
    umask(0);
    has_own_umask = true;
    return true;
}

bool means_miss(int errno_value) {
    return errno_value == ENOENT || errno_value == ENOTDIR || errno_value == ELOOP;
}

std::string etag_of(const struct stat& status) {
    const std::uint64_t parts[] = {
        status.st_ino,
        static_cast<std::uint64_t>(has_whole_seconds(status) ? status.st_mtim.tv_sec : status.st_mtim.tv_nsec),
        static_cast<std::uint64_t>(status.st_size)};
    std::string text;
    text.reserve(48);
    for (const auto part : parts) {
        char digits[17];
        if (!text.empty()) text += '-';
        text.append(digits, append_hex(digits, digits + sizeof digits, part));
    }
    return text;
}

Stat stat_of(const struct stat& status) {
    Stat stat;
    stat.size_bytes = static_cast<std::uint64_t>(status.st_size);
    const auto& mtime = status.st_mtim;
    stat.mtime_ns = unix_ns(std::chrono::seconds(mtime.tv_sec), std::chrono::nanoseconds(mtime.tv_nsec));
    stat.etag = etag_of(status);
    return stat;
}

FileRoot::FileRoot(std::string path, Fd fd, const struct stat& status)
    : path_(std::move(path)), fd_(std::move(fd)), mode_(status.st_mode & 07777) {
    const Fd probe(openat2_call(fd_.get(), ".", O_PATH | O_DIRECTORY, resolve_inside));
    openat2_ = static_cast<bool>(probe);
    std::uint64_t random = 0;
    if (getrandom(&random, sizeof random, 0) != sizeof random) {
        random = static_cast<std::uint64_t>(getpid()) << 32 ^ reinterpret_cast<std::uintptr_t>(this);
    }
    char text[32];
    unique_ = std::string(text, append_hex(text, text + sizeof text, random)) + "-";
}

Result<std::unique_ptr<FileRoot>> FileRoot::open(const std::string& path) {
    Fd fd(::open(path.c_str(), O_PATH | O_CLOEXEC));
    if (!fd) {
        const int error = errno;
        auto failure = error_from_errno(error, "store root " + path);
        if (error == ENOENT) failure.message += ": create it (mkdir -p), or check that the share is mounted";
        return tl::unexpected(std::move(failure));
    }
    struct stat status {};
    if (fstat(fd.get(), &status) != 0) return tl::unexpected(error_from_errno(errno, "store root " + path));
    if (!S_ISDIR(status.st_mode)) {
        return fail(ErrorCode::invalid_argument, "store root " + path + ": not a directory: name a directory");
    }
    return std::unique_ptr<FileRoot>(new FileRoot(path, std::move(fd), status));
}

int FileRoot::open_below(const char* path, int flags) const {
    if (!openat2_) return walk(path, flags);
    for (int attempt = 0; attempt < attempts_max; ++attempt) {
        const int fd = openat2_call(fd_.get(), path, flags, resolve_inside);
        if (fd != -EAGAIN && fd != -EINTR)
            return fd;  // EAGAIN: a rename somewhere, it can't say whether we left the root
    }
    return -EAGAIN;
}

int FileRoot::walk(const char* path, int flags) const {
    std::string_view rest(path);
    Fd parent;
    for (;;) {
        const auto slash = rest.find('/');
        const std::string component(rest.substr(0, slash));
        const int dir = parent ? parent.get() : fd_.get();
        const bool last = slash == std::string_view::npos;
        const int wanted = last ? flags : O_PATH | O_DIRECTORY;
        const int fd = openat(dir, component.c_str(), wanted | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0) return -errno;
        if (last) return fd;
        parent.reset(fd);
        rest.remove_prefix(slash + 1);
    }
}

int FileRoot::open_place(const std::string& key, bool create, Place& place) const {
    const auto slash = key.rfind('/');
    if (slash == std::string::npos) {
        place.owned.reset();
        place.dir = fd_.get();
        place.name = key.c_str();
        return 0;
    }
    const auto path = key.substr(0, slash);
    int fd = open_below(path.c_str(), O_PATH | O_DIRECTORY);
    for (int attempt = 0; fd == -ENOENT && create && attempt < attempts_max; ++attempt) {
        if (const int error = make_directories(path); error != 0 && error != -ENOENT) return error;
        fd = open_below(path.c_str(), O_PATH | O_DIRECTORY);
    }
    if (fd < 0) return fd;
    place.owned.reset(fd);
    place.dir = fd;
    place.name = key.c_str() + slash + 1;
    return 0;
}

int FileRoot::make_directories(std::string_view path) const {
    for (std::size_t end = 0; end != std::string_view::npos;) {
        end = path.find('/', end + 1);
        const std::string part(path.substr(0, end));
        Place place;
        if (const int error = open_place(part, false, place); error != 0) return error;
        if (const int error = make_directory(place.dir, place.name); error != 0) return error;
    }
    return 0;
}

int FileRoot::make_directory(int parent, const char* name) const {
    if (mkdirat(parent, name, dir_mode()) != 0) return errno == EEXIST ? 0 : -errno;
    if (has_own_umask) return 0;  // a setgid bit is inherited from the parent
    const Fd made(openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (made && fchmod(made.get(), dir_mode()) != 0) return -errno;
    return 0;
}

int FileRoot::temporaries(std::shared_ptr<const Fd>& folder, bool again) const {
    const std::lock_guard lock(mutex_);
    if (again) temporaries_.reset();
    if (!temporaries_) {
        int fd = open_below(temporaries_name, O_RDONLY | O_DIRECTORY);
        if (fd == -ENOENT) {
            if (const int error = make_directory(fd_.get(), temporaries_name); error != 0) return error;
            fd = open_below(temporaries_name, O_RDONLY | O_DIRECTORY);
        }
        if (fd < 0) return fd;
        temporaries_ = std::make_shared<const Fd>(fd);
    }
    folder = temporaries_;
    return 0;
}

std::string FileRoot::temporary_name() const {
    char text[32];
    return unique_ + std::string(text, append_hex(text, text + sizeof text, ++counter_));
}

int FileRoot::create_file(int dir, const char* name, int flags) const {
    const int create = name == nullptr ? O_TMPFILE : O_CREAT | O_EXCL | O_NOFOLLOW;
    const int fd = openat(dir, name == nullptr ? "." : name, create | flags | O_CLOEXEC, file_mode());
    if (fd < 0) return -errno;
    if (!has_own_umask && fchmod(fd, file_mode()) != 0) {
        const int error = errno;
        close(fd);
        if (name != nullptr) unlinkat(dir, name, 0);
        return -error;
    }
    return fd;
}

}  // namespace kvern
