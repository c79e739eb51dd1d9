// SPDX-License-Identifier: Apache-2.0
#include "http/percent.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace kvern::http {
namespace {

TEST(Percent, KeepsOnlyWhatIsUnreserved) {
    EXPECT_EQ(percent_encode("aZ09-._~", Slash::encode), "aZ09-._~");
    EXPECT_EQ(percent_encode("a b+c/d%*'", Slash::encode), "a%20b%2Bc%2Fd%25%2A%27");
    EXPECT_EQ(percent_encode("a b/\xc3\xa4", Slash::keep), "a%20b/%C3%A4");
    EXPECT_EQ(percent_encode(std::string_view("\0\xff", 2), Slash::keep), "%00%FF");
}

TEST(Percent, DecodesPlusInQueriesOnly) {
    EXPECT_EQ(percent_decode("a+b%2B%2b", Plus::literal).value(), "a+b++");
    EXPECT_EQ(percent_decode("a+b%2B%2b", Plus::space).value(), "a b++");
    EXPECT_EQ(percent_decode("%2525", Plus::literal).value(), "%25");  // once
}

TEST(Percent, BrokenEscapesAreNamed) {
    for (const char* broken : {"ab%", "ab%2", "ab%zz", "ab%2z", "ab%%20"}) {
        const auto decoded = percent_decode(broken, Plus::literal);
        ASSERT_FALSE(decoded) << broken;
        EXPECT_NE(decoded.error().message.find("position 2"), std::string::npos);
        std::string text;
        EXPECT_FALSE(append_percent_decoded(text, broken, Plus::literal));
        EXPECT_EQ(text, "ab");
    }
}

TEST(Percent, BothWays) {
    EXPECT_TRUE(rc::check("decode(encode(x)) == x", [](const std::string& bytes) {
        for (const Slash slash : {Slash::keep, Slash::encode}) {
            const std::string text = percent_encode(bytes, slash);
            RC_ASSERT(percent_decode(text, Plus::literal).value() == bytes);
            RC_ASSERT(percent_decode(text, Plus::space).value() == bytes);
        }
    }));
}

}  // namespace
}  // namespace kvern::http
