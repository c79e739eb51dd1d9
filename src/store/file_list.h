// SPDX-License-Identifier: Apache-2.0
// Listing a file store in byte order of the keys. Blocking system calls, any thread.
//
// Reads only folders that can hold a key with the prefix and behind `after`. Each page reads its folders again, so its
// cost is that of the folders it touches, not of the whole store.
#pragma once

#include "store/file_root.h"
#include "store/op_check.h"

namespace kvern {

// `skipped`: names that are no values (symlinks, devices, names that can't be keys) and would have been in this page.
Outcome file_list(const FileRoot& root, const Op& op, std::size_t& skipped);

}  // namespace kvern
