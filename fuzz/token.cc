// SPDX-License-Identifier: Apache-2.0
// Tokens of one-sided transfers, as anybody may send them.
#include "fabric/token.h"
#include "fabric/networks.h"

#include "fuzz.h"
#include "kvern/limits.h"

namespace kvern::fuzz {

void check(std::string_view input) {
    const auto token = fabric::parse_token(input);
    if (!token) return;
    FUZZ_REQUIRE(token->size_bytes > 0);
    FUZZ_REQUIRE(token->base + token->size_bytes > token->base || token->base + token->size_bytes == 0);
    FUZZ_REQUIRE(token->endpoint.size() <= limits::fabric_endpoint_bytes_max);
    FUZZ_REQUIRE(token->provider.size() <= limits::fabric_provider_bytes_max);
    if (token->kind == fabric::TokenKind::descriptor) FUZZ_REQUIRE(token->descriptor.size() == 81);
    if (token->kind == fabric::TokenKind::ofi) {
        const auto text =
            fabric::ofi_token(token->provider, token->endpoint, token->key, token->base, token->size_bytes);
        const auto again = fabric::parse_token(text);
        FUZZ_REQUIRE(again && again->endpoint == token->endpoint && again->key == token->key);
        FUZZ_REQUIRE(!fabric::endpoint_text(token->endpoint).empty());
        (void)fabric::Networks().permit(token->endpoint, "192.0.2.1");
    }
    if (token->kind != fabric::TokenKind::local) return;
    const auto again = fabric::parse_token(fabric::local_token(token->window, token->base, token->size_bytes));
    FUZZ_REQUIRE(again && again->base == token->base && again->size_bytes == token->size_bytes);
}

std::vector<std::string> seeds() {
    const std::string bare = "00007f00c0de0000:00400000:1a2b3c4d:0000:0001f7:1:00000000000000000000ffffc0000211";
    return {bare, bare + ";", bare + ":00007f00c0de0000:0000000000400000",
            "7f00c0de0000:400000:ofi1:tcp;ofi_rxm:02001f90c00002110000000000000000:2a",
            "1000:400000:local1:0123456789abcdef0123456789abcdef"};
}

}  // namespace kvern::fuzz
