// SPDX-License-Identifier: Apache-2.0
// The measurement behind `kvern bench store`. Main thread only; blocks until done or interrupted.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/bench_report.h"
#include "kvern/result.h"

namespace kvern::cli {

struct BenchPlan {
    std::string uri;
    std::vector<std::uint64_t> sizes_bytes;  // multiples of 4 KiB
    std::vector<std::string> ops;            // of "put", "get"
    std::vector<std::string> modes;          // of "direct", "cached"; empty: all that work
    unsigned depth = 8;
    unsigned rounds = 0;                // 0: enough for the kind of row
    std::uint64_t run_bytes = 0;        // of one run of one round
    std::chrono::milliseconds bound{};  // of one run
};

// Measures row by row. Whatever happens, what it wrote is removed before it returns.
Result<BenchReport> bench_store(const BenchPlan& plan);

}  // namespace kvern::cli
