// SPDX-License-Identifier: Apache-2.0
#include "keep/catalogue.h"

#include "keep/keep_fixture.h"

namespace kvern::testing {
namespace {

class CatalogueTest : public KeepTest {
  protected:
    Catalogue read(const std::string& prefix = "") {
        auto catalogue = read_catalogue(*client_, prefix, {});
        EXPECT_TRUE(catalogue) << catalogue.error().message;
        return std::move(*catalogue);
    }
};

TEST_F(CatalogueTest, ReturnsEveryKeyOfEveryObject) {
    std::vector<std::string> keys;
    for (int i = 0; i < 1500; ++i) {  // more than a page
        for (std::uint32_t group = 0; group < 2; ++group) {
            keys.push_back(
                key_of(std::to_string(i), i == 0 ? "" : std::to_string(i - 1), group, {group, group + 1, 0, 3}));
            put_bytes(keys.back(), "x");
        }
    }
    const auto catalogue = read();
    EXPECT_EQ(catalogue.chunks.size(), 1500U);
    EXPECT_EQ(catalogue.variants.size(), 2U);
    EXPECT_EQ(catalogue.bytes, 3000 * page);
    std::vector<std::string> found;
    for (const auto& chunk : catalogue.chunks) {
        EXPECT_EQ(chunk.objects, 2U);
        for (std::uint32_t i = 0; i < chunk.objects; ++i) {
            found.push_back(catalogue.key_of(chunk, catalogue.objects[chunk.first_object + i]));
        }
    }
    std::sort(keys.begin(), keys.end());
    EXPECT_EQ(found, keys);
}

TEST_F(CatalogueTest, TellsItsOwnFromForeignKeys) {
    put_chunk("a", "");
    put_bytes(identity_key(space_), "{}");
    put_bytes(label_key(space_), "model\n");
    put_bytes("kvern-start/engine", "nonce");
    const std::vector<std::string> foreign{
        "README",    space_ + "/notes",        space_ + "x/label", std::string(64, 'A') + "/label",
        "bench-1/x", key_of("b", "") + ".bak", "kvern-starts/x"};
    for (const auto& key : foreign) put_bytes(key, std::string(5000, 'x'));
    const auto catalogue = read();
    EXPECT_EQ(catalogue.objects.size(), 1U);
    ASSERT_EQ(catalogue.namespaces.size(), 1U);
    EXPECT_TRUE(catalogue.namespaces[0].identity && catalogue.namespaces[0].label);
    EXPECT_EQ(catalogue.start_notes.size(), 1U);
    EXPECT_EQ(catalogue.foreign.files, foreign.size());
    EXPECT_EQ(catalogue.foreign.bytes, foreign.size() * 2 * page);
    EXPECT_EQ(catalogue.bytes, 4 * page);
}

TEST_F(CatalogueTest, ANamespacePrefixHidesTheRest) {
    put_chunk("a", "");
    space_ = std::string(64, 'c');
    put_chunk("b", "");
    put_bytes("README", "x");
    EXPECT_EQ(read().objects.size(), 2U);
    const auto some = read("cc");
    EXPECT_EQ(some.objects.size(), 1U);
    EXPECT_EQ(some.foreign.files, 0U);
}

TEST_F(CatalogueTest, EndsWhenInterrupted) {
    stop_ = true;
    const auto catalogue = read_catalogue(*client_, "", {});
    ASSERT_FALSE(catalogue);
    EXPECT_EQ(catalogue.error().code, ErrorCode::cancelled);
}

}  // namespace
}  // namespace kvern::testing
