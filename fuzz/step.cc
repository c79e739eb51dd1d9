// SPDX-License-Identifier: Apache-2.0
// The bytes that the scheduler half hands to the workers with every step.
#include "engine/step.h"

#include "fuzz.h"

namespace kvern::fuzz {

void check(std::string_view input) {
    const auto step = Step::decode(input);
    if (!step) {
        FUZZ_REQUIRE(!step.error().message.empty());
        return;
    }
    const std::string encoded = step->encode();
    FUZZ_REQUIRE(encoded.size() == input.size());
    const auto again = Step::decode(encoded);
    FUZZ_REQUIRE(again && again->encode() == encoded);
}

std::vector<std::string> seeds() {
    Step step;
    std::vector<std::string> all{step.encode()};
    step.sequence = 7;
    step.ended = {1, 2, 3};
    ChunkBlocks chunk;
    chunk.group = 1;
    chunk.chunk = {ChunkHash("0123456789abcdef0123456789abcdef"), 7};
    chunk.blocks = {4, 5, no_block, 6};
    step.loads.push_back({});
    step.loads.back().request = "cmpl-1";
    step.loads.back().chunks = {chunk, chunk};
    step.stores.push_back({});
    step.stores.back().incarnation = 9;
    step.stores.back().object = chunk;
    all.push_back(step.encode());
    step.loads.push_back(step.loads.back());
    step.loads.back().refused = true;
    step.stores.insert(step.stores.end(), 20, step.stores.back());
    all.push_back(step.encode());
    return all;
}

}  // namespace kvern::fuzz
