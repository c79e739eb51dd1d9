// SPDX-License-Identifier: Apache-2.0
// Runs fio over files that exist, as a third opinion on what a disk can do. Blocks. Reads only: fio can't publish
// files.
#pragma once

#include <string>

#include "cli/plain_loops.h"

namespace kvern::cli {

// Whether there is a program `fio` in PATH.
bool fio_installed();

// Reads all files under `folder` once with fio's io_uring engine at the job's depth. The job's paths and memory are
// unused.
PlainResult fio_read(const PlainJob& job, const std::string& folder);

}  // namespace kvern::cli
