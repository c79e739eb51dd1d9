// SPDX-License-Identifier: Apache-2.0
// Both halves together, at random, against an engine that knows what every block must hold. Rules I1, I2, I3, I5, I8,
// I9 and I10 are watched by the simulator itself.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

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

// The same with a store that fails in every way it can. Stalls are longer than a load waits, so that bytes land late in
// memory that was given up.
TEST(HalvesProperty, BlocksAreGoldenOrReportedBadUnderEveryFault) {
    const std::string rules = R"({"rules": [
        {"fault": "error", "probability": 0.02}, {"fault": "busy", "probability": 0.02},
        {"fault": "stall", "ms": 150, "probability": 0.02}, {"fault": "drip", "bytes_per_second": 5e5, "probability": 0.03},
        {"fault": "cut", "probability": 0.03}, {"fault": "torn", "probability": 0.03},
        {"fault": "flip", "probability": 0.05}, {"fault": "lost", "probability": 0.03},
        {"fault": "gone", "probability": 0.03}, {"fault": "late", "ms": 150, "probability": 0.03}]})";
    const char* given = std::getenv("KVERN_TEST_SEED");
    const unsigned seed = given ? static_cast<unsigned>(std::atoi(given)) : std::random_device()();
    std::printf("KVERN_TEST_SEED=%u\n", seed);
    std::set<std::string> missing{"error", "busy", "stall", "drip", "cut", "torn", "flip", "lost", "gone", "late"};
    std::uint64_t hit_tokens = 0;
    std::size_t bad_loads = 0;
    // So many rounds as it takes to see all of them.
    for (unsigned round = 0; round < 60 && (round < 4 || !missing.empty()) && !HasFailure(); ++round) {
        SCOPED_TRACE(::testing::Message() << "KVERN_TEST_SEED=" << seed << ", round " << round);
        testing::Simulator simulator(seed + round, rules);
        simulator.run(60);
        const auto text = simulator.describe_stores();
        std::erase_if(missing, [&](const std::string& fault) {
            return text.find(": " + fault + " ") != std::string::npos ||
                   text.find(", " + fault + " ") != std::string::npos;
        });
        hit_tokens += simulator.seen().hit_tokens;
        bad_loads += simulator.seen().bad_loads;
    }
    std::printf("bad loads %zu, hit tokens %zu\n", bad_loads, static_cast<std::size_t>(hit_tokens));
    EXPECT_TRUE(missing.empty()) << "never seen: " << *missing.begin() << " and perhaps others";
    EXPECT_GT(hit_tokens, 0U);
    EXPECT_GT(bad_loads, 0U);
}

}  // namespace
}  // namespace kvern
