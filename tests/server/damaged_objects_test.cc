// SPDX-License-Identifier: Apache-2.0
#include "server/damaged_objects.h"

#include <gtest/gtest.h>

#include "kvern/limits.h"

namespace kvern::server {
namespace {

TEST(DamagedObjects, AreKnownByTheVersionThatWasDamaged) {
    DamagedObjects damaged;
    EXPECT_FALSE(damaged.holds("a", "1"));
    damaged.add("a", "1");
    EXPECT_TRUE(damaged.holds("a", "1"));
    EXPECT_FALSE(damaged.holds("a", "2")) << "what replaced it is sound";
    EXPECT_FALSE(damaged.holds("b", "1"));
    damaged.add("a", "2");
    EXPECT_TRUE(damaged.holds("a", "2"));
    EXPECT_FALSE(damaged.holds("a", "1"));
    EXPECT_EQ(damaged.found(), 2U);
}

TEST(DamagedObjects, AreForgottenBeforeTheyAreTooMany) {
    DamagedObjects damaged;
    for (std::size_t i = 0; i < 2 * limits::server_damaged_known_max; ++i) damaged.add(std::to_string(i), "e");
    std::size_t known = 0;
    for (std::size_t i = 0; i < 2 * limits::server_damaged_known_max; ++i)
        known += damaged.holds(std::to_string(i), "e");
    EXPECT_EQ(known, limits::server_damaged_known_max);
    EXPECT_TRUE(damaged.holds(std::to_string(2 * limits::server_damaged_known_max - 1), "e")) << "the latest is known";
}

}  // namespace
}  // namespace kvern::server
