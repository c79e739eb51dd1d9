// SPDX-License-Identifier: Apache-2.0
#include "http/date.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace kvern::http {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr sys_seconds example{seconds(784111777)};  // RFC 9110's own

TEST(HttpDate, ThreeFormsOfOneTime) {
    EXPECT_EQ(parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT"), example);
    EXPECT_EQ(parse_http_date("Sun, 06 Nov 1994 08:49:37 -0000"), example);
    EXPECT_EQ(parse_http_date("Sun, 06 Nov 1994 08:49:37 +0000"), example);
    EXPECT_EQ(parse_http_date("Sunday, 06-Nov-94 08:49:37 GMT"), example);
    EXPECT_EQ(parse_http_date("Sun Nov  6 08:49:37 1994"), example);
    EXPECT_EQ(http_date(example), "Sun, 06 Nov 1994 08:49:37 GMT");
    EXPECT_EQ(http_date(sys_seconds()), "Thu, 01 Jan 1970 00:00:00 GMT");
    EXPECT_EQ(parse_http_date("Thursday, 29-Feb-24 00:00:00 GMT"), parse_basic_date("20240229T000000Z"));
    EXPECT_EQ(parse_http_date("Mon, 06 Nov 1994 08:49:37 GMT"), example);  // the day's name is not compared
}

TEST(HttpDate, NothingElse) {
    for (const char* wrong :
         {"", "Sun", "Sun, ", "Sun, 06 Nov 1994 08:49:37", "Sun, 06 Nov 1994 08:49:37 UTC",
          "Sun, 6 Nov 1994 08:49:37 GMT", "sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 nov 1994 08:49:37 GMT",
          "Sun, 31 Nov 1994 08:49:37 GMT", "Sun, 29 Feb 2023 08:49:37 GMT", "Sun, 06 Nov 1994 24:00:00 GMT",
          "Sun, 06 Nov 1994 08:60:00 GMT", "Sun, 06 Nov 1994 08:49:61 GMT", "Sun, 06 Nov 1994 08:49:37 GMT ",
          "Sundax, 06-Nov-94 08:49:37 GMT", "Sunday, 06-Nov-1994 08:49:37 GMT", "Sun Nov 06 08:49:37 94",
          "Sun Nov   6 08:49:37 1994"}) {
        EXPECT_FALSE(parse_http_date(wrong)) << wrong;
    }
}

TEST(BasicDate, BothWays) {
    const auto time = parse_basic_date("20130524T000000Z");
    ASSERT_TRUE(time);
    EXPECT_EQ(time->time_since_epoch(), seconds(1369353600));
    const BasicDate text = basic_date(example);
    EXPECT_EQ(std::string_view(text.data(), text.size()), "19941106T084937Z");
    for (const char* wrong : {"", "20130524", "20130524T000000", "20130524T000000z", "2013-05-24T00:00:00Z",
                              "20131324T000000Z", "20130532T000000Z", "20130524T250000Z", " 20130524T000000Z",
                              "20130524T000000Z0", "0x130524T000000Z", "+0130524T000000Z"}) {
        EXPECT_FALSE(parse_basic_date(wrong)) << wrong;
    }
}

TEST(IsoDate, BothWays) {
    EXPECT_EQ(iso_date(example + milliseconds(7)), "1994-11-06T08:49:37.007Z");
    EXPECT_EQ(parse_iso_date("1994-11-06T08:49:37.007Z"), example + milliseconds(7));
    EXPECT_EQ(parse_iso_date("1994-11-06T08:49:37Z"), SysMilliseconds(example));
    EXPECT_EQ(parse_iso_date("1994-11-06T08:49:37.5Z"), example + milliseconds(500));
    EXPECT_EQ(parse_iso_date("1994-11-06T08:49:37.123456789Z"), example + milliseconds(123));
    for (const char* wrong : {"", "1994-11-06", "1994-11-06T08:49:37", "1994-11-06T08:49:37.Z", "1994-11-06 08:49:37Z",
                              "1994-11-06T08:49:37+00:00", "1994-11-06T08:49:37.1.2Z"}) {
        EXPECT_FALSE(parse_iso_date(wrong)) << wrong;
    }
}

TEST(Dates, WhatIsWrittenIsRead) {
    EXPECT_TRUE(rc::check("from 1970 to 9999", [] {
        const sys_seconds time{seconds(*rc::gen::inRange<std::int64_t>(0, 253402300800))};
        const BasicDate basic = basic_date(time);
        RC_ASSERT(parse_http_date(http_date(time)) == time);
        RC_ASSERT(parse_basic_date({basic.data(), basic.size()}) == time);
        const auto fine = time + milliseconds(*rc::gen::inRange(0, 1000));
        RC_ASSERT(parse_iso_date(iso_date(fine)) == fine);
    }));
}

TEST(Dates, TextsOfNowFollowTheClock) {
    DateTexts texts;
    EXPECT_EQ(texts.http(example), "Sun, 06 Nov 1994 08:49:37 GMT");
    EXPECT_EQ(texts.basic(example), "19941106T084937Z");
    EXPECT_EQ(texts.basic(example + seconds(1)), "19941106T084938Z");
    EXPECT_EQ(texts.http(example + seconds(1)), "Sun, 06 Nov 1994 08:49:38 GMT");
    EXPECT_EQ(texts.http(example), "Sun, 06 Nov 1994 08:49:37 GMT");
}

}  // namespace
}  // namespace kvern::http
