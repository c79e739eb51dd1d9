// SPDX-License-Identifier: Apache-2.0
#include "cli/local_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "cli/interrupt.h"

namespace kvern::cli {
namespace {

tl::unexpected<Error> system_error(const std::string& what) {
    return tl::unexpected(error_from_errno(errno, what));
}

tl::unexpected<Error> gave_up() {
    return fail(ErrorCode::cancelled, "interrupted");
}

// The mode of a file that open(O_CREAT) would make; mkstemp() makes it private.
mode_t mode_for_new_file() {
    const mode_t mask = umask(0);
    umask(mask);
    return 0666 & ~mask;
}

// A link is followed: its target is replaced, not the link.
std::string resolved(const std::string& path) {
    char* const real = realpath(path.c_str(), nullptr);
    if (real == nullptr) return path;
    std::string result = real;
    free(real);
    return result;
}

}  // namespace

Result<Input> Input::open(const std::string& path) {
    if (path == "-") return Input(STDIN_FILENO, "standard input");
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return system_error("file '" + path + "'");
    struct stat status {};
    if (fstat(fd, &status) == 0 && S_ISDIR(status.st_mode)) {
        ::close(fd);
        return fail(ErrorCode::io, "file '" + path + "' is a folder; name a file");
    }
    return Input(fd, "file '" + path + "'");
}

Input::Input(Input&& other) noexcept : fd_(std::exchange(other.fd_, -1)), name_(std::move(other.name_)) {}

Input::~Input() {
    if (fd_ > STDERR_FILENO) ::close(fd_);
}

Result<std::size_t> Input::read(std::span<std::byte> into) {
    std::size_t done = 0;
    while (done < into.size()) {
        if (interrupted()) return gave_up();
        const ssize_t got = ::read(fd_, into.data() + done, into.size() - done);
        if (got == 0) break;
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return system_error(name_);
        done += static_cast<std::size_t>(got);
    }
    return done;
}

Result<Output> Output::open(const std::string& path) {
    if (path == "-") return Output(STDOUT_FILENO, "standard output", "");
    const std::string target = resolved(path);
    struct stat status {};
    const bool exists = ::stat(target.c_str(), &status) == 0;
    if (exists && !S_ISREG(status.st_mode)) {
        const int fd = ::open(target.c_str(), O_WRONLY | O_CLOEXEC);
        if (fd < 0) return system_error("file '" + path + "'");
        return Output(fd, path, "");
    }
    std::string temporary = target + ".kvern-XXXXXX";
    const int fd = mkostemp(temporary.data(), O_CLOEXEC);
    if (fd < 0) return system_error("temporary file beside '" + path + "'");
    if (fchmod(fd, exists ? status.st_mode & 07777 : mode_for_new_file()) != 0) {
        const auto error = system_error("mode of '" + temporary + "'");
        ::close(fd);
        ::unlink(temporary.c_str());
        return error;
    }
    return Output(fd, target, temporary);
}

Output::Output(Output&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      name_(std::move(other.name_)),
      temporary_(std::exchange(other.temporary_, std::string())) {}

Output::~Output() {
    if (fd_ > STDERR_FILENO) ::close(fd_);
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Result<void> Output::write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        if (interrupted()) return gave_up();
        const ssize_t put = ::write(fd_, bytes.data(), bytes.size());
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return system_error("writing '" + name_ + "'");
        bytes = bytes.subspan(static_cast<std::size_t>(put));
    }
    return {};
}

Result<void> Output::publish() {
    if (interrupted()) return gave_up();
    // Some file systems (NFS) report a full disk only now.
    if (fd_ > STDERR_FILENO && ::close(std::exchange(fd_, -1)) != 0) return system_error("closing '" + name_ + "'");
    if (temporary_.empty()) return {};
    if (::rename(temporary_.c_str(), name_.c_str()) != 0) return system_error("naming '" + name_ + "'");
    temporary_.clear();
    return {};
}

}  // namespace kvern::cli
