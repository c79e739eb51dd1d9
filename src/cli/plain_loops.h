// SPDX-License-Identifier: Apache-2.0
// Plain loops over files: the ceiling that `kvern bench store` holds the file engine against. What one would write
// first with io_uring, or with threads and pread/pwrite, and nothing else: no queues, keys, checks or completions for
// others.
//
// They share no code with the engine, so that a fault there can't hide here. Each call blocks; one call at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace kvern::cli {

struct PlainJob {
    bool put = false;            // else get. A put writes a nameless file in the folder of its path and links it there.
    bool direct = false;         // O_DIRECT: then `memory` and `size_bytes` must be multiples of 4 KiB
    std::size_t size_bytes = 0;  // of each file
    unsigned depth = 1;          // files in flight
    std::vector<std::string> paths;          // each once, in this order; folders must exist
    std::byte* memory = nullptr;             // depth * size_bytes, touched
    std::chrono::milliseconds bound{60000};  // no file is begun later than this
};

struct PlainResult {
    std::uint64_t bytes = 0;
    double seconds = 0;      // from the first file to the last, threads and rings already there
    double cpu_seconds = 0;  // user and system of the process
    std::string error;       // not empty: the numbers mean nothing
};

// One thread, one ring, one request a file, `depth` of them in flight.
PlainResult uring_loop(const PlainJob& job);

// `depth` threads, each one file at a time.
PlainResult thread_loop(const PlainJob& job);

}  // namespace kvern::cli
