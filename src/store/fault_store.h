// SPDX-License-Identifier: Apache-2.0
// fault: any store with faults injected on purpose, to rehearse what an engine does when storage dies.
//
// Any thread may submit. Operations without a fault go to the inner store untouched. One thread answers the others
// later; it sleeps until the next answer is due or the inner store has one, and for ever while there is neither. While
// something is stalled for as long as its rule is there, it looks at the rules every limits::fault_check.
// Every injected fault is counted; describe() and the log say how often each was seen.
//
// Faults keep the contract of include/kvern/store.h: one completion an operation, nothing happens to a buffer after it,
// the bytes of a put are never changed where they lie. What they may break is the truth: `torn`, `flip`, `lost` and
// `gone` say something else than what is stored. A `late` read, as one out of a `stall`, lands in its buffer when its
// reader may have given up waiting, but before its completion. close() cancels what has not begun and answers what is
// only held back.
#pragma once

#include <memory>

#include "base/uri.h"
#include "kvern/store.h"

namespace kvern {

// fault:CONTROL_FILE!URI, where a '!' in the path of the control file is %21.
Result<std::unique_ptr<Store>> open_fault_store(const Uri& uri);

}  // namespace kvern
