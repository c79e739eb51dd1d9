// SPDX-License-Identifier: Apache-2.0
// Identity: everything that makes the bytes of one model's KV blocks mean something (docs/format.md, section 2).
//
// Pure values, any thread. Whoever fills it must say the truth about the engine; nothing here can check it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/sha256.h"
#include "kvern/result.h"

namespace kvern {

inline constexpr std::uint32_t format_version = 2;

struct GroupIdentity {
    std::string kind;                        // "full", "window" or "state"
    std::string layer_numbers;               // in the whole model: "0-47", "0,2,4"
    std::string dtype, layout, backend;      // of a page: type of the values, order of its dimensions, who packs it
    std::uint32_t layers = 0, kv_heads = 0;  // of the whole model; kv_heads 0: not divided into heads
    std::uint32_t head_size = 0, head_size_v = 0;
    std::uint32_t block_tokens = 0, window_tokens = 0;
};

struct Identity {
    std::string engine, engine_version, model, kv_dtype;
    std::vector<GroupIdentity> groups;
    std::uint32_t chunk_tokens = 0;
    std::string hash_algorithm, hash_seed;
    std::string parallel, lora, tenant, epoch;

    // The canonical bytes: what identity.json holds.
    std::string to_json() const;
    // Errors name the key that is missing, unknown or of the wrong type, and an unknown format number.
    static Result<Identity> from_json(std::string_view text);
};

// SHA-256 of the canonical bytes; its hex is the folder of the objects.
Digest namespace_of(std::string_view identity_json);

}  // namespace kvern
