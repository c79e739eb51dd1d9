// SPDX-License-Identifier: Apache-2.0
#include "base/uri.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <array>
#include <string>

#include "base/text.h"

namespace kvern {
namespace {

std::string error_of(std::string_view text) {
    const auto uri = Uri::parse(text);
    return uri ? "" : uri.error().message;
}

bool contains(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
}

TEST(Uri, Parts) {
    const Uri file = Uri::parse("file:///mnt/kv?io=uring&depth=8").value();
    EXPECT_EQ(file.text, "file:///mnt/kv?io=uring&depth=8");
    EXPECT_EQ(file.scheme, "file");
    EXPECT_EQ(file.host, "");
    EXPECT_EQ(file.path, "/mnt/kv");
    EXPECT_EQ(file.params.size(), 2u);
    EXPECT_EQ(file.params.at("io"), "uring");

    const Uri mem = Uri::parse("MEM:?size=256MiB").value();
    EXPECT_EQ(mem.scheme, "mem");
    EXPECT_EQ(mem.path, "");
    EXPECT_EQ(mem.params.at("size"), "256MiB");

    const Uri s3 = Uri::parse("s3://bucket/a%20b?endpoint=https://host:9000/&empty=").value();
    EXPECT_EQ(s3.host, "bucket");
    EXPECT_EQ(s3.path, "/a b");
    EXPECT_EQ(s3.params.at("endpoint"), "https://host:9000/");
    EXPECT_EQ(s3.params.at("empty"), "");

    EXPECT_EQ(Uri::parse("mem:").value().scheme, "mem");
    EXPECT_EQ(Uri::parse("s3://bucket").value().path, "");
    EXPECT_TRUE(Uri::parse("mem:?").value().params.empty());
}

TEST(Uri, ErrorsSayWhat) {
    EXPECT_TRUE(contains(error_of("/mnt/kv"), "did you mean 'file:///mnt/kv'"));
    EXPECT_TRUE(contains(error_of(""), "no URI"));
    EXPECT_TRUE(contains(error_of("kv"), "no URI"));
    EXPECT_TRUE(contains(error_of("1a:x"), "no URI"));
    EXPECT_TRUE(contains(error_of("mem:?size"), "'size' is no parameter"));
    EXPECT_TRUE(contains(error_of("mem:?=1"), "name=value"));
    EXPECT_TRUE(contains(error_of("mem:?a=1&&b=2"), "name=value"));
    EXPECT_TRUE(contains(error_of("mem:?a=1&a=2"), "'a' is given twice"));
    EXPECT_TRUE(contains(error_of("mem:?a=1&%61=2"), "given twice"));
    EXPECT_TRUE(contains(error_of("file:///a%2"), "broken escape"));
    EXPECT_TRUE(contains(error_of("file:///a%00b"), "byte 0"));
    EXPECT_TRUE(contains(error_of("file:///a#b"), "%23"));
}

TEST(Uri, OnlyKnownParameters) {
    constexpr std::array<std::string_view, 3> known{"io", "direct", "depth"};
    EXPECT_TRUE(Uri::parse("file:///a?io=auto&depth=2")->only(known));
    EXPECT_TRUE(Uri::parse("file:///a")->only({}));
    const auto refused = Uri::parse("file:///a?dpeth=2")->only(known);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
    EXPECT_TRUE(contains(refused.error().message, "'dpeth=2' (did you mean 'depth'?)")) << refused.error().message;
}

TEST(Uri, Values) {
    const Uri uri = Uri::parse("file:///a?io=urnig&depth=8&big=99999999999999999999&text=8x&size=1MiB&bad=1MB").value();
    constexpr std::array<std::string_view, 2> ios{"uring", "threads"};
    EXPECT_EQ(uri.choice("none", "uring", ios).value(), "uring");
    EXPECT_TRUE(
        contains(uri.choice("io", "uring", ios).error().message, "io=urnig is not possible (did you mean 'uring'?)"));
    EXPECT_EQ(uri.number("depth", 1, 1, 8).value(), 8u);
    EXPECT_EQ(uri.number("none", 5, 1, 8).value(), 5u);
    EXPECT_FALSE(uri.number("depth", 1, 1, 7));
    EXPECT_FALSE(uri.number("depth", 1, 9, 20));
    EXPECT_FALSE(uri.number("big", 1, 0, ~std::uint64_t{0}));
    EXPECT_FALSE(uri.number("text", 1, 0, 100));
    EXPECT_EQ(uri.size("size", 0, 4096).value(), 1u << 20);
    EXPECT_EQ(uri.size("none", 7, 4096).value(), 7u);
    EXPECT_FALSE(uri.size("size", 0, 2u << 20));
    EXPECT_FALSE(uri.size("bad", 0, 1));
}

TEST(Uri, EscapedPartsComeBack) {
    EXPECT_TRUE(rc::check("path and parameters round-trip", [] {
        const auto clean = rc::gen::container<std::string>(rc::gen::nonZero<char>());
        const std::string path = *clean;
        const std::string value = *clean;
        const auto uri = Uri::parse("file:///" + url_escape(path) + "?name=" + url_escape(value));
        RC_ASSERT(uri.has_value());
        RC_ASSERT(uri->path == "/" + path);
        RC_ASSERT(uri->params.at("name") == value);
    }));
    EXPECT_TRUE(rc::check("any text is a URI or an error", [](const std::string& text) { (void)Uri::parse(text); }));
}

}  // namespace
}  // namespace kvern
