// SPDX-License-Identifier: Apache-2.0
// kv_connector_extra_config: the options of an engine connector.
#include "engine/options.h"

#include "fuzz.h"

namespace kvern::fuzz {

void check(std::string_view input) {
    const auto options = Options::parse(input);
    if (!options) {
        FUZZ_REQUIRE(!options.error().message.empty());
        return;
    }
    FUZZ_REQUIRE(!options->store.empty() && options->staging_mib > 0);
    for (const std::uint32_t block_tokens : {1u, 16u, 272u}) {
        const auto tokens = resolve_chunk_tokens(*options, {block_tokens, 114688, block_tokens == 1});
        FUZZ_REQUIRE(tokens ? *tokens > 0 && *tokens % block_tokens == 0 : !tokens.error().message.empty());
    }
}

std::vector<std::string> seeds() {
    return {
        R"({"store": "file:///mnt/kv"})",
        R"({"store": "file:///mnt/kv?io=threads", "staging_mib": 4096, "chunk_tokens": 512, "mode": "read_only"})",
        R"({"store": "mem:", "lookup_wait_us": 0, "lookup_deadline_ms": 50, "load_stall_ms": 2000, "min_tokens": 1})",
        R"({"store": "mem:", "model_id": "m", "tenant": "größe", "on_reset": "keep", "allow_fail_policy": true})",
        R"({"stor": "mem:"})",
        R"({"store": )" + nested(100'000) + "}",
    };
}

}  // namespace kvern::fuzz
