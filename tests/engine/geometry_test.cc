// SPDX-License-Identifier: Apache-2.0
#include "engine/geometry.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace kvern {
namespace {

using nlohmann::json;

Geometry sample() {
    return {"pp 0, tp 1",
            {{{GroupKind::full, 16, 256, 0}, {0, 47, 2, 3}}, {{GroupKind::window, 32, 256, 128}, {0, 7, 0, 0}}},
            1000,
            R"({"a": "b\"c"})",
            "n0nce"};
}

TEST(Geometry, RoundTrip) {
    const auto read = Geometry::from_json(sample().to_json());
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(read->rank, "pp 0, tp 1");
    EXPECT_EQ(read->groups, sample().groups);
    EXPECT_EQ(read->num_blocks, 1000U);
    EXPECT_EQ(read->identity, R"({"a": "b\"c"})");
    EXPECT_EQ(read->nonce, "n0nce");
}

// Every key of an object, missing and of another type.
void expect_each_key_is_needed(const json& whole, const std::function<json(const json&)>& place) {
    for (const auto& [key, value] : whole.items()) {
        json missing = whole;
        missing.erase(key);
        const auto read = Geometry::from_json(place(missing).dump());
        ASSERT_FALSE(read) << key;
        EXPECT_NE(read.error().message.find(key), std::string::npos) << read.error().message;
        json mistyped = whole;
        mistyped[key] = value.is_number() || value.is_array() ? json("text") : json(7);
        EXPECT_FALSE(Geometry::from_json(place(mistyped).dump())) << key;
    }
}

TEST(Geometry, AnythingElseIsRefusedWithoutAnException) {
    const auto whole = json::parse(sample().to_json());
    expect_each_key_is_needed(whole, [](const json& changed) { return changed; });
    expect_each_key_is_needed(whole["groups"][1], [&](const json& changed) {
        json with = whole;
        with["groups"][1] = changed;
        return with;
    });
    json changed = whole;
    changed["groups"][0]["shard"] = {1, 2, 3};
    EXPECT_FALSE(Geometry::from_json(changed.dump()));
    changed = whole;
    changed["groups"][0]["kind"] = "spiral";
    EXPECT_FALSE(Geometry::from_json(changed.dump()));
    EXPECT_FALSE(Geometry::from_json(std::string(100'000, '[') + std::string(100'000, ']')));
    for (const char* text : {"", "{", "[]", "7"}) EXPECT_FALSE(Geometry::from_json(text)) << text;
}

// A nonce is whatever bytes the store gives.
TEST(Geometry, ANonceThatIsNoTextIsToldAsAnotherOne) {
    Geometry geometry = sample();
    geometry.nonce = "\xff\xfe";
    const auto read = Geometry::from_json(geometry.to_json());
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_FALSE(read->nonce.empty());
    EXPECT_NE(read->nonce, geometry.nonce);
}

}  // namespace
}  // namespace kvern
