// SPDX-License-Identifier: Apache-2.0
// mem: a bounded store in this process's memory that forgets what was not used for longest.
//
// Any thread may submit. Every operation is done inside submit(), which costs one copy of the bytes and never waits for
// I/O. Nothing survives the process and no other process sees it. Values, keys and metadata count towards the size.
#pragma once

#include <memory>

#include "base/uri.h"
#include "kvern/store.h"

namespace kvern {

// mem:?size=256MiB
Result<std::unique_ptr<Store>> open_mem_store(const Uri& uri);

}  // namespace kvern
