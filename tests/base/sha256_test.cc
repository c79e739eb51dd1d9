// SPDX-License-Identifier: Apache-2.0
#include "base/sha256.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <string>

#include "base/text.h"

namespace kvern {
namespace {

TEST(Sha256, KnownAnswers) {
    EXPECT_EQ(to_hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    EXPECT_EQ(to_hex(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256, StreamEqualsWhole) {
    EXPECT_TRUE(rc::check("update(a), update(b) == sha256(a + b)", [](const std::string& a, const std::string& b) {
        Sha256 stream;
        stream.update(a);
        stream.update(b);
        RC_ASSERT(stream.finish() == sha256(a + b));
    }));
}

TEST(HmacSha256, KnownAnswers) {  // RFC 4231
    EXPECT_EQ(to_hex(HmacSha256(std::string(20, '\x0b')).sign("Hi There")),
              "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    EXPECT_EQ(to_hex(HmacSha256("Jefe").sign("what do ya want for nothing?")),
              "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    EXPECT_EQ(
        to_hex(HmacSha256(std::string(131, '\xaa')).sign("Test Using Larger Than Block-Size Key - Hash Key First")),
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(HmacSha256, IsTheHashOfTheHash) {
    EXPECT_TRUE(rc::check("by the definition", [](const std::string& text) {
        const auto size_bytes = *rc::gen::inRange<std::size_t>(0, 65);
        const std::string key = *rc::gen::container<std::string>(size_bytes, rc::gen::arbitrary<char>());
        std::string inner(64, '\x36');
        std::string outer(64, '\x5c');
        for (std::size_t i = 0; i < key.size(); ++i) {
            inner[i] = static_cast<char>(inner[i] ^ key[i]);
            outer[i] = static_cast<char>(outer[i] ^ key[i]);
        }
        const Digest first = sha256(inner + text);
        const std::string first_text(first.begin(), first.end());
        RC_ASSERT(HmacSha256(key).sign(text) == sha256(outer + first_text));
    }));
}

}  // namespace
}  // namespace kvern
