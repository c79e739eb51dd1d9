// SPDX-License-Identifier: Apache-2.0
#include "engine/geometry.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace kvern {
namespace {

Geometry sample() {
    return {"pp 0, tp 1", {0, 47, 2, 3}, 16, 256, 1000, std::uint64_t{1} << 33, R"({"a": "b\"c"})", "n0nce"};
}

TEST(Geometry, RoundTrip) {
    const auto read = Geometry::from_json(sample().to_json());
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(read->rank, "pp 0, tp 1");
    EXPECT_EQ(read->shard, (Shard{0, 47, 2, 3}));
    EXPECT_EQ(read->block_tokens, 16U);
    EXPECT_EQ(read->chunk_tokens, 256U);
    EXPECT_EQ(read->num_blocks, 1000U);
    EXPECT_EQ(read->page_bytes, std::uint64_t{1} << 33);
    EXPECT_EQ(read->identity, R"({"a": "b\"c"})");
    EXPECT_EQ(read->nonce, "n0nce");
}

TEST(Geometry, AnythingElseIsRefusedWithoutAnException) {
    const auto whole = nlohmann::json::parse(sample().to_json());
    for (const auto& [key, value] : whole.items()) {
        auto missing = whole;
        missing.erase(key);
        const auto read = Geometry::from_json(missing.dump());
        ASSERT_FALSE(read) << key;
        EXPECT_NE(read.error().message.find(key), std::string::npos) << read.error().message;
        auto mistyped = whole;
        mistyped[key] = nlohmann::json::object();
        EXPECT_FALSE(Geometry::from_json(mistyped.dump())) << key;
    }
    auto shard = whole;
    shard["shard"] = {1, 2, 3};
    EXPECT_FALSE(Geometry::from_json(shard.dump()));
    for (const char* text : {"", "{", "[]", "7"}) EXPECT_FALSE(Geometry::from_json(text)) << text;
}

}  // namespace
}  // namespace kvern
