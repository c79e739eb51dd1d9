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

}  // namespace
}  // namespace kvern
