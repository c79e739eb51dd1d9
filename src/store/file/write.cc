// SPDX-License-Identifier: Apache-2.0
#include "store/file/write.h"

#include <fcntl.h>
#include <sys/xattr.h>
#include <time.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "kvern/limits.h"
#include "store/buffer_walk.h"
#include "store/op_check.h"

namespace kvern {
namespace {

constexpr std::size_t page = limits::page_bytes;

std::size_t padded(std::size_t size_bytes) {
    return (size_bytes + page - 1) & ~(page - 1);
}

// Writes what `iovecs` name at `offset`. Returns the bytes, fewer than asked for only where the system says so.
ssize_t write_some(int fd, std::span<const iovec> iovecs, std::uint64_t offset) {
    for (;;) {
        const auto count = static_cast<int>(iovecs.size());
        const auto written = pwritev(fd, iovecs.data(), count, static_cast<off_t>(offset));
        if (written > 0) return written;
        if (written == 0) return -EIO;  // no progress and no reason given
        if (errno != EINTR) return -errno;
    }
}

std::uint64_t sum(std::span<const Buffer> buffers) {
    std::uint64_t total = 0;
    for (const auto& buffer : buffers) total += buffer.size_bytes;
    return total;
}

}  // namespace

NewFile::NewFile(NewFile&& other) noexcept
    : fd_(std::move(other.fd_)),
      direct_(other.direct_),
      metadata_failed_(other.metadata_failed_),
      link_way_(other.link_way_),
      folder_(std::move(other.folder_)),
      name_(std::exchange(other.name_, {})) {}

void NewFile::discard() {
    if (!name_.empty()) unlinkat(folder_->get(), name_.c_str(), 0);
    name_.clear();
    fd_.reset();
}

int NewFile::create_unnamed(const FileRoot& root, const FileFacts& facts, int dir, bool direct) {
    if (facts.link_way == LinkWay::by_name) return create_named(root, direct);
    int fd = root.create_file(dir, nullptr, O_WRONLY | (direct ? O_DIRECT : 0));
    if (fd == -EINVAL && direct) {
        direct = false;
        fd = root.create_file(dir, nullptr, O_WRONLY);
    }
    if (fd == -EOPNOTSUPP || fd == -EISDIR) return create_named(root, direct);  // another file system is mounted below
    if (fd < 0) return fd;
    fd_.reset(fd);
    direct_ = direct;
    link_way_ = facts.link_way;
    return 0;
}

int NewFile::create_named(const FileRoot& root, bool direct) {
    if (const int error = root.temporaries(folder_); error != 0) return error;
    int error = open_named(root, O_WRONLY | (direct ? O_DIRECT : 0));
    if (error == -EINVAL && direct) {
        direct = false;
        error = open_named(root, O_WRONLY);
    }
    if (error == -ENOENT) {  // somebody removed the whole folder
        if (error = root.temporaries(folder_, true); error != 0) return error;
        error = open_named(root, O_WRONLY | (direct ? O_DIRECT : 0));
    }
    direct_ = direct;
    return error;
}

int NewFile::open_named(const FileRoot& root, int flags) {
    auto name = root.temporary_name();
    const int fd = root.create_file(folder_->get(), name.c_str(), flags);
    if (fd < 0) return fd;
    fd_.reset(fd);
    name_ = std::move(name);
    return 0;
}

int NewFile::write(std::uint64_t offset, std::span<const Buffer> buffers, bool pad_allowed) {
    const auto length = sum(buffers);
    if (length == 0) return 0;
    if (direct_ && fits_direct(offset, length, buffers) && (pad_allowed || length % page == 0)) {
        const int error = write_direct(offset, buffers);
        if (error != -EINVAL) return error;  // EINVAL: this file can't after all, though the root could
    }
    return write_buffered(offset, buffers);
}

int NewFile::write_direct(std::uint64_t offset, std::span<const Buffer> buffers) {
    alignas(page) thread_local std::byte bounce[page];
    std::array<iovec, piece_iovecs_max> iovecs;
    BufferWalk walk(buffers);
    auto left = sum(buffers);
    while (left > 0) {
        const auto piece = std::min<std::uint64_t>(left, limits::file_piece_bytes);
        const auto tail = piece % page;  // only the last piece has one
        auto next = walk;
        unsigned count = 0;
        auto taken = next.take(piece - tail, std::span(iovecs).first(piece_iovecs_max - 1), count);
        if (taken == piece - tail && tail > 0) {
            auto tail_walk = next;
            iovec last{};
            unsigned one = 0;
            tail_walk.take(tail, {&last, 1}, one);
            std::memcpy(bounce, last.iov_base, tail);
            std::memset(bounce + tail, 0, page - tail);
            iovecs[count++] = iovec{bounce, page};
            taken += tail;
        }
        const auto written = write_some(fd_.get(), std::span(iovecs).first(count), offset);
        if (written < 0) return static_cast<int>(written);
        // A short write goes on at a page: it writes the page again in which it stopped.
        auto moved = static_cast<std::size_t>(written);
        if (moved < padded(taken)) {
            moved &= ~(page - 1);
            if (moved == 0) return -ENOSPC;
        }
        moved = std::min<std::size_t>(moved, taken);
        walk.skip(moved);
        offset += moved;
        left -= moved;
    }
    return 0;
}

int NewFile::write_buffered(std::uint64_t offset, std::span<const Buffer> buffers) {
    int fd = fd_.get();
    if (direct_) {
        // A single writer can switch the descriptor; after that the file stays buffered. Uploads write in parallel,
        // where a part that is still being written directly does no harm: each system call looks at the flag once.
        if (fcntl(fd, F_SETFL, 0) != 0) return -errno;
    }
    std::array<iovec, piece_iovecs_max> iovecs;
    BufferWalk walk(buffers);
    auto left = sum(buffers);
    while (left > 0) {
        auto next = walk;
        unsigned count = 0;
        next.take(std::min<std::uint64_t>(left, limits::file_piece_bytes), iovecs, count);
        const auto written = write_some(fd, std::span(iovecs).first(count), offset);
        if (written < 0) return static_cast<int>(written);
        walk.skip(static_cast<std::size_t>(written));
        offset += static_cast<std::uint64_t>(written);
        left -= static_cast<std::uint64_t>(written);
    }
    return 0;
}

int NewFile::finish(std::uint64_t size_bytes, const std::string& metadata, struct stat& status) {
    if (direct_ && size_bytes % page != 0 && ftruncate(fd_.get(), static_cast<off_t>(size_bytes)) != 0) return -errno;
    if (!metadata.empty() && fsetxattr(fd_.get(), metadata_attribute, metadata.data(), metadata.size(), 0) != 0) {
        metadata_failed_ = true;
        return -errno;
    }
    // Closing a duplicate flushes what a network file system has kept back, and tells of its errors. Others do nothing.
    if (const int duplicate = fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0); duplicate < 0 || close(duplicate) != 0)
        return -errno;
    timespec times[2] = {{0, UTIME_OMIT}, {0, 0}};
    clock_gettime(CLOCK_REALTIME, &times[1]);
    if (futimens(fd_.get(), times) != 0) return -errno;
    if (fstat(fd_.get(), &status) != 0) return -errno;
    return static_cast<std::uint64_t>(status.st_size) == size_bytes ? 0 : -EIO;
}

int NewFile::link(int dir, const char* name) {
    int result = 0;
    switch (link_way_) {
        case LinkWay::by_descriptor:
            result = linkat(fd_.get(), "", dir, name, AT_EMPTY_PATH);
            break;
        case LinkWay::by_proc: {
            const auto path = "/proc/self/fd/" + std::to_string(fd_.get());
            result = linkat(AT_FDCWD, path.c_str(), dir, name, AT_SYMLINK_FOLLOW);
            break;
        }
        case LinkWay::by_name:
            result = linkat(folder_->get(), name_.c_str(), dir, name, 0);
            break;
    }
    return result == 0 ? 0 : -errno;
}

int NewFile::rename(int dir, const char* name) {
    if (renameat(folder_->get(), name_.c_str(), dir, name) != 0) return -errno;
    name_.clear();
    return 0;
}

}  // namespace kvern
