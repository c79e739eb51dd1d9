// SPDX-License-Identifier: Apache-2.0
// The digest of a model's weights: what "the same model" means (docs/format.md, section 5).
//
// Reads a few MiB in all, in parallel; takes tens of milliseconds on a local disk. Any thread. It tells apart models
// that differ in any tensor's name, shape or type, or in a sampled byte; two checkpoints of one training run differ
// nearly everywhere, so samples find that. A file changed in one place that no sample touches is not found unless its
// time or size changed while a cached digest existed: give such a model a model_id of its own.
#pragma once

#include <string>

#include "kvern/result.h"

namespace kvern {

// The digest (64 hex digits) of the model in `directory`. `cache_file` (may be empty: none) keeps digests by path,
// inode, size and time of every file, so that a restart reads nothing; a broken or unwritable cache file is only
// slower.
Result<std::string> weights_digest(const std::string& directory, const std::string& cache_file);

// "$XDG_CACHE_HOME/kvern/weights.json" or the like; empty where there is no home.
std::string default_weights_cache();

}  // namespace kvern
