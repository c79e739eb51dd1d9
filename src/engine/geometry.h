// SPDX-License-Identifier: Apache-2.0
// What a worker tells the scheduler half once, through the engine's handshake: what it holds and what it sees.
//
// Pure values, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cache/group.h"
#include "cache/key.h"
#include "kvern/result.h"

namespace kvern {

struct GroupGeometry {
    GroupPlan plan;
    Shard shard;
    bool operator==(const GroupGeometry&) const = default;
};

struct Geometry {
    std::string rank;  // for messages: "pp 0, tp 1"
    std::vector<GroupGeometry> groups;
    std::uint32_t num_blocks = 0;
    std::string identity;  // the identity's JSON as far as a worker knows it; equal on all ranks
    std::string nonce;     // what the rank read from the store under the scheduler half's nonce key

    std::string to_json() const;
    static Result<Geometry> from_json(std::string_view json);
};

}  // namespace kvern
