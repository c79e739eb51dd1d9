// SPDX-License-Identifier: Apache-2.0
#include "http/query.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>

namespace kvern::http {
namespace {

using Pairs = std::vector<QueryPair>;

TEST(Query, IsReadInItsOrder) {
    EXPECT_EQ(parse_query("").value(), Pairs{});
    EXPECT_EQ(parse_query("uploads").value(), (Pairs{{"uploads", ""}}));
    EXPECT_EQ(parse_query("b=2&a=1&a=").value(), (Pairs{{"b", "2"}, {"a", "1"}, {"a", ""}}));
    EXPECT_EQ(parse_query("&prefix=a%2Fb+c%3D&&x=y=z&").value(), (Pairs{{"prefix", "a/b c="}, {"x", "y=z"}}));
    EXPECT_EQ(parse_query("=v").value(), (Pairs{{"", "v"}}));
}

TEST(Query, RefusesBrokenEscapesAndFloods) {
    for (const char* broken : {"a=%", "%zz=1", "a=1&b=%2"}) {
        const auto pairs = parse_query(broken);
        ASSERT_FALSE(pairs) << broken;
        EXPECT_EQ(pairs.error().code, ErrorCode::invalid_argument);
    }
    std::string many = "a=1";
    for (int i = 1; i < 64; ++i) many += "&a=1";
    EXPECT_TRUE(parse_query(many));
    EXPECT_FALSE(parse_query(many + "&a=1"));
}

TEST(Query, CanonicalTextIsSortedAfterEncoding) {
    EXPECT_EQ(canonical_query({}), "");
    EXPECT_EQ(canonical_query(Pairs{{"prefix", "J"}, {"max-keys", "2"}}), "max-keys=2&prefix=J");
    EXPECT_EQ(canonical_query(Pairs{{"acl", ""}}), "acl=");
    EXPECT_EQ(canonical_query(Pairs{{"a", "2"}, {"a", "1"}, {"a-b", ""}, {"B", "/"}}), "B=%2F&a=1&a=2&a-b=");
    // Decoded, 'z' comes before the 'ä'; encoded, after its '%'.
    EXPECT_EQ(canonical_query(Pairs{{"z", ""}, {"\xc3\xa4", ""}}), "%C3%A4=&z=");
}

TEST(Query, CanonicalTextIsReadAsTheSamePairs) {
    EXPECT_TRUE(rc::check("whatever they hold", [](std::vector<std::pair<std::string, std::string>> texts) {
        if (texts.size() > 64) texts.resize(64);
        Pairs pairs;
        for (auto& [name, value] : texts) pairs.push_back({name, value});
        Pairs again = parse_query(canonical_query(pairs)).value();
        const auto less = [](const QueryPair& a, const QueryPair& b) {
            return std::tie(a.name, a.value) < std::tie(b.name, b.value);
        };
        std::sort(pairs.begin(), pairs.end(), less);
        std::sort(again.begin(), again.end(), less);
        RC_ASSERT(again == pairs);
    }));
}

TEST(Query, FindsTheFirst) {
    const Pairs pairs{{"a", "1"}, {"b", ""}, {"a", "2"}};
    EXPECT_EQ(find_query(pairs, "a"), &pairs[0]);
    EXPECT_EQ(find_query(pairs, "b"), &pairs[1]);
    EXPECT_EQ(find_query(pairs, "A"), nullptr);
}

}  // namespace
}  // namespace kvern::http
