// SPDX-License-Identifier: Apache-2.0
#include "keep/verify.h"

#include "keep/keep_fixture.h"

namespace kvern::testing {
namespace {

class VerifyTest : public KeepTest {
  protected:
    VerifyTest() : memory_(*verify_memory()) { name_namespace("{}"); }

    void name_namespace(const std::string& identity) {
        name_ = namespace_of(identity);
        space_ = to_hex(name_);
        put_bytes(identity_key(space_), identity);
    }
    ObjectFacts facts_of(const std::string& name) const {
        ObjectFacts facts;
        facts.name_space = name_;
        facts.chunk = {hash_of(name), 0};
        facts.shard = {0, 3, 0, 1};
        facts.chunk_tokens = 256;
        facts.block_tokens = 16;
        facts.pages = 16;
        return facts;
    }
    std::string object_of(const std::string& name, std::uint64_t slice_bytes = 5000) const {
        return whole_object(facts_of(name), slice_bytes, 1);
    }
    std::string key(const std::string& name) const { return key_of(name, "", 0, {0, 3, 0, 1}); }
    void put_object(const std::string& name, std::uint64_t slice_bytes = 5000) {
        put_bytes(key(name), object_of(name, slice_bytes));
    }
    VerifyReport verified(VerifyPlan plan = {}) {
        findings_.clear();
        const auto catalogue = read_catalogue(*client_, "", {});
        EXPECT_TRUE(catalogue);
        const auto report = verify(*client_, *memory_, *catalogue, plan,
                                   {[&](const Finding& finding) { findings_.push_back(finding); }, {}});
        if (report) return *report;
        ADD_FAILURE() << report.error().message;
        return {};
    }
    void expect_bad(const std::string& bytes, const std::string& why) {
        put_bytes(key("bad"), bytes);
        EXPECT_EQ(verified().bad, 1U);
        ASSERT_EQ(findings_.size(), 1U);
        EXPECT_EQ(findings_[0].key, key("bad"));
        EXPECT_NE(findings_[0].why.find(why), std::string::npos) << findings_[0].why;
    }

