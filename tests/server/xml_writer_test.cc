// SPDX-License-Identifier: Apache-2.0
#include "server/xml_writer.h"

#include <gtest/gtest.h>

namespace kvern::server {
namespace {

TEST(XmlWriter, WritesWhatS3Answers) {
    XmlWriter writer("ListBucketResult");
    writer.text("Name", "bucket").text("Prefix", "").number("MaxKeys", 1000).flag("IsTruncated", false);
    writer.open("Contents").text("Key", "a&b<c>").close();
    writer.open("CommonPrefixes").text("Prefix", "p/");
    EXPECT_EQ(writer.finish(),
              "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
              "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
              "<Name>bucket</Name><Prefix></Prefix><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>"
              "<Contents><Key>a&amp;b&lt;c&gt;</Key></Contents>"
              "<CommonPrefixes><Prefix>p/</Prefix></CommonPrefixes></ListBucketResult>");
}

TEST(XmlWriter, ErrorsHaveNoNamespace) {
    XmlWriter writer("Error", "");
    EXPECT_EQ(writer.text("Code", "NoSuchKey").finish(),
              "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>NoSuchKey</Code></Error>");
}

TEST(XmlWriter, WritesAttributes) {
    XmlWriter writer("A", "");
    EXPECT_EQ(writer.open("B", {{"x:type", "a\"b"}, {"c", ""}}).finish(),
              "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<A><B x:type=\"a&quot;b\" c=\"\"></B></A>");
}

TEST(XmlWriter, KnowsWhatXmlCanNotSay) {
    EXPECT_TRUE(fit_for_xml("a&b<c>\t\n\xc3\xa4"));
    for (const char* text : {"\x01", "a\x0b", "\x7f"}) EXPECT_FALSE(fit_for_xml(text));
}

TEST(XmlWriter, ControlCharactersAreReferences) {
    std::string text;
    append_xml_escaped(text, std::string_view("\x01\t\n\r\x7f\"'\0\xc3\xa4", 10));
    EXPECT_EQ(text, "&#x1;\t\n&#xd;&#x7f;&quot;&apos;&#x0;\xc3\xa4");
}

}  // namespace
}  // namespace kvern::server
