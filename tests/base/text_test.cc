// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <array>
#include <string>

namespace kvern {
namespace {

TEST(Hex, BothWays) {
    EXPECT_EQ(to_hex(std::string_view("\x00\xab\xff", 3)), "00abff");
    EXPECT_EQ(from_hex("00aBFf"), std::string("\x00\xab\xff", 3));
    EXPECT_EQ(from_hex(""), "");
    EXPECT_FALSE(from_hex("0"));
    EXPECT_FALSE(from_hex("0g"));
    EXPECT_FALSE(from_hex("0x"));
    EXPECT_TRUE(rc::check("from_hex(to_hex(x)) == x",
                          [](const std::string& bytes) { RC_ASSERT(from_hex(to_hex(bytes)) == bytes); }));
}

TEST(Base64, KnownAnswers) {  // RFC 4648
    EXPECT_EQ(to_base64(""), "");
    EXPECT_EQ(to_base64("f"), "Zg==");
    EXPECT_EQ(to_base64("fo"), "Zm8=");
    EXPECT_EQ(to_base64("foo"), "Zm9v");
    EXPECT_EQ(to_base64("foobar"), "Zm9vYmFy");
    EXPECT_EQ(to_base64("\xfb\xff"), "+/8=");
    EXPECT_TRUE(rc::check("from_base64(to_base64(x)) == x",
                          [](const std::string& bytes) { RC_ASSERT(from_base64(to_base64(bytes)) == bytes); }));
}

TEST(Base64, OneTextForEachValue) {
    for (const char* wrong : {"Z", "Zg", "Zg=", "Zg===", "Zh==", "Zm9=", "====", "=", "Zm9v\n", "Zm 9",
                              "Zg==Zg==", "-_8=", "Z===", "Zm9vZg=a"}) {
        EXPECT_FALSE(from_base64(wrong)) << wrong;
    }
    EXPECT_TRUE(rc::check("what is read is written the same", [] {
        const auto text = *rc::gen::container<std::string>(8, rc::gen::element('A', 'Z', 'g', '=', '+', '/', '0', '!'));
        const auto bytes = from_base64(text);
        RC_ASSERT((!bytes || to_base64(*bytes) == text));  // one parenthesis would ask both
    }));
}

TEST(UrlEscape, KeepsOnlyWhatIsSafe) {
    EXPECT_EQ(url_escape("aZ0-._~/b"), "aZ0-._~/b");
    EXPECT_EQ(url_escape("a b%&?#+\n"), "a%20b%25%26%3F%23%2B%0A");
    EXPECT_EQ(url_escape(std::string_view("\0\xff", 2)), "%00%FF");
    EXPECT_TRUE(rc::check("url_unescape(url_escape(x)) == x", [](const std::string& bytes) {
        const std::string escaped = url_escape(bytes);
        for (const char c : escaped) RC_ASSERT(c > 0x20 && c < 0x7f);
        RC_ASSERT(url_unescape(escaped).value() == bytes);
    }));
}

TEST(UrlEscape, BrokenOnesAreNamed) {
    EXPECT_EQ(url_unescape("a%2fb%2Fc").value(), "a/b/c");
    EXPECT_EQ(url_unescape("a+b").value(), "a+b");
    for (const char* broken : {"ab%", "ab%2", "ab%zz", "ab%%20", "ab%2%"}) {
        const auto result = url_unescape(broken);
        ASSERT_FALSE(result) << broken;
        EXPECT_EQ(result.error().code, ErrorCode::invalid_argument);
        EXPECT_NE(result.error().message.find("position 2"), std::string::npos) << result.error().message;
    }
    EXPECT_TRUE(rc::check("any text is text or an error", [](const std::string& text) { (void)url_unescape(text); }));
}

TEST(Size, Parses) {
    EXPECT_EQ(parse_size("4096").value(), 4096u);
    EXPECT_EQ(parse_size("0").value(), 0u);
    EXPECT_EQ(parse_size("64KiB").value(), 65536u);
    EXPECT_EQ(parse_size("1MiB").value(), 1u << 20);
    EXPECT_EQ(parse_size("2GiB").value(), std::uint64_t{2} << 30);
    EXPECT_EQ(parse_size("1TiB").value(), std::uint64_t{1} << 40);
    EXPECT_EQ(parse_size("18446744073709551615").value(), ~std::uint64_t{0});
    EXPECT_EQ(parse_size("16777215TiB").value(), std::uint64_t{16777215} << 40);
}

TEST(Size, RefusesEverythingElse) {
    for (const char* wrong : {"", "MiB", "1MB", "1M", "1mib", "1.5GiB", "-1", "+1", " 1", "1 MiB", "1MiB ", "0x10",
                              "18446744073709551616", "16777216TiB"}) {
        EXPECT_FALSE(parse_size(wrong)) << wrong;
    }
}

TEST(Size, Formats) {
    EXPECT_EQ(format_size(0), "0 B");
    EXPECT_EQ(format_size(300), "300 B");
    EXPECT_EQ(format_size(1023), "1023 B");
    EXPECT_EQ(format_size(1024), "1 KiB");
    EXPECT_EQ(format_size(std::uint64_t{16} << 20), "16 MiB");
    EXPECT_EQ(format_size(std::uint64_t{3} << 29), "1.5 GiB");
    EXPECT_EQ(format_size(std::uint64_t{100} << 10), "100 KiB");
    EXPECT_EQ(format_size(std::uint64_t{1} << 40), "1 TiB");
}

constexpr std::array<std::string_view, 4> options{"io", "direct", "depth", "size"};

TEST(Suggestion, FindsTypingErrors) {
    EXPECT_EQ(nearest("dpeth", options), "depth");
    EXPECT_EQ(nearest("dept", options), "depth");
    EXPECT_EQ(nearest("Direct", options), "direct");
    EXPECT_EQ(nearest("sise", options), "size");
    EXPECT_EQ(nearest("ii", options), "io");
    EXPECT_FALSE(nearest("colour", options));
    EXPECT_FALSE(nearest("", options));
    EXPECT_FALSE(nearest("x", options));
    EXPECT_FALSE(nearest(std::string(1000, 'd'), options));
    EXPECT_FALSE(nearest("a", {}));
}

TEST(Suggestion, SaysWhatIsKnown) {
    EXPECT_EQ(suggestion("dpeth", options), " (did you mean 'depth'?)");
    EXPECT_EQ(suggestion("colour", options), " (known: io, direct, depth, size)");
}

TEST(Durations, AreReadWithTheirUnit) {
    using std::chrono::milliseconds;
    EXPECT_EQ(parse_duration("500ms").value(), milliseconds(500));
    EXPECT_EQ(parse_duration("30s").value(), milliseconds(30'000));
    EXPECT_EQ(parse_duration("10m").value(), milliseconds(600'000));
    EXPECT_EQ(parse_duration("12h").value(), milliseconds(43'200'000));
    EXPECT_EQ(parse_duration("7d").value(), milliseconds(604'800'000));
    for (const auto* wrong : {"", "7", "d", "7 d", "-1s", "1.5h", "7D", "1w", "s7"}) {
        ASSERT_FALSE(parse_duration(wrong)) << wrong;
        EXPECT_NE(parse_duration(wrong).error().message.find("12h"), std::string::npos);
    }
    for (const auto* long_one : {"40000d", "99999999999999999999s", "18446744073709551615ms"}) {
        ASSERT_FALSE(parse_duration(long_one)) << long_one;
        EXPECT_NE(parse_duration(long_one).error().message.find("too long"), std::string::npos);
    }
}

TEST(Durations, AreWrittenAsTheyAreRead) {
    for (const auto* text : {"500ms", "31s", "90m", "13h", "7d"}) {
        EXPECT_EQ(format_duration(parse_duration(text).value()), text);
    }
    EXPECT_EQ(format_duration(std::chrono::milliseconds(0)), "0s");
    EXPECT_EQ(format_duration(std::chrono::seconds(3600)), "1h");
}

TEST(JsonDepth, CountsBracketsOutsideOfStrings) {
    EXPECT_FALSE(json_deeper_than("", 0));
    EXPECT_FALSE(json_deeper_than("7", 0));
    EXPECT_TRUE(json_deeper_than("[]", 0));
    EXPECT_FALSE(json_deeper_than(R"([[1], {"a": [2]}])", 3));
    EXPECT_TRUE(json_deeper_than(R"([[1], {"a": [2]}])", 2));
    EXPECT_FALSE(json_deeper_than(R"(["[[[{{{", "\\"])", 1));
    EXPECT_FALSE(json_deeper_than(R"(["\"[["])", 1));
    EXPECT_TRUE(json_deeper_than(R"(["\\", ["\""]])", 1));
    EXPECT_FALSE(json_deeper_than("]]]]", 0));
    EXPECT_FALSE(json_deeper_than(R"("\)", 0)) << "a text that ends inside an escape";
}

}  // namespace
}  // namespace kvern
