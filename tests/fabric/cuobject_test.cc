// SPDX-License-Identifier: Apache-2.0
// CuObjectGuest with a library that stands in for NVIDIA's (fake_cuobjclient.cc). Not run on hardware.
#include "fabric/cuobject_guest.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "fabric/region_of.h"
#include "fabric/token.h"
#include "kvern/limits.h"

namespace kvern::fabric {
namespace {

// What the stand-in knows.
long fake(const char* what) {
    using Asked = long (*)(const char*);
    void* const library = dlopen(KVERN_FAKE_CUOBJCLIENT, RTLD_NOW | RTLD_NOLOAD);
    if (library == nullptr) return 0;
    Asked asked = nullptr;
    void* const symbol = dlsym(library, "kvern_fake_cuobject");
    std::memcpy(&asked, &symbol, sizeof symbol);
    dlclose(library);
    return asked(what);
}

std::uint64_t address_of(const std::byte* memory) {
    return reinterpret_cast<std::uintptr_t>(memory);
}

class CuObject : public ::testing::Test {
  protected:
    void SetUp() override { setenv("KVERN_CUOBJECT_LIBRARY", KVERN_FAKE_CUOBJCLIENT, 1); }
    void TearDown() override {
        unsetenv("KVERN_FAKE_CUOBJECT");
        unsetenv("KVERN_CUOBJECT_LIBRARY");
        EXPECT_EQ(fake("tokens"), 0) << "all were given back";
        EXPECT_EQ(fake("registrations"), 0);
        EXPECT_EQ(fake("overlaps"), 0);
    }
    static void fail_by(const char* how) { setenv("KVERN_FAKE_CUOBJECT", how, 1); }
};

TEST_F(CuObject, TokensNameExactlyTheBytesAndTheDirection) {
    const auto guest = CuObjectGuest::shared();
    ASSERT_TRUE(guest) << guest.error().message;
    EXPECT_STREQ((*guest)->provider(), "cuobject");
    const auto refused_before = fake("refused");
    const auto region = region_of(1 << 20);
    const auto windows = (*guest)->hand_over(region);
    ASSERT_TRUE(windows) << windows.error().message;
    ASSERT_EQ(windows->size(), 1U);
    EXPECT_EQ(windows->front().begin, region->base());
    EXPECT_EQ(windows->front().size_bytes, region->size_bytes());
    for (const auto direction : {Direction::into, Direction::from}) {
        for (const auto& [offset, size] :
             {std::pair(0UL, 1UL << 20), std::pair(4096UL, 10UL), std::pair((1UL << 20) - 1, 1UL)}) {
            const auto minted = (*guest)->token(windows->front(), offset, size, direction);
            ASSERT_TRUE(minted) << minted.error().message;
            EXPECT_EQ(minted->text.size(), 81U) << "bare: some servers refuse anything else";
            const auto token = parse_token(minted->text);
            ASSERT_TRUE(token) << token.error().message;
            EXPECT_EQ(token->kind, TokenKind::descriptor);
            EXPECT_EQ(token->base, address_of(region->base()) + offset);
            EXPECT_EQ(token->size_bytes, size);
            EXPECT_EQ(fake("operation"), direction == Direction::into ? 0 : 1) << "a GET writes into our memory";
        }
    }
    EXPECT_EQ(fake("refused"), refused_before) << "always asked by the base of what was registered";
}

TEST_F(CuObject, ATokenIsTheLibrarysUntilItsTransferEnds) {
    auto guest = *CuObjectGuest::shared();
    const auto region = region_of(4096);
    const auto window = guest->hand_over(region)->front();
    auto first = guest->token(window, 0, 100, Direction::into);
    auto second = guest->token(window, 100, 100, Direction::from);
    EXPECT_EQ(fake("tokens"), 2);
    first->kept.reset();
    EXPECT_EQ(fake("tokens"), 1);
    guest.reset();  // the store is closed while a transfer is under way
    EXPECT_EQ(fake("registrations"), 1) << "what the token names stays";
    second->kept.reset();
    EXPECT_EQ(fake("tokens"), 0);
    EXPECT_EQ(fake("registrations"), 0);
}

TEST_F(CuObject, OneGuestAProcessRegistersARegionOnce) {
    const auto region = region_of(1 << 20), other = region_of(4096);
    const auto one = *CuObjectGuest::shared(), same = *CuObjectGuest::shared();
    EXPECT_EQ(one, same);
    const auto before = registrations();
    ASSERT_TRUE(one->hand_over(region));
    ASSERT_TRUE(same->hand_over(region));
    ASSERT_TRUE(same->hand_over(other));
    EXPECT_EQ(fake("registrations"), 2);
    EXPECT_EQ(registrations() - before, 2U) << "and they are counted";
    EXPECT_EQ(fake("clients"), 1);
}

TEST_F(CuObject, AGuestThatFollowsAnotherHasItsOwnRegistrations) {
    const auto region = region_of(1 << 20);
    for (int i = 0; i < 3; ++i) {
        const auto guest = *CuObjectGuest::shared();
        const auto windows = guest->hand_over(region);
        ASSERT_TRUE(windows) << windows.error().message;
        EXPECT_TRUE(guest->token(windows->front(), 0, 1, Direction::into));
    }
    EXPECT_EQ(fake("registrations"), 0);
    EXPECT_EQ(fake("clients"), 1) << "the library's client is never made twice";
}

TEST_F(CuObject, ARegionBeyondTheLibrarysLimitIsHandedOverInParts) {
    const auto region = region_of(limits::registration_bytes_max + (1 << 20));  // no page of it is touched
    if (!region) GTEST_SKIP() << "NOT TESTED: this host has not so much memory";
    const auto guest = *CuObjectGuest::shared();
    const auto windows = guest->hand_over(region);
    ASSERT_TRUE(windows) << windows.error().message;
    ASSERT_EQ(windows->size(), 2U);
    EXPECT_EQ((*windows)[0].size_bytes, limits::registration_bytes_max);
    EXPECT_EQ((*windows)[1].begin, region->base() + limits::registration_bytes_max);
    EXPECT_EQ((*windows)[1].size_bytes, 1U << 20);
    EXPECT_EQ(static_cast<std::size_t>(fake("registered_bytes")), region->size_bytes());
    const auto last = guest->token((*windows)[1], (1 << 20) - 4096, 4096, Direction::into);
    ASSERT_TRUE(last) << last.error().message;
    EXPECT_EQ(parse_token(last->text)->base, address_of(region->base()) + region->size_bytes() - 4096);
    const auto whole = guest->token((*windows)[0], 0, limits::registration_bytes_max, Direction::from);
    ASSERT_TRUE(whole) << "its size fits into 32 bits";
    EXPECT_EQ(parse_token(whole->text)->size_bytes, limits::registration_bytes_max);
}

TEST_F(CuObject, WhatIsMissingIsSaid) {
    const auto why = [](const char* library) {
        setenv("KVERN_CUOBJECT_LIBRARY", library, 1);
        const auto guest = CuObjectGuest::shared();
        EXPECT_FALSE(guest);
        EXPECT_EQ(guest ? ErrorCode::internal : guest.error().code, ErrorCode::not_supported);
        return guest ? std::string() : guest.error().message;
    };
    const auto missing = why("libkvern-there-is-none.so.1");
    EXPECT_NE(missing.find("libkvern-there-is-none.so.1"), std::string::npos) << missing;
    EXPECT_NE(missing.find("CUDA 13.1.1"), std::string::npos) << missing;
    const auto other = why("libm.so.6");
    EXPECT_NE(other.find("libm.so.6 has no cuObjClient"), std::string::npos) << other;
}

TEST_F(CuObject, AnExceptionOfTheLibraryGoesNoFurther) {
    setenv("KVERN_CUOBJECT_LIBRARY", "/" KVERN_FAKE_CUOBJCLIENT, 1);  // another name, so another client
    fail_by("throws");
    const auto guest = CuObjectGuest::shared();
    ASSERT_FALSE(guest);
    EXPECT_NE(guest.error().message.find("exception"), std::string::npos) << guest.error().message;
}

TEST_F(CuObject, AClientThatIsNotConnectedIsAskedAgain) {
    fail_by("unconnected");
    const auto none = CuObjectGuest::shared();
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().code, ErrorCode::unavailable);
    EXPECT_NE(none.error().message.find("not connected"), std::string::npos) << none.error().message;
    fail_by("");
    EXPECT_TRUE(CuObjectGuest::shared());
}

TEST_F(CuObject, WhatTheLibraryRefusesIsAnErrorAndLeavesNothing) {
    const auto region = region_of(4096);
    const auto guest = *CuObjectGuest::shared();
    fail_by("unregistered");
    const auto refused = guest->hand_over(region);
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().message.find("4 KiB"), std::string::npos) << refused.error().message;
    fail_by("");
    const auto window = guest->hand_over(region)->front();
    fail_by("mute");
    EXPECT_FALSE(guest->token(window, 0, 1, Direction::into));
    // Beyond what was registered the library decides, as it must: it knows its own limits.
    fail_by("");
    EXPECT_FALSE(guest->token(window, 4096, 1, Direction::into));
}

