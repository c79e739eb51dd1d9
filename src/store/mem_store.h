// SPDX-License-Identifier: Apache-2.0
// mem: a bounded store in this process's memory that forgets what was not used for longest.
//
// Any thread may submit. Every operation is done inside submit(), which costs one copy of the bytes and never waits for
// I/O. Nothing survives the process and no other process sees it. Values, keys and metadata count towards the size.
#pragma once

#include <memory>

#include "base/clock.h"
#include "base/uri.h"
#include "kvern/store.h"

namespace kvern {

// mem:?size=256MiB
Result<std::unique_ptr<Store>> open_mem_store(const Uri& uri);

// The same with another clock for mtimes, which must outlive the store: tests move it.
std::unique_ptr<Store> make_mem_store(std::uint64_t size_bytes, const WallClock& clock);

}  // namespace kvern
