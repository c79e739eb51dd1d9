// SPDX-License-Identifier: Apache-2.0
#include "cache/presence.h"

#include <gtest/gtest.h>

#include <string>

namespace kvern {
namespace {

using std::chrono::milliseconds;

ChunkHash hash(std::size_t number) {
    return ChunkHash(std::to_string(number));
}

TEST(Presence, BeliefsEndWithTheirTimeToLive) {
    const std::pair<Belief, milliseconds> lives[] = {{Belief::present, limits::presence_positive_ttl},
                                                     {Belief::absent, limits::presence_negative_ttl},
                                                     {Belief::failed, limits::presence_failed_ttl}};
    for (const auto& [belief, time_to_live] : lives) {
        FakeClock clock;
        Presence presence(clock);
        EXPECT_FALSE(presence.find(hash(1), 0));
        presence.note(hash(1), 0, belief);
        clock.advance(time_to_live - milliseconds(1));
        EXPECT_EQ(presence.find(hash(1), 0), belief);
        clock.advance(milliseconds(1));
        EXPECT_FALSE(presence.find(hash(1), 0));
    }
}

// I4: a lookup that sees the object again does not undo what a load has shown.
TEST(Presence, FailedOutlivesPresentAndAbsent) {
    FakeClock clock;
    Presence presence(clock);
    presence.note(hash(1), 0, Belief::failed);
    presence.note(hash(1), 0, Belief::present);
    EXPECT_EQ(presence.find(hash(1), 0), Belief::failed);
    presence.note(hash(1), 0, Belief::absent);
    EXPECT_EQ(presence.find(hash(1), 0), Belief::failed);
    clock.advance(limits::presence_failed_ttl);
    EXPECT_FALSE(presence.find(hash(1), 0));
    presence.note(hash(1), 0, Belief::present);
    EXPECT_EQ(presence.find(hash(1), 0), Belief::present);
    presence.note(hash(1), 0, Belief::failed);
    EXPECT_EQ(presence.find(hash(1), 0), Belief::failed) << "a load knows better than a lookup";
    presence.forget(hash(1), 0);
    presence.note(hash(1), 0, Belief::present);
    EXPECT_EQ(presence.find(hash(1), 0), Belief::present);
}

TEST(Presence, TheNewestNoteCounts) {
    FakeClock clock;
    Presence presence(clock);
    presence.note(hash(1), 0, Belief::present);
    presence.note(hash(1), 0, Belief::absent);
    EXPECT_EQ(presence.find(hash(1), 0), Belief::absent);
    EXPECT_EQ(presence.size(), 1U);
}

TEST(Presence, IsBoundedAndKeepsTheNewest) {
    FakeClock clock;
    Presence presence(clock, 100);
    for (std::size_t i = 0; i < 1000; ++i) {
        presence.note(hash(i), 0, Belief::present);
        ASSERT_LE(presence.size(), 102U);
        for (std::size_t j = i < 49 ? 0 : i - 49; j <= i; ++j) ASSERT_TRUE(presence.find(hash(j), 0)) << i << ' ' << j;
    }
    EXPECT_FALSE(presence.find(hash(0), 0));
}

TEST(Presence, ClearForgetsAll) {
    FakeClock clock;
    Presence presence(clock, 4);
    for (std::size_t i = 0; i < 5; ++i) presence.note(hash(i), 0, Belief::failed);
    presence.clear();
    EXPECT_EQ(presence.size(), 0U);
    for (std::size_t i = 0; i < 5; ++i) EXPECT_FALSE(presence.find(hash(i), 0));
}

}  // namespace
}  // namespace kvern
