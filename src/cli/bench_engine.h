// SPDX-License-Identifier: Apache-2.0
// Drives a store as an engine would: many operations in flight, waiting by the eventfd. Blocks; one call at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "kvern/memory.h"
#include "kvern/store.h"

namespace kvern::cli {

struct StoreJob {
    OpKind kind = OpKind::get;  // get, put (if absent) or remove
    std::size_t size_bytes = 0;
    unsigned depth = 1;
    std::vector<std::string> keys;           // each once, in this order
    std::byte* memory = nullptr;             // depth * size_bytes
    std::chrono::milliseconds bound{60000};  // nothing is submitted later than this
};

struct StoreResult {
    std::uint64_t bytes = 0;
    std::uint64_t operations = 0;
    double seconds = 0;
    double cpu_seconds = 0;  // user and system of the process
    double p50_us = 0;       // from submit to drain
    double p99_us = 0;
    std::string error;  // not empty: the numbers mean nothing
};

StoreResult run_job(Store& store, const StoreJob& job);

// Removes every key under `prefix`; empty on success, else why some may be left.
std::string remove_all(Store& store, const std::string& prefix);

}  // namespace kvern::cli