TEST_F(CuObject, ATokenThatNamesAnythingElseIsNotUsed) {
    const auto region = region_of(4096);
    const auto guest = *CuObjectGuest::shared();
    const auto window = guest->hand_over(region)->front();
    for (const auto* const how : {"another-range", "suffixed"}) {
        fail_by(how);
        const auto token = guest->token(window, 0, 100, Direction::into);
        ASSERT_FALSE(token) << how;
        EXPECT_EQ(token.error().code, ErrorCode::internal);
        EXPECT_EQ(token.error().message.find("ffff7f000001"), std::string::npos) << "it is nobody's to see";
        EXPECT_EQ(fake("tokens"), 0);
    }
}

TEST_F(CuObject, ThreadsTakeTurnsInTheLibrary) {
    const auto region = region_of(1 << 20);
    const auto guest = *CuObjectGuest::shared();
    std::vector<std::thread> threads;
    for (std::uint64_t i = 0; i < 4; ++i) {
        threads.emplace_back([&, i] {
            const auto window = guest->hand_over(region)->front();
            for (std::uint64_t n = 0; n < 500; ++n) {
                const auto token = guest->token(window, i * 4096 + n, 7, Direction::into);
                ASSERT_TRUE(token);
                EXPECT_EQ(parse_token(token->text)->base, address_of(region->base()) + i * 4096 + n);
            }
        });
    }
    for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace kvern::fabric
