// SPDX-License-Identifier: Apache-2.0
// Exit statuses of the kvern command, and the one way to end with an error. Main thread only.
#pragma once

#include <string>
#include <string_view>

#include "kvern/result.h"
#include "kvern/store.h"

namespace kvern::cli {

enum ExitCode : int {
    exit_ok = 0,
    exit_failed = 1,
    exit_usage = 2,
    exit_no_key = 3,
};

// Prints "kvern: <sentence>" to stderr and returns `code`.
int complain(ExitCode code, std::string_view sentence);

// The same for an Error: wrong input is a usage error, everything else has failed.
int complain(const Error& error);

// The same for an outcome that is not ok; `op` needs only its kind, key and upload.
int complain(const Op& op, const Outcome& outcome);

}  // namespace kvern::cli
