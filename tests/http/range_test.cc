// SPDX-License-Identifier: Apache-2.0
#include "http/range.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace kvern::http {
namespace {

constexpr Range whole{};
constexpr Range unsatisfiable{RangeKind::unsatisfiable, 0, 0};

Range part(std::uint64_t offset, std::uint64_t length) {
    return {RangeKind::part, offset, length};
}

TEST(Range, ThreeForms) {
    EXPECT_EQ(parse_range("bytes=0-9", 100), part(0, 10));
    EXPECT_EQ(parse_range("bytes=0-0", 100), part(0, 1));
    EXPECT_EQ(parse_range("bytes=99-99", 100), part(99, 1));
    EXPECT_EQ(parse_range("bytes=10-", 100), part(10, 90));
    EXPECT_EQ(parse_range("bytes=-10", 100), part(90, 10));
    EXPECT_EQ(parse_range("Bytes=0-9", 100), part(0, 10));
}

TEST(Range, EndsAreClamped) {
    EXPECT_EQ(parse_range("bytes=90-100", 100), part(90, 10));
    EXPECT_EQ(parse_range("bytes=90-99999999999999999999999", 100), part(90, 10));
    EXPECT_EQ(parse_range("bytes=-101", 100), part(0, 100));
    EXPECT_EQ(parse_range("bytes=-99999999999999999999999", 100), part(0, 100));
    EXPECT_EQ(parse_range("bytes=0-18446744073709551615", 100), part(0, 100));
}

TEST(Range, BeginningAtTheEndIsUnsatisfiable) {
    for (const char* header : {"bytes=100-", "bytes=100-200", "bytes=99999999999999999999999-", "bytes=-0"}) {
        EXPECT_EQ(parse_range(header, 100), unsatisfiable) << header;
    }
    for (const char* header : {"bytes=0-", "bytes=0-0", "bytes=-1", "bytes=-0"}) {
        EXPECT_EQ(parse_range(header, 0), unsatisfiable) << header;
    }
}

TEST(Range, WhatIsNoSingleRangeIsIgnored) {
    for (const char* header : {"", "bytes", "bytes=", "bytes=-", "bytes=9-0", "bytes=a-b", "bytes=1", "bytes=0-1,3-4",
                               "bytes=0-1,", "bytes=--1", "bytes=-1-2", "bytes=+1-2", "bytes= 0-1", "bytes=0-1 ",
                               "bytes 0-1", "items=0-1", "bytes=0x0-1", "bytes=1-2-3"}) {
        EXPECT_EQ(parse_range(header, 100), whole) << header;
        EXPECT_EQ(parse_range(header, 0), whole) << header;
    }
}

TEST(Range, NeverLeavesTheObject) {
    EXPECT_TRUE(rc::check("whatever it asks for", [] {
        const auto size_bytes = *rc::gen::arbitrary<std::uint16_t>();
        const auto first = *rc::gen::arbitrary<std::uint16_t>();
        const auto last = *rc::gen::arbitrary<std::uint16_t>();
        const Range range = parse_range("bytes=" + std::to_string(first) + "-" + std::to_string(last), size_bytes);
        if (range.kind != RangeKind::part) return;
        RC_ASSERT(range.length > 0u);
        RC_ASSERT(range.offset + range.length <= size_bytes);
        const auto told = parse_content_range(content_range(range, size_bytes));
        RC_ASSERT(told.has_value());
        RC_ASSERT(told->offset == range.offset);
        RC_ASSERT(told->length == range.length);
        RC_ASSERT(told->size_bytes == size_bytes);
    }));
}

TEST(ContentRange, Texts) {
    EXPECT_EQ(content_range(part(0, 10), 100), "bytes 0-9/100");
    EXPECT_EQ(content_range(unsatisfiable, 100), "bytes */100");
    for (const char* wrong : {"", "bytes", "bytes */100", "bytes 0-9", "bytes 0-9/*", "bytes 9-0/100",
                              "bytes 0-100/100", "bytes=0-9/100", "bytes 0/9-100", "bytes -/1"}) {
        EXPECT_FALSE(parse_content_range(wrong)) << wrong;
    }
}

}  // namespace
}  // namespace kvern::http
