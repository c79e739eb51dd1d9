// SPDX-License-Identifier: Apache-2.0
// The descriptor, to the character, and DcGuest where there is no card. With a card that is none: dc_card.cc.
#include "fabric/dc_guest.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <fstream>

#include "fabric/token.h"

namespace kvern::fabric {
namespace {

using Gid = std::array<std::uint8_t, 16>;
constexpr Gid roce{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 17};

TEST(Descriptor, IsWhatCuObjectWrites) {
    EXPECT_EQ(descriptor_text({0x7f00c0de0000, 4 << 20, 0x1a2b3c4d, 0, 0x1f7, roce}),
              "00007f00c0de0000:00400000:1a2b3c4d:0000:0001f7:1:00000000000000000000ffffc0000211");
    EXPECT_EQ(descriptor_text({0x7f00c0de0000, 0, 0, 0, 0, std::nullopt}),
              "00007f00c0de0000:00000000:00000000:0000:000000:0:00000000000000000000000000000000");
    EXPECT_EQ(descriptor_text({0x0102030405060708, 0x01020304, 0x01020304, 0x0102, 0x010203,
                               Gid{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}}),
              "0102030405060708:01020304:01020304:0102:010203:1:0102030405060708090a0b0c0d0e0f10");
    EXPECT_EQ(descriptor_text({~std::uint64_t{0}, ~0U, ~0U, 0xffff, 0xffffff, std::nullopt}),
              "ffffffffffffffff:ffffffff:ffffffff:ffff:ffffff:0:00000000000000000000000000000000");
}

TEST(Descriptor, IsReadAsItIsWritten) {
    EXPECT_TRUE(rc::check("read(write(x)) == x", [] {
        Descriptor descriptor;
        descriptor.address = *rc::gen::inRange<std::uint64_t>(0, 1ULL << 62);
        descriptor.size_bytes = *rc::gen::inRange<std::uint32_t>(1, ~0U);
        descriptor.rkey = *rc::gen::arbitrary<std::uint32_t>();
        descriptor.lid = *rc::gen::arbitrary<std::uint16_t>();
        descriptor.dct_number = *rc::gen::arbitrary<std::uint32_t>();
        if (*rc::gen::arbitrary<bool>()) descriptor.gid = *rc::gen::arbitrary<Gid>();
        const auto text = descriptor_text(descriptor);
        RC_ASSERT(text.size() == 81U);
        const auto token = parse_token(text);
        RC_ASSERT(token.has_value());
        RC_ASSERT(token->kind == TokenKind::descriptor && token->descriptor == text);
        RC_ASSERT(token->base == descriptor.address && token->size_bytes == descriptor.size_bytes);
    }));
}

TEST(Dc, WithoutAConnectXItSaysSo) {
    std::ifstream cards("/sys/class/infiniband/mlx5_0/node_type");
    if (cards) GTEST_SKIP() << "there is one here";
    for (const auto* const address : {"", "192.0.2.17"}) {
        const auto guest = DcGuest::open(address);
        ASSERT_FALSE(guest);
        EXPECT_EQ(guest.error().code, ErrorCode::not_supported);
        const auto& why = guest.error().message;  // or which library or header is missing
        EXPECT_TRUE(why == "no ConnectX here" || why.find("lib") != std::string::npos) << why;
    }
}

}  // namespace
}  // namespace kvern::fabric
