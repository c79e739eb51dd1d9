// SPDX-License-Identifier: Apache-2.0
#include "kvern/version.h"

#include <gtest/gtest.h>

namespace kvern {
namespace {

TEST(Version, HasThreeNumbers) {
    int dots = 0;
    for (const char c : version()) {
        EXPECT_TRUE(c == '.' || (c >= '0' && c <= '9')) << c;
        dots += c == '.' ? 1 : 0;
    }
    EXPECT_EQ(dots, 2);
}

}  // namespace
}  // namespace kvern
