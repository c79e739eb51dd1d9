// SPDX-License-Identifier: Apache-2.0
#include "engine/options.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace kvern {
namespace {

using nlohmann::json;

Options parsed(const std::string& text) {
    const auto options = Options::parse(text);
    EXPECT_TRUE(options) << options.error().message;
    return options.value_or(Options{});
}

std::string error_of(const std::string& text) {
    const auto options = Options::parse(text);
    return options ? "accepted" : options.error().message;
}

std::string error_with(const std::string& name, const json& value) {
    return error_of(json{{"store", "mem:"}, {name, value}}.dump());
}

TEST(Options, Defaults) {
    const Options options = parsed(R"({"store": "file:///mnt/kv"})");
    EXPECT_EQ(options.store, "file:///mnt/kv");
    EXPECT_EQ(options.staging_mib, 1024U);
    EXPECT_EQ(options.gpu_staging_mib, 256U);
    EXPECT_EQ(options.min_free_percent, 5U);
    EXPECT_EQ(options.chunk_tokens, 0U);
    EXPECT_EQ(options.lookup_wait_us, 500U);
    EXPECT_EQ(options.lookup_deadline_ms, 50U);
    EXPECT_EQ(options.load_stall_ms, 2000U);
    EXPECT_EQ(options.min_tokens, 0U);
    EXPECT_EQ(options.model_id, "");
    EXPECT_EQ(options.tenant, "");
    EXPECT_TRUE(options.epoch_on_reset);
    EXPECT_EQ(options.mode, Mode::read_write);
    EXPECT_FALSE(options.allow_fail_policy);
}

TEST(Options, EachOneIsRead) {
    const Options options = parsed(R"({"store": "mem:", "staging_mib": 7, "chunk_tokens": 512, "lookup_wait_us": 0,
        "lookup_deadline_ms": 9, "load_stall_ms": 11, "min_tokens": 13, "gpu_staging_mib": 15, "min_free_percent": 17, "model_id": "m", "tenant": "t",
        "on_reset": "keep", "mode": "write_only", "allow_fail_policy": true})");
    EXPECT_EQ(options.staging_mib, 7U);
    EXPECT_EQ(options.chunk_tokens, 512U);
    EXPECT_EQ(options.lookup_wait_us, 0U);
    EXPECT_EQ(options.lookup_deadline_ms, 9U);
    EXPECT_EQ(options.load_stall_ms, 11U);
    EXPECT_EQ(options.min_tokens, 13U);
    EXPECT_EQ(options.gpu_staging_mib, 15U);
    EXPECT_EQ(options.min_free_percent, 17U);
    EXPECT_EQ(options.model_id, "m");
    EXPECT_EQ(options.tenant, "t");
    EXPECT_FALSE(options.epoch_on_reset);
    EXPECT_EQ(options.mode, Mode::write_only);
    EXPECT_TRUE(options.allow_fail_policy);
    EXPECT_EQ(parsed(R"({"store": "mem:", "mode": "read_only"})").mode, Mode::read_only);
    EXPECT_EQ(parsed(R"({"store": "mem:", "mode": "read_write", "on_reset": "epoch"})").mode, Mode::read_write);
    EXPECT_EQ(parsed(R"({"store": "mem:", "mode": null, "staging_mib": null})").staging_mib, 1024U);
}

TEST(Options, WrongTypesAndRangesAreNamed) {
    const struct {
        const char* name;
        std::uint64_t min, max;
    } numbers[] = {{"staging_mib", 1, 1 << 24},      {"chunk_tokens", 1, 1 << 20}, {"lookup_wait_us", 0, 1000000},
                   {"lookup_deadline_ms", 1, 60000}, {"load_stall_ms", 1, 600000}, {"min_tokens", 0, 1 << 30},
                   {"gpu_staging_mib", 1, 1 << 20},  {"min_free_percent", 0, 99}};
    for (const auto& [name, min, max] : numbers) {
        EXPECT_EQ(error_with(name, min), "accepted");
        EXPECT_EQ(error_with(name, max), "accepted");
        std::vector<json> wrong = {max + 1, "8", 1.5, -1, true, json::array()};
        if (min > 0) wrong.push_back(min - 1);
        for (const json& value : wrong)
            EXPECT_EQ(error_with(name, value), std::string("option ") + name + ": " + value.dump() +
                                                   " is not a whole number from " + std::to_string(min) + " to " +
                                                   std::to_string(max));
    }
    for (const char* name : {"model_id", "tenant"})
        EXPECT_EQ(error_with(name, 7), std::string("option ") + name + ": 7 is not a text");
    EXPECT_EQ(error_of(R"({"store": 7})"), "option store: 7 is not a text");
    EXPECT_EQ(error_with("allow_fail_policy", "yes"), "option allow_fail_policy: \"yes\" is not true or false");
}

TEST(Options, GoldenSentences) {
    EXPECT_EQ(error_with("mode", "readonly"),
              "option mode: 'readonly' is not one of read_write, read_only, write_only (did you mean 'read_only'?)");
    EXPECT_EQ(error_with("mode", 5),
              "option mode: '5' is not one of read_write, read_only, write_only (known: "
              "read_write, read_only, write_only)");
    EXPECT_EQ(error_with("on_reset", "Keep"),
              "option on_reset: 'Keep' is not one of epoch, keep (did you mean 'keep'?)");
    EXPECT_EQ(error_with("staging_mb", 5), "option staging_mb: there is no such option (did you mean 'staging_mib'?)");
    EXPECT_EQ(error_of("{}"), "option store: it is missing; give a URI such as \"file:///mnt/kv\"");
    EXPECT_EQ(error_of(R"({"store": ""})"), "option store: it is missing; give a URI such as \"file:///mnt/kv\"");
    for (const char* text : {"", "[]", "null", "7", "{", "\"store\""})
        EXPECT_EQ(error_of(text), "kv_connector_extra_config is not a JSON object");
    // Many brackets once exhausted the stack.
    EXPECT_EQ(error_of(R"({"store": )" + std::string(100'000, '[') + std::string(100'000, ']') + "}"),
              "kv_connector_extra_config: options are plain values, not nested ones");
}

TEST(ChunkTokens, DefaultIsAbout16MiBWithinItsBounds) {
    EXPECT_EQ(default_chunk_tokens({16, 128 << 10}), 256U) << "128 tokens would be 16 MiB: the lower bound";
    EXPECT_EQ(default_chunk_tokens({16, 64 << 10}), 256U);
    EXPECT_EQ(default_chunk_tokens({16, 32 << 10}), 512U);
    EXPECT_EQ(default_chunk_tokens({16, 24 << 10}), 672U) << "699 tokens, whole blocks of them";
    EXPECT_EQ(default_chunk_tokens({128, 24 << 10}), 640U);
    EXPECT_EQ(default_chunk_tokens({16, 1 << 10}), 1024U) << "the upper bound";
    EXPECT_EQ(default_chunk_tokens({16, 0}), 1024U);
    EXPECT_EQ(default_chunk_tokens({2048, 64 << 10}), 2048U) << "one block at least";
    EXPECT_EQ(default_chunk_tokens({528, 1 << 10, true}), 528U) << "a state may end at any block";
}

TEST(ChunkTokens, AGivenOneMustBeWholeBlocks) {
    Options options;
    EXPECT_EQ(resolve_chunk_tokens(options, {16, 32 << 10}).value(), 512U);
    options.chunk_tokens = 48;
    EXPECT_EQ(resolve_chunk_tokens(options, {16, 32 << 10}).value(), 48U);
    options.chunk_tokens = 50;
    EXPECT_EQ(resolve_chunk_tokens(options, {16, 1}).error().message,
              "option chunk_tokens: 50 is no multiple of the engine's block of 16 tokens; use 48 or 64");
    options.chunk_tokens = 10;
    EXPECT_EQ(resolve_chunk_tokens(options, {16, 1}).error().message,
              "option chunk_tokens: 10 is no multiple of the engine's block of 16 tokens; use 16 or 32");
}

}  // namespace
}  // namespace kvern
