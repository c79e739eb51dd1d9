// SPDX-License-Identifier: Apache-2.0
// Preloaded into a writer by crash_test.cc: kills the process (SIGKILL) at the N-th call that changes a file system.
//
// KVERN_CRASH_AT=N, from 1; KVERN_CRASH_MODE=before|after the call, or half: counts writes only, and dies after half of
// the bytes. KVERN_CRASH_SEEN=PATH: at a normal exit the number of counted calls is written there. Writes to what is no
// regular file (pipes, eventfds) do not count. io_uring submissions would not be seen: the file engine only reads by
// it.
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdlib>
#include <cstring>

namespace {

enum class Mode { before, after, half };

struct Plan {
    unsigned long at = 0;
    Mode mode = Mode::before;
    Plan() {
        const char* number = std::getenv("KVERN_CRASH_AT");
        const char* name = std::getenv("KVERN_CRASH_MODE");
        if (number != nullptr) at = std::strtoul(number, nullptr, 10);
        if (name != nullptr && std::strcmp(name, "after") == 0) mode = Mode::after;
        if (name != nullptr && std::strcmp(name, "half") == 0) mode = Mode::half;
    }
};

const Plan& plan() {
    static const Plan instance;
    return instance;
}

std::atomic<unsigned long> seen{0};

[[noreturn]] void die() {
    syscall(SYS_kill, getpid(), SIGKILL);
    for (;;) pause();
}

// Counts one call; true if it is the one.
bool is_it() {
    return ++seen == plan().at;
}

template <class Call>
auto counted(Call call) {
    if (plan().mode == Mode::half || !is_it()) return call();
    if (plan().mode == Mode::before) die();
    call();
    die();
}

bool is_file(int fd) {
    struct stat status {};
    return fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
}

// A write, given as the whole and as half of it.
template <class Whole, class Half>
ssize_t counted_write(int fd, Whole whole, Half half) {
    if (!is_file(fd)) return whole();
    if (plan().mode != Mode::half) return counted(whole);
    if (!is_it()) return whole();
    half();
    die();
}

template <class Function>
Function real(const char* name) {
    return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

constexpr bool creates(int flags) {
    return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
}

struct Report {
    ~Report() {
        const char* path = std::getenv("KVERN_CRASH_SEEN");
        if (path == nullptr) return;
        char text[32];
        const int length = snprintf(text, sizeof text, "%lu\n", seen.load());
        const int fd = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, 0600));
        if (fd < 0) return;
        [[maybe_unused]] const auto written = syscall(SYS_write, fd, text, static_cast<std::size_t>(length));
        syscall(SYS_close, fd);
    }
} report;

}  // namespace

#define REAL(name) static const auto next = real<decltype(&::name)>(#name)

