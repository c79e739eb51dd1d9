// SPDX-License-Identifier: Apache-2.0
#include "keep/usage.h"

#include "keep/keep_fixture.h"

namespace kvern::testing {
namespace {

class UsageTest : public KeepTest {
  protected:
    void use_namespace(char digit, const std::string& label) {
        space_ = std::string(64, digit);
        if (!label.empty()) put_bytes(label_key(space_), label);
    }
    Usage measured() {
        const auto catalogue = read_catalogue(*client_, "", {});
        EXPECT_TRUE(catalogue);
        const auto labels = read_labels(*client_, *catalogue);
        EXPECT_TRUE(labels);
        return measure_usage(*catalogue, *labels, clock_.now_ns());
    }
};

TEST_F(UsageTest, SumsByModelOverItsNamespaces) {
    use_namespace('a', "llama\n");
    put_chunk("a", "");
    use_namespace('b', "llama\nmore\n");
    put_chunk("b", "", 3 * page);
    put_bytes(key_of("b", "", 1), "x");
    use_namespace('c', "qwen");
    put_chunk("c", "");
    use_namespace('d', "");
    put_chunk("d", "");
    put_chunk("e", "", 2 * page);
    const auto usage = measured();
    ASSERT_EQ(usage.models.size(), 3U);
    EXPECT_EQ(usage.models[0].name, "llama");
    EXPECT_EQ(usage.models[0].namespaces, 2U);
    EXPECT_EQ(usage.models[0].chunks, 2U);
    EXPECT_EQ(usage.models[0].objects, 3U);
    EXPECT_EQ(usage.models[0].bytes, 5 * page);
    EXPECT_EQ(usage.models[1].name, "");
    EXPECT_EQ(usage.models[1].bytes, 3 * page);
    EXPECT_EQ(usage.models[2].name, "qwen");
    ASSERT_EQ(usage.namespaces.size(), 4U);
    EXPECT_EQ(usage.namespaces[0].name, std::string(64, 'b'));
    EXPECT_EQ(usage.namespaces[0].label, "llama");
    EXPECT_EQ(usage.total.chunks, 5U);
    EXPECT_EQ(usage.total.bytes, 12 * page);  // with three labels
}

TEST_F(UsageTest, SortsByTimeSinceTheLastUse) {
    const auto day = std::chrono::hours(24);
    const std::vector<std::chrono::nanoseconds> steps{40 * day, 10 * day, 3 * day, std::chrono::hours(2),
                                                      std::chrono::seconds(0)};
    // Each is as old as its own step and all that follow.
    for (std::size_t i = 0; i < steps.size(); ++i) {
        put_chunk(std::to_string(i), "");
        clock_.advance(steps[i]);
    }
    const auto usage = measured();
    ASSERT_EQ(usage.ages.size(), usage_ages.size());
    const std::vector<std::uint64_t> expected{1, 1, 1, 1, 1};
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(usage.ages[i].chunks, expected[i]) << usage_ages[i];
    EXPECT_EQ(usage.ages[0].newest_use_ns, clock_.now_ns());
}

TEST_F(UsageTest, ALabelIsItsFirstLineWithoutControlCharacters) {
    use_namespace('a', "m\x1b[31mo\tdel\nsecond");
    put_chunk("a", "");
    EXPECT_EQ(measured().models.at(0).name, "m[31model");
}

}  // namespace
}  // namespace kvern::testing
