// SPDX-License-Identifier: Apache-2.0
// DcGuest with libraries that stand in for libibverbs and libmlx5 (fake_verbs.cc), which this program finds by
// LD_LIBRARY_PATH: so it is one of its own. Not run on hardware.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <set>

#include "fabric/dc_guest.h"
#include "fabric/region_of.h"
#include "fabric/token.h"
#include "kvern/limits.h"

namespace kvern::fabric {
namespace {

constexpr std::array<std::uint8_t, 16> roce{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 17};

long fake(const char* what) {
    using Asked = long (*)(const char*);
    void* const library = dlopen("libmlx5.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (library == nullptr) return 0;
    Asked asked = nullptr;
    void* const symbol = dlsym(library, "kvern_fake_verbs");
    std::memcpy(&asked, &symbol, sizeof symbol);
    dlclose(library);
    return asked != nullptr ? asked(what) : -1;
}

class StandInCard : public ::testing::Test {
  protected:
    void TearDown() override {
        unsetenv("KVERN_FAKE_VERBS");
        unsetenv("KVERN_DC_KEY");
        EXPECT_EQ(fake("open"), 0) << "nothing of the card is left open";
    }
};

TEST_F(StandInCard, TokensNameTheBytesTheTargetAndTheAddress) {
    const auto guest = DcGuest::open("192.0.2.17");
    ASSERT_TRUE(guest) << guest.error().message;
    EXPECT_STREQ((*guest)->provider(), "dc");
    EXPECT_EQ(fake("reached"), 2) << "ready to receive";
    EXPECT_EQ(fake("key"), 0xffeeddcc);
    const auto region = region_of(1 << 20), other = region_of(4096);
    const auto before = registrations();
    const auto windows = (*guest)->hand_over(region);
    ASSERT_TRUE(windows) << windows.error().message;
    EXPECT_EQ(registrations() - before, 1U);
    const auto token = (*guest)->token(windows->front(), 4096, 100, Direction::into);
    ASSERT_TRUE(token) << token.error().message;
    const auto address = reinterpret_cast<std::uintptr_t>(region->base()) + 4096;
    const auto rkey = static_cast<std::uint32_t>(std::stoul(token->text.substr(26, 8), nullptr, 16));
    EXPECT_EQ(token->text, descriptor_text({address, 100, rkey, 0, 0x1f7, roce}));
    const auto second = (*guest)->hand_over(other);
    ASSERT_TRUE(second);
    const auto another = (*guest)->token(second->front(), 0, 1, Direction::from);
    EXPECT_NE(another->text.substr(26, 8), token->text.substr(26, 8)) << "each registration has its key";
    EXPECT_EQ((*guest)->hand_over(region)->front().id, windows->front().id) << "registered once";
}

TEST_F(StandInCard, TheFirstActivePortIsUsedAndWhatCanBeRouted) {
    const auto guest = DcGuest::open("");
    ASSERT_TRUE(guest) << guest.error().message;
    const auto region = region_of(4096);
    const auto token = (*guest)->token((*guest)->hand_over(region)->front(), 0, 1, Direction::into);
    EXPECT_EQ(token->text.substr(47), "1:00000000000000000000ffffc0000211");
    EXPECT_EQ(*DcGuest::open(""), *guest) << "one a process and address";
}

TEST_F(StandInCard, OfInfiniBandTheLidIsTheAddress) {
    const auto guest = DcGuest::open("fe80::2:c903:12");  // the port's GID
    ASSERT_TRUE(guest) << guest.error().message;
    const auto region = region_of(4096);
    const auto token = (*guest)->token((*guest)->hand_over(region)->front(), 0, 1, Direction::into);
    EXPECT_EQ(token->text.substr(35), "0007:0001f7:0:00000000000000000000000000000000");
}

TEST_F(StandInCard, AnAddressThatNoActivePortHasIsSaid) {
    for (const auto* const address : {"192.0.2.16", "198.51.100.1"}) {  // the first is of a port that is down
        const auto guest = DcGuest::open(address);
        ASSERT_FALSE(guest);
        EXPECT_EQ(guest.error().code, ErrorCode::not_supported);
        EXPECT_NE(guest.error().message.find(address), std::string::npos) << guest.error().message;
    }
    const auto nonsense = DcGuest::open("mlx5_0");
    ASSERT_FALSE(nonsense);
    EXPECT_EQ(nonsense.error().code, ErrorCode::invalid_argument);
    setenv("KVERN_FAKE_VERBS", "none", 1);
    const auto none = DcGuest::open("192.0.2.17");
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().message, "no ConnectX here");
}

TEST_F(StandInCard, TheKeyIsTheEnvironments) {
    setenv("KVERN_DC_KEY", "0x1234abcd", 1);
    EXPECT_TRUE(DcGuest::open("192.0.2.17"));
    EXPECT_EQ(fake("key"), 0x1234abcd);
    for (const auto* const wrong : {"key", "0x", "12345678123456781", "12 "}) {
        setenv("KVERN_DC_KEY", wrong, 1);
        const auto guest = DcGuest::open("192.0.2.17");
        ASSERT_FALSE(guest) << wrong;
        EXPECT_EQ(guest.error().code, ErrorCode::invalid_argument);
        EXPECT_EQ(guest.error().message.find(wrong), std::string::npos) << "secrets are not repeated";
    }
}

TEST_F(StandInCard, WhatTheCardRefusesIsAnErrorAndLeavesNothing) {
    for (const auto* const call :
         {"ibv_alloc_pd", "ibv_create_cq", "ibv_create_srq", "mlx5dv_create_qp", "ibv_modify_qp"}) {
        setenv("KVERN_FAKE_VERBS", call, 1);
        const auto guest = DcGuest::open("192.0.2.17");
        ASSERT_FALSE(guest) << call;
        EXPECT_NE(guest.error().message.find(call), std::string::npos) << guest.error().message;
        EXPECT_EQ(fake("open"), 0) << call;
    }
    unsetenv("KVERN_FAKE_VERBS");
    const auto guest = *DcGuest::open("192.0.2.17");
    setenv("KVERN_FAKE_VERBS", "ibv_reg_mr", 1);
    const auto refused = guest->hand_over(region_of(4096));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::resource);
    EXPECT_NE(refused.error().message.find("ulimit -l"), std::string::npos) << refused.error().message;
}

TEST_F(StandInCard, ARegionBeyondTheLimitIsHandedOverInParts) {
    const auto region = region_of(limits::registration_bytes_max + (1 << 20));  // no page of it is touched
    if (!region) GTEST_SKIP() << "NOT TESTED: this host has not so much memory";
    const auto guest = *DcGuest::open("");
    const auto windows = guest->hand_over(region);
    ASSERT_TRUE(windows) << windows.error().message;
    ASSERT_EQ(windows->size(), 2U);
    std::set<std::string> keys;
    for (const auto& window : *windows) {
        const auto token = parse_token(guest->token(window, 0, window.size_bytes, Direction::into)->text);
        ASSERT_TRUE(token);
        EXPECT_EQ(token->base, reinterpret_cast<std::uintptr_t>(window.begin));
        EXPECT_EQ(token->size_bytes, window.size_bytes);
        keys.insert(token->descriptor.substr(26, 8));
    }
    EXPECT_EQ(keys.size(), 2U);
    EXPECT_EQ(windows->back().begin + windows->back().size_bytes, region->base() + region->size_bytes());
}

}  // namespace
}  // namespace kvern::fabric