extern "C" {

ssize_t write(int fd, const void* data, size_t size) {
    REAL(write);
    return counted_write(
        fd, [&] { return next(fd, data, size); }, [&] { return next(fd, data, size / 2); });
}

#define POSITIONED_WRITE(name, offset_type)                                                                      \
    ssize_t name(int fd, const void* data, size_t size, offset_type offset) {                                    \
        REAL(name);                                                                                              \
        return counted_write(                                                                                    \
            fd, [&] { return next(fd, data, size, offset); }, [&] { return next(fd, data, size / 2, offset); }); \
    }
POSITIONED_WRITE(pwrite, off_t)
POSITIONED_WRITE(pwrite64, off64_t)

ssize_t half_of(int fd, const iovec* iovecs, int count, off64_t offset) {
    std::size_t total = 0;
    for (int i = 0; i < count; ++i) total += iovecs[i].iov_len;
    auto left = total / 2 / 512 * 512;  // direct I/O still takes it
    for (int i = 0; i < count && left > 0; ++i) {
        const auto part = iovecs[i].iov_len < left ? iovecs[i].iov_len : left;
        if (::syscall(SYS_pwrite64, fd, iovecs[i].iov_base, part, offset) < 0) break;
        offset += static_cast<off64_t>(part);
        left -= part;
    }
    return 0;
}

#define VECTORED_WRITE(name, offset_type)                                                                             \
    ssize_t name(int fd, const iovec* iovecs, int count, offset_type offset) {                                        \
        REAL(name);                                                                                                   \
        return counted_write(                                                                                         \
            fd, [&] { return next(fd, iovecs, count, offset); }, [&] { return half_of(fd, iovecs, count, offset); }); \
    }
VECTORED_WRITE(pwritev, off_t)
VECTORED_WRITE(pwritev64, off64_t)

int open(const char* path, int flags, ...) {
    REAL(open);
    va_list list;
    va_start(list, flags);
    const mode_t mode = creates(flags) ? va_arg(list, mode_t) : 0;
    va_end(list);
    return creates(flags) ? counted([&] { return next(path, flags, mode); }) : next(path, flags, mode);
}
int open64(const char* path, int flags, ...) {
    REAL(open64);
    va_list list;
    va_start(list, flags);
    const mode_t mode = creates(flags) ? va_arg(list, mode_t) : 0;
    va_end(list);
    return creates(flags) ? counted([&] { return next(path, flags, mode); }) : next(path, flags, mode);
}
int openat(int dir, const char* path, int flags, ...) {
    REAL(openat);
    va_list list;
    va_start(list, flags);
    const mode_t mode = creates(flags) ? va_arg(list, mode_t) : 0;
    va_end(list);
    return creates(flags) ? counted([&] { return next(dir, path, flags, mode); }) : next(dir, path, flags, mode);
}
int openat64(int dir, const char* path, int flags, ...) {
    REAL(openat64);
    va_list list;
    va_start(list, flags);
    const mode_t mode = creates(flags) ? va_arg(list, mode_t) : 0;
    va_end(list);
    return creates(flags) ? counted([&] { return next(dir, path, flags, mode); }) : next(dir, path, flags, mode);
}

// Calls with plain arguments.
#define COUNTED(name, declaration, arguments, ...)      \
    int name declaration __VA_ARGS__ {                  \
        REAL(name);                                     \
        return counted([&] { return next arguments; }); \
    }
COUNTED(link, (const char* from, const char* to), (from, to), noexcept)
COUNTED(linkat, (int from_dir, const char* from, int to_dir, const char* to, int flags),
        (from_dir, from, to_dir, to, flags), noexcept)
COUNTED(rename, (const char* from, const char* to), (from, to), noexcept)
COUNTED(renameat, (int from_dir, const char* from, int to_dir, const char* to), (from_dir, from, to_dir, to), noexcept)
COUNTED(renameat2, (int from_dir, const char* from, int to_dir, const char* to, unsigned flags),
        (from_dir, from, to_dir, to, flags), noexcept)
COUNTED(unlink, (const char* path), (path), noexcept)
COUNTED(unlinkat, (int dir, const char* path, int flags), (dir, path, flags), noexcept)
COUNTED(rmdir, (const char* path), (path), noexcept)
COUNTED(mkdir, (const char* path, mode_t mode), (path, mode), noexcept)
COUNTED(mkdirat, (int dir, const char* path, mode_t mode), (dir, path, mode), noexcept)
COUNTED(fsync, (int fd), (fd))
COUNTED(fdatasync, (int fd), (fd))
COUNTED(ftruncate, (int fd, off_t size), (fd, size), noexcept)
COUNTED(ftruncate64, (int fd, off64_t size), (fd, size), noexcept)
COUNTED(fallocate, (int fd, int mode, off_t offset, off_t size), (fd, mode, offset, size))
COUNTED(fallocate64, (int fd, int mode, off64_t offset, off64_t size), (fd, mode, offset, size))
COUNTED(fchmod, (int fd, mode_t mode), (fd, mode), noexcept)
COUNTED(futimens, (int fd, const timespec* times), (fd, times), noexcept)
COUNTED(fsetxattr, (int fd, const char* name, const void* value, size_t size, int flags),
        (fd, name, value, size, flags), noexcept)

}  // extern "C"