    std::shared_ptr<Region> memory_;
    Digest name_{};
    std::vector<Finding> findings_;
};

TEST_F(VerifyTest, FindsNothingWrongWithWholeObjects) {
    for (int i = 0; i < 20; ++i) put_object(std::to_string(i));
    put_object("big", 3 << 20);  // several pieces
    const auto report = verified();
    EXPECT_EQ(report.done.objects, 21U);
    EXPECT_EQ(report.done.bytes, report.done.bytes_all);
    EXPECT_EQ(report.bad, 0U);
    EXPECT_EQ(report.changed, 0U);
    EXPECT_EQ(report.nameless_namespaces, 0U);
}

TEST_F(VerifyTest, FindsOneFlippedBitWhereverItIs) {
    const auto whole = object_of("bad");
    const auto layout = ObjectLayout::of(4, 5000);
    for (std::uint32_t slice = 0; slice < 4; ++slice) {
        for (const auto offset :
             {std::uint64_t{0}, std::uint64_t{4999}, layout.slice_stride - 1}) {  // the last: the gap
            auto bytes = whole;
            bytes[layout.slice_offset(slice) + offset] ^= 1;
            expect_bad(bytes, "layer " + std::to_string(slice) + ": checksum");
        }
    }
    auto bytes = whole;
    bytes[100] ^= 1;
    expect_bad(bytes, "header checksum");
}

TEST_F(VerifyTest, FindsAFlippedBitBehindTheFirstPiece) {
    auto bytes = object_of("bad", 3 << 20);
    bytes.back() ^= 1;
    expect_bad(bytes, "layer 3: checksum");
}

TEST_F(VerifyTest, FindsWhatIsCutOrEmptyOrForeign) {
    const auto whole = object_of("bad");
    expect_bad(whole.substr(0, whole.size() - 1), "its header says");
    expect_bad(whole + "x", "its header says");
    expect_bad("", "too short");
    expect_bad(std::string(10000, 'x'), "no magic");
}

TEST_F(VerifyTest, FindsAnObjectUnderTheKeyOfAnother) {
    expect_bad(object_of("another"), "another chunk");
    auto facts = facts_of("bad");
    facts.group = 1;
    expect_bad(whole_object(facts, 5000, 1), "another group");
    facts = facts_of("bad");
    facts.chunk.parent = 7;
    expect_bad(whole_object(facts, 5000, 1), "another parent");
    facts = facts_of("bad");
    facts.name_space[0] ^= 1;
    expect_bad(whole_object(facts, 5000, 1), "another namespace");
}

TEST_F(VerifyTest, RemovesWhatIsBadAndNothingElse) {
    put_object("good");
    auto bytes = object_of("bad");
    bytes.back() ^= 1;
    put_bytes(key("bad"), bytes);
    VerifyPlan plan;
    plan.remove = true;
    const auto report = verified(plan);
    EXPECT_EQ(report.bad, 1U);
    EXPECT_EQ(report.removed, 1U);
    EXPECT_TRUE(findings_.at(0).removed);
    EXPECT_FALSE(exists(key("bad")));
    EXPECT_TRUE(exists(key("good")));
    EXPECT_EQ(verified().bad, 0U);
}

TEST_F(VerifyTest, DoesNotRemoveANewerVersion) {
    auto bytes = object_of("bad");
    bytes.back() ^= 1;
    put_bytes(key("bad"), bytes);
    hooks_->before = [&](const Op& op) {
        if (op.kind == OpKind::remove) put_object("bad");
    };
    VerifyPlan plan;
    plan.remove = true;
    const auto report = verified(plan);
    EXPECT_EQ(report.bad, 1U);
    EXPECT_EQ(report.removed, 0U);
    EXPECT_TRUE(exists(key("bad")));
}

TEST_F(VerifyTest, WhatChangesWhileItIsReadIsNotBad) {
    put_object("big", 3 << 20);
    put_object("gone");
    hooks_->before = [&](const Op& op) {
        if (op.kind == OpKind::get && op.offset > 0) put_object("big", 3 << 20);
        if (op.kind == OpKind::get && op.key == key("gone")) remove(op.key);
    };
    const auto report = verified();
    EXPECT_EQ(report.bad, 0U);
    EXPECT_EQ(report.changed, 2U);
}

TEST_F(VerifyTest, AnotherFormatVersionIsNeitherGoodNorBad) {
    auto bytes = object_of("newer");
    bytes[8] = 99;
    put_bytes(key("newer"), bytes);
    VerifyPlan plan;
    plan.remove = true;
    const auto report = verified(plan);
    EXPECT_EQ(report.newer, 1U);
    EXPECT_EQ(report.bad, 0U);
    EXPECT_TRUE(exists(key("newer")));
}

TEST_F(VerifyTest, AnIdentityMustHaveTheNamespacesDigest) {
    put_bytes(identity_key(space_), "{ }");
    EXPECT_EQ(verified().bad, 1U);
    EXPECT_EQ(findings_.at(0).key, identity_key(space_));
    VerifyPlan plan;
    plan.remove = true;
    EXPECT_EQ(verified(plan).removed, 1U);
    put_object("a");
    const auto report = verified();
    EXPECT_EQ(report.nameless_namespaces, 1U);
    EXPECT_EQ(report.bad, 0U);
}

TEST_F(VerifyTest, ReadsASample) {
    for (int i = 0; i < 400; ++i) put_object(std::to_string(i), 8);
    VerifyPlan plan;
    plan.seed = 5;
    plan.objects_max = 30;
    EXPECT_EQ(verified(plan).done.objects, 30U);
    plan.objects_max = 0;
    plan.fraction = 0.5;
    const auto half = verified(plan).done.objects;
    EXPECT_GT(half, 120U);
    EXPECT_LT(half, 280U);
}

}  // namespace
}  // namespace kvern::testing
