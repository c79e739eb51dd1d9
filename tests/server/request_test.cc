// SPDX-License-Identifier: Apache-2.0
// Names of buckets, sources of copies and numbers, as requests bring them.
#include "server/request.h"

#include <gtest/gtest.h>

#include <string>

namespace kvern::server {
namespace {

TEST(BucketName, FollowsTheRulesOfS3) {
    for (const std::string name : {"abc", "a-b", "my.bucket-1", "0ab", "1.2.3", "xn--a"}) {
        EXPECT_TRUE(valid_bucket_name(name)) << name;
    }
    for (const std::string name :
         {"", "ab", "-ab", "ab-", ".ab", "ab.", "a..b", "a.-b", "a-.b", "Abc", "a_b", "a/b", "a b", "192.168.5.4",
          "a\xc3\xa9"
          "b",
          "-/-", "%2e"}) {
        EXPECT_FALSE(valid_bucket_name(name)) << name;
    }
    EXPECT_TRUE(valid_bucket_name(std::string(63, 'a')));
    EXPECT_FALSE(valid_bucket_name(std::string(64, 'a')));
    EXPECT_FALSE(valid_bucket_name(std::string_view("a\0b", 3)));
}

TEST(CopySource, IsABucketAndAKey) {
    const auto plain = parse_copy_source("bucket/a/b");
    ASSERT_TRUE(plain);
    EXPECT_EQ(plain->bucket, "bucket");
    EXPECT_EQ(plain->key, "a/b");
    const auto escaped = parse_copy_source("/bucket/a%2Fb%20c+d?versionId=null");
    ASSERT_TRUE(escaped);
    EXPECT_EQ(escaped->bucket, "bucket");
    EXPECT_EQ(escaped->key, "a/b c+d");
    EXPECT_EQ(parse_copy_source("bucket//a")->key, "/a");
    EXPECT_EQ(parse_copy_source("bucket/a%3FversionId=3")->key, "a?versionId=3");
}

TEST(CopySource, IsNothingElse) {
    for (const auto* const text : {"", "/", "bucket", "bucket/", "/bucket", "//key", "bucket/%4", "bucket/%zz"}) {
        const auto source = parse_copy_source(text);
        ASSERT_FALSE(source) << text;
        EXPECT_EQ(source.error().code, http::S3Code::invalid_argument) << text;
    }
    const auto version = parse_copy_source("bucket/key?versionId=7");
    ASSERT_FALSE(version);
    EXPECT_EQ(version.error().code, http::S3Code::not_implemented);
}

TEST(Number, IsDigitsUpToItsLimit) {
    EXPECT_EQ(parse_number("0", 10), 0U);
    EXPECT_EQ(parse_number("10", 10), 10U);
    EXPECT_EQ(parse_number("007", 10), 7U);
    EXPECT_EQ(parse_number("18446744073709551615", ~std::uint64_t{0}), ~std::uint64_t{0});
    for (const auto* const text :
         {"", "11", "-1", "+1", " 1", "1 ", "0x1", "1e3", "18446744073709551616", "99999999999999999999999"}) {
        EXPECT_FALSE(parse_number(text, 10)) << text;
    }
}

}  // namespace
}  // namespace kvern::server
