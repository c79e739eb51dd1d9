// SPDX-License-Identifier: Apache-2.0
#include "base/breaker.h"

#include <gtest/gtest.h>

namespace kvern {
namespace {

using std::chrono::milliseconds;

struct Fixture {
    void fail(unsigned times) {
        for (unsigned i = 0; i < times; ++i) breaker.failure();
    }
    FakeClock clock;
    Breaker breaker{clock};
};

TEST(Breaker, OpensAfterThreeFailuresInARow) {
    Fixture f;
    f.fail(2);
    f.breaker.success();
    f.fail(2);
    EXPECT_TRUE(f.breaker.allow());
    EXPECT_FALSE(f.breaker.open());
    f.fail(1);
    EXPECT_FALSE(f.breaker.allow());
    EXPECT_TRUE(f.breaker.open());
}

TEST(Breaker, OneProbeAfterEachPauseUntilOneSucceeds) {
    Fixture f;
    f.fail(3);
    f.clock.advance(limits::breaker_open - milliseconds(1));
    EXPECT_FALSE(f.breaker.allow());
    f.clock.advance(milliseconds(1));
    EXPECT_TRUE(f.breaker.allow());
    EXPECT_FALSE(f.breaker.allow());
    f.breaker.failure();
    EXPECT_FALSE(f.breaker.allow());
    f.clock.advance(limits::breaker_open);
    EXPECT_TRUE(f.breaker.allow());
    EXPECT_FALSE(f.breaker.allow());
    f.clock.advance(limits::breaker_open);
    EXPECT_TRUE(f.breaker.allow()) << "a probe that never answers does not keep it open for ever";
    f.breaker.success();
    EXPECT_TRUE(f.breaker.allow());
    EXPECT_TRUE(f.breaker.allow());
}

}  // namespace
}  // namespace kvern
