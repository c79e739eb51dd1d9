// SPDX-License-Identifier: Apache-2.0
// The test vectors of docs/format.md, section 6. Their values come from a program that shares no code with Kvern.
#include <gtest/gtest.h>

#include <array>

#include "base/crc32c.h"
#include "base/sha256.h"
#include "base/text.h"
#include "cache/identity.h"
#include "cache/key.h"
#include "cache/object.h"

namespace kvern {
namespace {

constexpr std::string_view empty_json_sha = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";

TEST(FormatVectors, Checksum) {
    EXPECT_EQ(crc32c(0, "123456789", 9), 0xE3069283U);
}

TEST(FormatVectors, Namespace) {
    EXPECT_EQ(to_hex(namespace_of("{}")), empty_json_sha);
}

TEST(FormatVectors, Keys) {
    const ChunkId chunk{ChunkHash("\x0a\x0b"), 0xff};
    EXPECT_EQ(
        object_key(empty_json_sha, chunk, 0, Shard{}.text()),
        "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a/0a/0a0b.p00000000000000ff.g0.l0-0.h0-0");
    EXPECT_EQ(identity_key(empty_json_sha), std::string(empty_json_sha) + "/identity.json");
    EXPECT_EQ(label_key(empty_json_sha), std::string(empty_json_sha) + "/label");
    EXPECT_EQ((Shard{0, 47, 2, 3}).text(), "l0-47.h2-3");
}

TEST(FormatVectors, SmallestObject) {
    const ObjectLayout layout = ObjectLayout::of(1, 8);
    ASSERT_EQ(layout.object_bytes, 8192U);
    ASSERT_EQ(layout.header_bytes, 4096U);
    std::array<std::byte, 8192> object{};
    for (std::size_t i = 0; i < 8; ++i) object[4096 + i] = static_cast<std::byte>(i);
    const std::uint32_t slice_crc = crc32c(0, object.data() + 4096, 4096);
    EXPECT_EQ(slice_crc, 0xbe05c7cbU);

    ObjectFacts facts;
    facts.name_space = namespace_of("{}");
    facts.chunk = {ChunkHash("\x0a\x0b"), 0xff};
    facts.chunk_tokens = facts.block_tokens = 4;
    facts.pages = 1;
    encode_header(object, facts, layout, std::array{slice_crc});
    EXPECT_EQ(to_hex(std::string_view(reinterpret_cast<const char*>(object.data()) + 160, 4)), "94f14996")  // 9649f194
        << "header_crc";
    EXPECT_EQ(to_hex(sha256({reinterpret_cast<const char*>(object.data()), object.size()})),
              "32ddab8f5443781bf845e68971e37d2fa438f34ee01973d473acfec814924ebc");
}

TEST(FormatVectors, HeadersGrowByPages) {
    EXPECT_EQ(ObjectLayout::of(122, 1).header_bytes, 4096U);  // 192 + 32 * 122 = 4096
    EXPECT_EQ(ObjectLayout::of(123, 1).header_bytes, 8192U);
    const ObjectLayout layout = ObjectLayout::of(3, 4097);
    EXPECT_EQ(layout.slice_stride, 8192U);
    EXPECT_EQ(layout.slice_offset(2), 4096U + 2 * 8192U);
    EXPECT_EQ(layout.object_bytes, 4096U + 3 * 8192U);
}

}  // namespace
}  // namespace kvern
