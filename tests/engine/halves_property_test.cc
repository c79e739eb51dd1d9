// SPDX-License-Identifier: Apache-2.0
// Both halves together, at random, against an engine that knows what every block must hold. Rules I1, I2, I3, I5, I8,
// I9 and I10 are watched by the simulator itself.
#include <gtest/gtest.h>

#include <cstdlib>

#include "engine/simulator.h"

namespace kvern {
namespace {

TEST(HalvesProperty, BlocksAreGoldenOrReportedBad) {
    const char* given = std::getenv("KVERN_TEST_SEED");
    const unsigned seed = given ? static_cast<unsigned>(std::atoi(given)) : std::random_device()();
    std::printf("KVERN_TEST_SEED=%u\n", seed);
    testing::Simulator::Seen all;
    for (unsigned i = 0; i < 8 && !HasFailure(); ++i) {
        SCOPED_TRACE(::testing::Message() << "KVERN_TEST_SEED=" << seed << ", round " << i);
        testing::Simulator simulator(seed + i);
        simulator.run(60);
        const auto seen = simulator.seen();
        all.loads += seen.loads;
        all.bad_loads += seen.bad_loads;
        all.preemptions += seen.preemptions;
        all.aborts += seen.aborts;
        all.resets += seen.resets;
        all.damages += seen.damages;
        all.hit_tokens += seen.hit_tokens;
        all.stored_chunks += seen.stored_chunks;
    }
    std::printf(
        "loads %zu (bad %zu), preemptions %zu, aborts %zu, resets %zu, damages %zu, hit tokens %zu, chunks %zu\n",
        all.loads, all.bad_loads, all.preemptions, all.aborts, all.resets, all.damages, all.hit_tokens,
        all.stored_chunks);
    // Else it proved nothing.
    EXPECT_GT(all.loads, 20U);
    EXPECT_GT(all.bad_loads, 0U);
    EXPECT_GT(all.preemptions, 0U);
    EXPECT_GT(all.aborts, 0U);
    EXPECT_GT(all.resets, 0U);
    EXPECT_GT(all.hit_tokens, 100U);
    EXPECT_GT(all.stored_chunks, 100U);
}

}  // namespace
}  // namespace kvern
