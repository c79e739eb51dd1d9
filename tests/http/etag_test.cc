// SPDX-License-Identifier: Apache-2.0
#include "http/etag.h"

#include <gtest/gtest.h>

namespace kvern::http {
namespace {

std::vector<Etag> tags(std::string_view header) {
    const auto list = parse_etags(header);
    return list ? list->tags : std::vector<Etag>{{"refused", false}};
}

TEST(Etag, ListsAreRead) {
    EXPECT_EQ(tags("\"a\""), (std::vector<Etag>{{"a", false}}));
    EXPECT_EQ(tags("W/\"a\" ,\t\"b,c\",d"), (std::vector<Etag>{{"a", true}, {"b,c", false}, {"d", false}}));
    EXPECT_EQ(tags("\"\""), (std::vector<Etag>{{"", false}}));
    EXPECT_EQ(tags(" d41d8cd98f00b204e9800998ecf8427e-2 "),
              (std::vector<Etag>{{"d41d8cd98f00b204e9800998ecf8427e-2", false}}));
    EXPECT_EQ(tags("W/a"), (std::vector<Etag>{{"W/a", false}}));
    EXPECT_TRUE(parse_etags("*")->any);
    EXPECT_TRUE(parse_etags(" * ")->any);
    EXPECT_FALSE(parse_etags("\"*\"")->any);
}

TEST(Etag, NothingElse) {
    for (const char* wrong :
         {"", " ", ",", "\"a", "a\"", "\"a\"b", "\"a\",", ",\"a\"", "\"a\" \"b\"", "*,*", "\"a b\""}) {
        EXPECT_FALSE(parse_etags(wrong)) << wrong;
    }
    std::string many = "a";
    for (int i = 1; i < 64; ++i) many += ",a";
    EXPECT_TRUE(parse_etags(many));
    EXPECT_FALSE(parse_etags(many + ",a"));
}

TEST(Etag, MatchIsStrongAndNoneMatchIsWeak) {
    const auto list = parse_etags("\"a\", W/\"b\"").value();
    EXPECT_TRUE(if_match(list, "a"));
    EXPECT_FALSE(if_match(list, "b"));
    EXPECT_FALSE(if_match(list, "c"));
    EXPECT_FALSE(if_none_match(list, "a"));
    EXPECT_FALSE(if_none_match(list, "b"));
    EXPECT_TRUE(if_none_match(list, "c"));
    const auto any = parse_etags("*").value();
    EXPECT_TRUE(if_match(any, "x"));
    EXPECT_FALSE(if_none_match(any, "x"));
}

TEST(Etag, Quotes) {
    EXPECT_EQ(quoted("a"), "\"a\"");
    EXPECT_EQ(unquoted("\"a\""), "a");
    EXPECT_EQ(unquoted("a"), "a");
    EXPECT_EQ(unquoted("\""), "\"");
}

}  // namespace
}  // namespace kvern::http
