// SPDX-License-Identifier: Apache-2.0
#include "store/file/space.h"

#include <sys/quota.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "store/file/look.h"

namespace kvern {
namespace {

// Narrows `space` to the quota of this user, if there is one. A kernel or file system without quotas answers an error.
void apply_user_quota(int fd, Space& space) {
    dqblk quota{};
    if (syscall(SYS_quotactl_fd, fd, QCMD(Q_GETQUOTA, USRQUOTA), geteuid(), &quota) != 0) return;
    const bool limited = (quota.dqb_valid & QIF_BLIMITS) != 0 && quota.dqb_bhardlimit > 0;
    if (!limited || (quota.dqb_valid & QIF_SPACE) == 0) return;
    constexpr std::uint64_t unit_bytes = 1024;  // of the limit; the use is in bytes
    space.quota_bytes = quota.dqb_bhardlimit * unit_bytes;
    space.free_bytes = std::min(space.free_bytes, space.quota_bytes - std::min(space.quota_bytes, quota.dqb_curspace));
}

}  // namespace

Outcome file_space(const FileRoot& root) {
    struct statvfs status {};
    if (fstatvfs(root.fd(), &status) != 0) return file_failure(root, "", "statvfs", -errno);
    Outcome outcome;
    outcome.status = Status::ok;
    outcome.space.capacity_bytes = std::uint64_t{status.f_blocks} * status.f_frsize;
    outcome.space.free_bytes = std::uint64_t{status.f_bavail} * status.f_frsize;
    apply_user_quota(root.fd(), outcome.space);
    return outcome;
}

}  // namespace kvern
