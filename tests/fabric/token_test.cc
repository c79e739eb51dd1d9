// SPDX-License-Identifier: Apache-2.0
#include "fabric/token.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace kvern::fabric {
namespace {

const std::string bare = "00007f00c0de0000:00400000:1a2b3c4d:0000:0001f7:1:00000000000000000000ffffc0000211";
const std::string window(32, 'a');

TEST(Token, OfADescriptorIsReadInEveryFormThatWasSeen) {
    ASSERT_EQ(bare.size(), 81U);
    for (const auto* const end :
         {"", ";", ":00007f00c0de0000:0000000000400000", ":00007f00c0de0000:0000000000400000;"}) {
        const auto token = parse_token(bare + end);
        ASSERT_TRUE(token) << end << ": " << token.error().message;
        EXPECT_EQ(token->kind, TokenKind::descriptor);
        EXPECT_EQ(token->base, 0x7f00c0de0000U);
        EXPECT_EQ(token->size_bytes, 4U << 20);
        EXPECT_EQ(token->descriptor, bare);
    }
    const auto part = parse_token(bare + ":00007f00c0de1000:0000000000001000");
    ASSERT_TRUE(part) << part.error().message;
    EXPECT_EQ(part->base, 0x7f00c0de1000U);
    EXPECT_EQ(part->size_bytes, 4096U);
}

TEST(Token, OfLibfabricHasItsSixFields) {
    const auto token = parse_token("7f00c0de0000:400000:ofi1:tcp;ofi_rxm:02001f90c00002110000000000000000:2a");
    ASSERT_TRUE(token) << token.error().message;
    EXPECT_EQ(token->kind, TokenKind::ofi);
    EXPECT_EQ(token->provider, "tcp;ofi_rxm");
    EXPECT_EQ(token->endpoint.size(), 16U);
    EXPECT_EQ(token->endpoint.substr(0, 4), std::string("\x02\x00\x1f\x90", 4));
    EXPECT_EQ(token->key, 42U);
}

TEST(Token, OfThisHostIsReadAsItIsWritten) {
    EXPECT_EQ(local_token(window, 0x1000, 0x400000), "1000:400000:local1:" + window);
    EXPECT_TRUE(rc::check("read(write(x)) == x", [] {
        const auto base = *rc::gen::arbitrary<std::uint64_t>();
        const auto size = *rc::gen::inRange<std::uint64_t>(1, 1ULL << 40);
        RC_PRE(base <= ~std::uint64_t{0} - size);
        const auto token = parse_token(local_token(window, base, size));
        RC_ASSERT(token.has_value());
        RC_ASSERT(token->kind == TokenKind::local && token->base == base && token->size_bytes == size);
        RC_ASSERT(token->window == window);
    }));
}

TEST(Token, OfALaterVersionIsNotSupported) {
    for (const auto& text : {"0:1:local2:" + window, std::string("0:1:ofi2:tcp:00:1:more")}) {
        const auto token = parse_token(text);
        ASSERT_FALSE(token);
        EXPECT_EQ(token.error().code, ErrorCode::not_supported) << text;
    }
}

TEST(Token, AnythingElseIsRefused) {
    const std::string wrong[] = {
        "",
        ":::",
        "0:0:local1:" + window,                  // no bytes
        "ffffffffffffffff:2:local1:" + window,   // beyond all memory
        "0:1:local1:" + window + "a",            // no window
        "0:1:local1:" + std::string(32, 'g'),    // no hex
        "0:1:local1:" + window + ":more",        // a field too many
        "0:1:local:" + window,                   // no version
        "-1:1:local1:" + window,                 // no number
        "0:10000000000000000:local1:" + window,  // more than 64 bits
        "0:1:ofi1:tcp:00",                       // a field too few
        "0:1:ofi1:../lib:00:1",                  // no provider
        "0:1:ofi1:tcp:0:1",                      // half a byte
        "0:1:ofi1:tcp:" + std::string(400, '0') + ":1",
        bare.substr(1),
        bare.substr(0, 80),
        bare + "0",
        bare + ":0",
        bare + ":00007f00c0de0000:0000000000400001",  // means more than it names
        bare + ":00007f00c0ddffff:0000000000000001",
        bare + ":00007f00c0de0000:0000000000400000:0",
        std::string(100000, ':'),
    };
    for (const auto& text : wrong) {
        const auto token = parse_token(text);
        ASSERT_FALSE(token) << text;
        EXPECT_EQ(token.error().code, ErrorCode::invalid_argument) << text;
    }
}

}  // namespace
}  // namespace kvern::fabric
