// SPDX-License-Identifier: Apache-2.0
// Putting a value: look, write under no name, publish. Blocking system calls, any thread.
//
// absent: the name is made by a link, which fails if it exists: of many writers exactly one wins, and a put of what
// exists costs one look. any: a rename replaces. etag: the comparison and the rename happen under ChangeLock. A failed
// put leaves nothing; a killed process leaves at most a temporary in .kvern-tmp, removed when it is old
// (collect_temporaries).
#pragma once

#include "store/file/facts.h"
#include "store/file/root.h"
#include "store/file/write.h"
#include "store/op_check.h"

namespace kvern {

Outcome file_put(const FileRoot& root, const FileFacts& facts, bool direct, const Op& op);

// Metadata, size, then the name. `op` has the condition and etag, `key` is where it goes; `place` is where it was, if
// it has been opened before.
Outcome file_publish(const FileRoot& root, const Op& op, const std::string& key, NewFile& file,
                     std::uint64_t size_bytes, const std::string& metadata, Place place);

// Removes the temporaries that nobody has written to for limits::temporary_age_max. Returns how many.
std::size_t collect_temporaries(const FileRoot& root);

}  // namespace kvern
