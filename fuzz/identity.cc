// SPDX-License-Identifier: Apache-2.0
// identity.json, as it may lie on a shared disk.
#include "cache/identity.h"

#include "fuzz.h"

namespace kvern::fuzz {

void check(std::string_view input) {
    const auto identity = Identity::from_json(input);
    if (!identity) {
        FUZZ_REQUIRE(!identity.error().message.empty());
        return;
    }
    // Canonical bytes are a fixed point: what is read from them writes them again.
    const std::string canonical = identity->to_json();
    const auto again = Identity::from_json(canonical);
    FUZZ_REQUIRE(again && again->to_json() == canonical);
    FUZZ_REQUIRE(again->groups.size() == identity->groups.size() && again->model == identity->model);
    FUZZ_REQUIRE(again->tenant == identity->tenant && again->chunk_tokens == identity->chunk_tokens);
    FUZZ_REQUIRE(namespace_of(canonical) == namespace_of(again->to_json()));
}

std::vector<std::string> seeds() {
    Identity identity;
    identity.engine = "vllm";
    identity.engine_version = "0.32.0";
    identity.model = "sha256:44136fa355b3678a";
    identity.kv_dtype = "bfloat16";
    identity.groups.push_back({});
    identity.groups.back().kind = "full";
    identity.groups.back().layers = 28;
    identity.groups.back().layer_numbers = "0-27";
    identity.groups.back().layout = "heads,tokens,head_size";
    identity.chunk_tokens = 256;
    identity.hash_algorithm = "sha256_cbor";
    identity.tenant = "größe \"x\"\n";
    const std::string one = identity.to_json();
    identity.groups.push_back(identity.groups.back());
    return {one, identity.to_json(), Identity{}.to_json(), "{}", nested(100'000)};
}

}  // namespace kvern::fuzz
