// SPDX-License-Identifier: Apache-2.0
#include "cache/identity.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "base/text.h"

namespace kvern {
namespace {

Identity sample() {
    Identity identity;
    identity.engine = "vllm";
    identity.engine_version = "0.25.1";
    identity.model = "id:test";
    identity.kv_dtype = "bfloat16";
    identity.groups = {{"full", "0-3", "bf16", "NHD", "CPU_ATTN avx2", 4, 2, 16, 16, 16, 0}};
    identity.chunk_tokens = 256;
    identity.hash_algorithm = "sha256";
    identity.hash_seed = "00ff";
    identity.lora = "hash";
    identity.tenant = "b\u00fcro \"7\"\n";
    return identity;
}

// The golden text and its digest come from Python's json and hashlib.
TEST(Identity, CanonicalText) {
    EXPECT_EQ(sample().to_json(),
              R"({"chunk_tokens":256,"engine":"vllm","engine_version":"0.25.1","epoch":"","format":2,"groups":[{)"
              R"("backend":"CPU_ATTN avx2","block_tokens":16,"dtype":"bf16","head_size":16,"head_size_v":16,"kin)"
              R"(d":"full","kv_heads":2,"layer_numbers":"0-3","layers":4,"layout":"NHD","window_tokens":0}],"has)"
              R"(h_algorithm":"sha256","hash_seed":"00ff","kv_dtype":"bfloat16","lora":"hash","model":"id:test",)"
              R"("parallel":"","tenant":"b\u00fcro \"7\"\n"})");
    EXPECT_EQ(to_hex(namespace_of(sample().to_json())),
              "ebba6b83a89104e411ade7c07455f5206550dca264404ed954e9bda4ee5ba35b");
}

TEST(Identity, RoundTrip) {
    const auto read = Identity::from_json(sample().to_json());
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(read->to_json(), sample().to_json());
}

TEST(Identity, EveryFieldChangesTheNamespace) {
    using Change = std::function<void(Identity&)>;
    const Change changes[] = {
        [](Identity& i) { i.engine += "x"; },
        [](Identity& i) { i.engine_version += "x"; },
        [](Identity& i) { i.model += "x"; },
        [](Identity& i) { i.kv_dtype += "x"; },
        [](Identity& i) { i.chunk_tokens += 16; },
        [](Identity& i) { i.hash_algorithm += "x"; },
        [](Identity& i) { i.hash_seed += "x"; },
        [](Identity& i) { i.parallel += "x"; },
        [](Identity& i) { i.lora += "x"; },
        [](Identity& i) { i.tenant += "x"; },
        [](Identity& i) { i.epoch += "x"; },
        [](Identity& i) { i.groups.push_back(i.groups[0]); },
        [](Identity& i) { i.groups.clear(); },
        [](Identity& i) { i.groups[0].kind += "x"; },
        [](Identity& i) { i.groups[0].layer_numbers += "x"; },
        [](Identity& i) { i.groups[0].dtype += "x"; },
        [](Identity& i) { i.groups[0].layout += "x"; },
        [](Identity& i) { i.groups[0].backend += "x"; },
        [](Identity& i) { i.groups[0].window_tokens += 1; },
        [](Identity& i) { i.groups[0].layers += 1; },
        [](Identity& i) { i.groups[0].kv_heads += 1; },
        [](Identity& i) { i.groups[0].head_size += 1; },
        [](Identity& i) { i.groups[0].head_size_v += 1; },
        [](Identity& i) { i.groups[0].block_tokens += 1; },
    };
    std::set<std::string> seen{sample().to_json()};
    for (const Change& change : changes) {
        Identity changed = sample();
        change(changed);
        const std::string text = changed.to_json();
        EXPECT_TRUE(seen.insert(text).second) << text;
        const auto read = Identity::from_json(text);
        ASSERT_TRUE(read) << read.error().message;
        EXPECT_EQ(read->to_json(), text);
    }
}

std::string error_of(const std::string& text) {
    const auto read = Identity::from_json(text);
    return read ? "read" : read.error().message;
}

TEST(Identity, MissingAndMistypedKeysAreNamed) {
    const auto golden = nlohmann::json::parse(sample().to_json());
    for (const auto& [key, value] : golden.items()) {
        auto missing = golden;
        missing.erase(key);
        EXPECT_EQ(error_of(missing.dump()), "identity: key '" + key + "' is missing");
        auto mistyped = golden;
        mistyped[key] = true;
        const char* kind = value.is_string() ? "a string" : value.is_array() ? "a list" : "a whole number";
        EXPECT_EQ(error_of(mistyped.dump()), "identity: '" + key + "' is not " + kind);
    }
    for (const auto& [key, value] : golden["groups"][0].items()) {
        auto missing = golden;
        missing["groups"][0].erase(key);
        EXPECT_EQ(error_of(missing.dump()), "identity: group: key '" + key + "' is missing");
        auto mistyped = golden;
        mistyped["groups"][0][key] = nlohmann::json::array();
        const char* kind = value.is_string() ? "a string" : "a whole number";
        EXPECT_EQ(error_of(mistyped.dump()), "identity: group: '" + key + "' is not " + kind);
    }
}

TEST(Identity, OtherTextsAreRefused) {
    auto json = nlohmann::json::parse(sample().to_json());
    const auto with = [&](const char* key, nlohmann::json value) {
        auto changed = json;
        changed[key] = std::move(value);
        return error_of(changed.dump());
    };
    EXPECT_EQ(with("colour", "red"), "identity: unknown key 'colour'");
    EXPECT_EQ(with("groups", {"full"}), "identity: group: not a JSON object");
    EXPECT_EQ(with("chunk_tokens", -1), "identity: 'chunk_tokens' is not a whole number");
    EXPECT_EQ(with("chunk_tokens", 1.5), "identity: 'chunk_tokens' is not a whole number");
    EXPECT_EQ(with("chunk_tokens", 1LL << 32), "identity: 'chunk_tokens' is too large");
    EXPECT_EQ(with("format", 1), "identity: format 1 is not 2; another version of Kvern wrote it");
    EXPECT_EQ(error_of("{"), "identity: not JSON");
    EXPECT_EQ(error_of(""), "identity: not JSON");
    EXPECT_EQ(error_of("[]"), "identity: not a JSON object");
    EXPECT_EQ(error_of(std::string((1 << 20) + 1, ' ')), "identity: 1048577 bytes are more than the limit");
    // A megabyte of brackets once exhausted the stack.
    EXPECT_EQ(error_of(std::string(500'000, '[') + std::string(500'000, ']')),
              "identity: nested deeper than 32 levels");
    json["groups"][0]["extra"] = 1;
    EXPECT_EQ(error_of(json.dump()), "identity: group: unknown key 'extra'");
}

}  // namespace
}  // namespace kvern
