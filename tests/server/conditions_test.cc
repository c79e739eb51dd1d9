// SPDX-License-Identifier: Apache-2.0
// Conditions of reads, in the order of RFC 9110: an ETag decides before a date.
#include "server/conditions.h"

#include <gtest/gtest.h>

namespace kvern::server {
namespace {

constexpr const char* before = "Tue, 14 Nov 2023 22:13:19 GMT";
constexpr const char* same = "Tue, 14 Nov 2023 22:13:20 GMT";  // 1700000000
constexpr const char* after = "Tue, 14 Nov 2023 22:13:21 GMT";

ObjectRecord object() {
    ObjectRecord record;
    record.etag = "abc";
    record.written_ns = 1'700'000'000'900'000'000;  // dates have no fractions: it counts as its second
    return record;
}

Verdict judge(const ConditionHeaders& headers) {
    return judge_read(headers, object());
}

TEST(Conditions, LetEverythingPassWhereThereAreNone) {
    EXPECT_FALSE(ConditionHeaders().any());
    EXPECT_EQ(judge({}), Verdict::go_on);
}

TEST(Conditions, WantTheObjectThatIsThere) {
    EXPECT_EQ(judge({.match = "\"abc\""}), Verdict::go_on);
    EXPECT_EQ(judge({.match = "\"x\", \"abc\""}), Verdict::go_on);
    EXPECT_EQ(judge({.match = "*"}), Verdict::go_on);
    EXPECT_EQ(judge({.match = "\"abd\""}), Verdict::failed);
    EXPECT_EQ(judge({.match = "\"unclosed"}), Verdict::failed);
}

TEST(Conditions, WantAnotherObjectThanTheOneThatIsKnown) {
    EXPECT_EQ(judge({.none_match = "\"abc\""}), Verdict::not_modified);
    EXPECT_EQ(judge({.none_match = "*"}), Verdict::not_modified);
    EXPECT_EQ(judge({.none_match = "\"abd\""}), Verdict::go_on);
}

TEST(Conditions, CompareDatesBySeconds) {
    EXPECT_EQ(judge({.modified_since = before}), Verdict::go_on);
    EXPECT_EQ(judge({.modified_since = same}), Verdict::not_modified);
    EXPECT_EQ(judge({.modified_since = after}), Verdict::not_modified);
    EXPECT_EQ(judge({.unmodified_since = before}), Verdict::failed);
    EXPECT_EQ(judge({.unmodified_since = same}), Verdict::go_on);
    EXPECT_EQ(judge({.unmodified_since = after}), Verdict::go_on);
}

TEST(Conditions, AskTheETagBeforeTheDate) {
    EXPECT_EQ(judge({.match = "\"abc\"", .unmodified_since = before}), Verdict::go_on);
    EXPECT_EQ(judge({.match = "\"x\"", .unmodified_since = after}), Verdict::failed);
    EXPECT_EQ(judge({.none_match = "\"x\"", .modified_since = after}), Verdict::go_on);
    EXPECT_EQ(judge({.none_match = "\"abc\"", .modified_since = before}), Verdict::not_modified);
}

TEST(Conditions, FailBeforeTheySayNotModified) {
    EXPECT_EQ(judge({.match = "\"x\"", .none_match = "\"abc\""}), Verdict::failed);
    EXPECT_EQ(judge({.match = "\"abc\"", .none_match = "\"abc\""}), Verdict::not_modified);
    EXPECT_EQ(judge({.none_match = "\"abc\"", .unmodified_since = before}), Verdict::failed);
}

TEST(Conditions, IgnoreDatesThatAreNone) {
    EXPECT_EQ(judge({.modified_since = "yesterday"}), Verdict::go_on);
    EXPECT_EQ(judge({.unmodified_since = ""}), Verdict::go_on);
    EXPECT_EQ(judge({.unmodified_since = "2023-11-14T22:13:20Z"}), Verdict::go_on);
}

}  // namespace
}  // namespace kvern::server
