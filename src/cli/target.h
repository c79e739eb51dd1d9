// SPDX-License-Identifier: Apache-2.0
// What URI and KEY on the command line mean, for all subcommands. Main thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kvern/memory.h"
#include "kvern/store.h"

namespace kvern::cli {

inline constexpr std::size_t piece_bytes = std::size_t{16} << 20;  // put and get hold this much of a value in memory

inline constexpr std::string_view uri_help =
    "Store: file:///path, s3://bucket/prefix or mem:, with ?name=value parameters";
inline constexpr std::string_view key_help = "Key; bytes other than A-Z a-z 0-9 - . _ ~ / as %XX";

struct Target {
    std::unique_ptr<Store> store;
    std::string key;  // unescaped and checked
};

// Opens the store and reads the key. The error's message needs no prefix.
Result<Target> open_target(const std::string& uri, const std::string& escaped_key);

// One piece of memory to move bytes through, returned when it is destroyed.
Result<Lease> lease_memory(std::size_t size_bytes);

// Submits and waits, at most limits::command_wait. `memory` is the lease that the buffers lie in, if any; it is empty
// afterwards if no answer came, since the transfer may still be under way.
Outcome ask(Store& store, Op op, Lease* memory = nullptr);

// {"key", "size_bytes", "mtime_ns", "etag", "metadata_hex"} in one line; the key is escaped.
std::string stat_json(const std::string& key, const Stat& stat);

std::string format_time(std::int64_t mtime_ns);  // "2026-01-31 12:00:00" in UTC

}  // namespace kvern::cli
