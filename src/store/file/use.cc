// SPDX-License-Identifier: Apache-2.0
#include "store/file/use.h"

#include <fcntl.h>

#include <cerrno>
#include <chrono>

#include "base/clock.h"
#include "kvern/limits.h"
#include "store/file/root.h"

namespace kvern {

std::optional<UseMark> use_mark_due(const struct stat& status) {
    if (has_whole_seconds(status)) return std::nullopt;
    const auto used_ns = unix_ns(std::chrono::seconds(status.st_mtim.tv_sec));
    if (WallClock::system().now_ns() - used_ns <= std::chrono::nanoseconds(limits::use_mark_interval).count()) {
        return std::nullopt;
    }
    return UseMark{status.st_mtim.tv_nsec};
}

void mark_used(int fd, const UseMark& mark) {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    const timespec times[2] = {{0, UTIME_OMIT},
                               {now.tv_sec - (mark.nanoseconds > now.tv_nsec ? 1 : 0), mark.nanoseconds}};
    if (futimens(fd, times) != 0 && errno == EPERM) futimens(fd, nullptr);
}

}  // namespace kvern
