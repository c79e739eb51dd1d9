// SPDX-License-Identifier: Apache-2.0
#include "store/file/read.h"

#include <fcntl.h>

#include <array>
#include <cerrno>

#include "base/fd.h"
#include "kvern/limits.h"
#include "store/file/look.h"

namespace kvern {

namespace {

constexpr int stale_attempts_max = 4;

// The descriptor, or an errno value below 0.
int open_and_stat(const FileRoot& root, const std::string& key, struct stat& status) {
    // O_NONBLOCK: a fifo at this name must not stop the thread. It is cleared later: io_uring would take it seriously.
    Fd fd(root.open_below(key.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW));
    if (!fd) return fd.get();
    if (fstat(fd.get(), &status) != 0) return -errno;
    return fd.release();
}

}  // namespace

bool open_value(const FileRoot& root, const FileFacts& facts, const Op& op, bool want_direct, OpenValue& value,
                Outcome& outcome) {
    struct stat status {};
    int fd = open_and_stat(root, op.key, status);
    // On NFS a value that is replaced meanwhile is stale; under its name is another one, or none.
    for (int attempt = 1; fd == -ESTALE && attempt < stale_attempts_max; ++attempt) {
        fd = open_and_stat(root, op.key, status);
    }
    if (fd < 0) {
        const bool miss = means_miss(-fd) || fd == -ENXIO;  // ENXIO: a socket
        outcome = miss ? missed() : file_failure(root, op.key, "open", fd);
        return false;
    }
    value.fd.reset(fd);
    if (!is_value(status)) {
        outcome = missed();
        return false;
    }
    outcome.stat = stat_of(status);
    if (op.with_metadata && facts.attributes) outcome.stat.metadata = read_metadata(fd, false);
    const auto length = check_range(op, outcome.stat.size_bytes);
    if (!length) {
        outcome.error = length.error();
        return false;
    }
    value.length = *length;
    if (op.mark_used) value.use = use_mark_due(status);
    if (*length == 0) {
        outcome.status = Status::ok;
        if (value.use) mark_used(fd, *value.use);
        return false;
    }
    value.direct = want_direct && fits_direct(op.offset, *length, op.buffers) && fcntl(fd, F_SETFL, O_DIRECT) == 0;
    if (!value.direct && fcntl(fd, F_SETFL, 0) != 0) {
        outcome.error = file_failure(root, op.key, "fcntl", -errno).error;
        return false;
    }
    return true;
}

bool leave_direct(int fd, bool& direct) {
    if (!direct || fcntl(fd, F_SETFL, 0) != 0) return false;
    direct = false;
    return true;
}

int read_piece(OpenValue& value, Piece& piece) {
    alignas(limits::page_bytes) thread_local std::byte bounce[limits::page_bytes];
    std::array<iovec, piece_iovecs_max> iovecs;
    for (bool direct = value.direct;;) {
        const auto count = piece.prepare(direct, bounce, iovecs);
        const auto offset = static_cast<off_t>(piece.file_offset());
        const auto moved = preadv(value.fd.get(), iovecs.data(), static_cast<int>(count), offset);
        if (moved < 0) {
            if (errno == EINTR) continue;
            const int error = -errno;
            if (error == -EINVAL && leave_direct(value.fd.get(), direct)) continue;
            return error;
        }
        switch (piece.advance(static_cast<std::size_t>(moved))) {
            case Piece::Progress::finished:
                return 0;
            case Piece::Progress::ended_early:
                return 1;
            case Piece::Progress::again:
                break;
        }
    }
}

Error ended_early(const FileRoot& root, const std::string& key) {
    return {ErrorCode::io, root.path() + "/" + key + ": the file became shorter while it was read"};
}

}  // namespace kvern
