// SPDX-License-Identifier: Apache-2.0
// How much room a file store has. Blocking system calls, any thread.
//
// What the file system says of the root's directory (statvfs): quotas of a project or of a mounted share are in these
// figures already where the file system counts them so (XFS, ext4, NFS, Ceph). A quota of this process's user is asked
// for besides. Quotas of groups are not seen.
#pragma once

#include "store/file/root.h"

namespace kvern {

Outcome file_space(const FileRoot& root);

}  // namespace kvern
