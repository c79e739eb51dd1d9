// SPDX-License-Identifier: Apache-2.0
// The options of an engine connector: kv_connector_extra_config, checked as a whole before anything starts.
//
// Pure values, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kvern/limits.h"
#include "kvern/result.h"

namespace kvern {

enum class Mode : std::uint8_t { read_write, read_only, write_only };

struct Options {
    std::string store;                                                // URI; required
    std::uint64_t staging_mib = limits::staging_mib_default;          // per host, divided by the ranks on it
    std::uint64_t gpu_staging_mib = limits::gpu_staging_mib_default;  // per rank, where KV memory is on a device
    std::uint32_t chunk_tokens = 0;  // 0: about 16 MiB of the whole model's KV, see default_chunk_tokens()
    std::uint32_t lookup_wait_us = limits::lookup_wait_us_default;          // the first ask may wait this long
    std::uint32_t lookup_deadline_ms = limits::lookup_deadline_ms_default;  // then the prefix proven so far is taken
    std::uint32_t load_stall_ms = limits::load_stall_ms_default;            // a load with no progress for so long ends
    std::uint32_t min_tokens = 0;                                           // shortest hit worth loading; 0: one chunk
    std::uint32_t min_free_percent = limits::min_free_percent_default;      // of the store; below it nothing is stored
    std::string model_id;        // takes the place of the digest of the weights
    std::string tenant;          // objects of different tenants are never shared
    bool epoch_on_reset = true;  // on_reset: epoch (default) or keep
    Mode mode = Mode::read_write;
    bool allow_fail_policy = false;

    // `json` is an object. Errors name the option, its value and what is allowed; an unknown option gets a suggestion.
    static Result<Options> parse(std::string_view json);
};

// What the size of a chunk depends on.
struct ChunkBasis {
    std::uint32_t block_tokens = 0;     // the least common multiple of the groups' blocks
    std::uint64_t bytes_per_token = 0;  // of the whole model
    bool has_state = false;             // states are kept at the ends of the engine's steps: any block may be one
};

// Tokens of a chunk where the user gave none: a multiple of the block whose KV is about 16 MiB, within 256..1024 tokens
// (or one block, where that is larger, or where a state may end at any block).
std::uint32_t default_chunk_tokens(const ChunkBasis& basis);

// The chunk's tokens for this model, or why the given ones can't be used.
Result<std::uint32_t> resolve_chunk_tokens(const Options& options, const ChunkBasis& basis);

}  // namespace kvern
