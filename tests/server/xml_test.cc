// SPDX-License-Identifier: Apache-2.0
#include "server/xml.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "server/xml_writer.h"

namespace kvern::server {
namespace {

std::string code_of(const auto& result) {
    return result ? "ok" : std::string(to_string(result.error().code));
}

std::string part(std::string_view inside) {
    return "<CompleteMultipartUpload><Part>" + std::string(inside) + "</Part></CompleteMultipartUpload>";
}

std::string object(std::string_view inside) {
    return "<Delete><Object>" + std::string(inside) + "</Object></Delete>";
}

TEST(Xml, CompleteMultipartUpload) {
    const auto parts = parse_complete_upload(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
        "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\n"
        "  <Part><ETag>&quot;abc&quot;</ETag><PartNumber>1</PartNumber></Part>\n"
        "  <Part><PartNumber> 7 </PartNumber><ETag>\"d\"</ETag><ChecksumCRC32C>sOO8/Q==</ChecksumCRC32C></Part>\n"
        "  <!-- a comment --><Part><PartNumber>10000</PartNumber><ETag>e</ETag><New>x</New></Part>\n"
        "</CompleteMultipartUpload>\n");
    ASSERT_TRUE(parts) << parts.error().message;
    ASSERT_EQ(parts->size(), 3u);
    EXPECT_EQ((*parts)[0].number, 1u);
    EXPECT_EQ((*parts)[0].etag, "abc");
    EXPECT_TRUE((*parts)[0].checksums.empty());
    EXPECT_EQ((*parts)[1].number, 7u);
    EXPECT_EQ((*parts)[1].etag, "d");
    ASSERT_EQ((*parts)[1].checksums.size(), 1u);
    EXPECT_EQ((*parts)[1].checksums[0].algorithm, http::ChecksumAlgorithm::crc32c);
    EXPECT_EQ((*parts)[1].checksums[0].text(), "sOO8/Q==");
    EXPECT_EQ((*parts)[2].etag, "e");
}

TEST(Xml, PartsMustBeGoodAndInOrder) {
    const std::string good = "<PartNumber>2</PartNumber><ETag>a</ETag>";
    EXPECT_EQ(code_of(parse_complete_upload(part(good))), "ok");
    const auto again = parse_complete_upload(part(good + "</Part><Part><PartNumber>2</PartNumber><ETag>b</ETag>"));
    ASSERT_TRUE(again && again->size() == 1);  // sent again: the last one counts
    EXPECT_EQ(again->front().etag, "b");
    EXPECT_EQ(code_of(parse_complete_upload(part(good + "</Part><Part><PartNumber>1</PartNumber><ETag>a</ETag>"))),
              "InvalidPartOrder");
    for (const char* number : {"0", "10001", "18446744073709551615"}) {
        EXPECT_EQ(
            code_of(parse_complete_upload(part("<PartNumber>" + std::string(number) + "</PartNumber><ETag>a</ETag>"))),
            "InvalidArgument")
            << number;
    }
    for (const char* inside :
         {"", "<PartNumber>1</PartNumber>", "<ETag>a</ETag>", "<PartNumber></PartNumber><ETag>a</ETag>",
          "<PartNumber>-1</PartNumber><ETag>a</ETag>", "<PartNumber>1.0</PartNumber><ETag>a</ETag>",
          "<PartNumber>1</PartNumber><ETag>a</ETag><ETag>b</ETag>", "<PartNumber><b>1</b></PartNumber><ETag>a</ETag>",
          "<PartNumber>18446744073709551616</PartNumber><ETag>a</ETag>",
          "<PartNumber>1</PartNumber><ETag>a</ETag><ChecksumCRC32>xx</ChecksumCRC32>"}) {
        EXPECT_EQ(code_of(parse_complete_upload(part(inside))), "MalformedXML") << inside;
    }
    EXPECT_EQ(code_of(parse_complete_upload("<CompleteMultipartUpload/>")), "MalformedXML");
}

TEST(Xml, Delete) {
    const auto request = parse_delete(
        "<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Quiet>true</Quiet>"
        "<Object><Key>a&amp;b/&#xe4;<![CDATA[<&]]></Key></Object>"
        "<Object><Key> </Key><VersionId>null</VersionId><ETag>\"x\"</ETag><Size>12</Size>"
        "<LastModifiedTime>Sun, 06 Nov 1994 08:49:37 GMT</LastModifiedTime></Object>"
        "<Object><Key>&#1;</Key><LastModifiedTime>1994-11-06T08:49:37.000Z</LastModifiedTime></Object></Delete>");
    ASSERT_TRUE(request) << request.error().message;
    EXPECT_TRUE(request->quiet);
    ASSERT_EQ(request->objects.size(), 3u);
    EXPECT_EQ(request->objects[0].key, "a&b/\xc3\xa4<&");
    EXPECT_FALSE(request->objects[0].etag);
    EXPECT_EQ(request->objects[1].key, " ");
    EXPECT_EQ(request->objects[1].version_id, "null");
    EXPECT_EQ(request->objects[1].etag, "x");
    EXPECT_EQ(request->objects[1].size_bytes, 12u);
    EXPECT_EQ(request->objects[1].last_modified, http::parse_basic_date("19941106T084937Z"));
    EXPECT_EQ(request->objects[2].key, "\x01");
    EXPECT_EQ(request->objects[2].last_modified, request->objects[1].last_modified);
}

TEST(Xml, DeleteHasUpToAThousandObjects) {
    std::string body = "<Delete>";
    for (int i = 0; i < 1000; ++i) body += "<Object><Key>k</Key></Object>";
    EXPECT_EQ(code_of(parse_delete(body + "</Delete>")), "ok");
    EXPECT_EQ(code_of(parse_delete(body + "<Object><Key>k</Key></Object></Delete>")), "MalformedXML");
    EXPECT_EQ(code_of(parse_delete("<Delete></Delete>")), "MalformedXML");
    for (const char* inside : {"", "<Key></Key>", "<Key/>", "<Key>a</Key><Key>b</Key>", "<Key>a</Key><Size>x</Size>",
                               "<Key>a</Key><LastModifiedTime>now</LastModifiedTime>"}) {
        EXPECT_EQ(code_of(parse_delete(object(inside))), "MalformedXML") << inside;
    }
}

TEST(Xml, CreateBucket) {
    EXPECT_EQ(parse_create_bucket("").value(), "");
    EXPECT_EQ(parse_create_bucket("<CreateBucketConfiguration/>").value(), "");
    EXPECT_EQ(parse_create_bucket("<s3:CreateBucketConfiguration><s3:LocationConstraint> eu-west-1\n"
                                  "</s3:LocationConstraint></s3:CreateBucketConfiguration>")
                  .value(),
              "eu-west-1");
    EXPECT_EQ(code_of(parse_create_bucket("<Delete/>")), "MalformedXML");
}

TEST(Xml, WhatIsNoPlainDocumentIsRefused) {
    const std::string good = object("<Key>a</Key>");
    EXPECT_EQ(code_of(parse_delete(good)), "ok");
    EXPECT_EQ(code_of(parse_delete("\xef\xbb\xbf" + good)), "ok");  // a byte order mark
    for (const std::string& wrong : {std::string(),
                                     std::string(" "),
                                     std::string("x"),
                                     std::string("{}"),
                                     good + "x",
                                     good + good,
                                     "x" + good,
                                     "<!DOCTYPE a [<!ENTITY b \"c\">]>" + good,
                                     "<!doctype html>" + good,
                                     object("<Key>&b;</Key>"),
                                     object("<Key>&#0;</Key>"),
                                     object("<Key>&#x110000;</Key>"),
                                     object("<Key>&</Key>"),
                                     object("<Key>&amp</Key>"),
                                     object("<Key>a\0b</Key>"),
                                     object(std::string_view("<Key>a\0b</Key>", 14)),
                                     object("<Key>a</Kex>"),
                                     object("<Key>a"),
                                     std::string("<Delete>"),
                                     good.substr(0, good.size() - 1),
                                     object("<!-- <Key>a</Key>"),
                                     object("<![CDATA[<Key>a</Key>"),
                                     std::string("<?xml"),
                                     object("<Key <b></Key>")}) {
        EXPECT_EQ(code_of(parse_delete(wrong)), "MalformedXML") << wrong;
    }
}

TEST(Xml, SizesAndDepthsAreBounded) {
    const std::string blanks(1 << 20, ' ');
    EXPECT_EQ(code_of(parse_delete(blanks + blanks + object("<Key>a</Key>"))), "MaxMessageLengthExceeded");
    EXPECT_EQ(code_of(parse_delete(blanks + object("<Key>a</Key>"))), "ok");
    EXPECT_EQ(code_of(parse_create_bucket(blanks + "<CreateBucketConfiguration/>")), "MaxMessageLengthExceeded");
    const auto nested = [](int depth) {
        std::string inside = "<Key>a</Key>";
        for (int i = 0; i < depth; ++i) inside += "<n>";
        for (int i = 0; i < depth; ++i) inside += "</n>";
        return object(inside);
    };
    EXPECT_EQ(code_of(parse_delete(nested(5))), "ok");
    EXPECT_EQ(code_of(parse_delete(nested(8))), "MalformedXML");
    EXPECT_EQ(code_of(parse_delete(nested(10000))), "MalformedXML");
    std::string many = "<Key>a</Key>";
    for (int i = 0; i < 30000; ++i) many += "<n/>";
    EXPECT_EQ(code_of(parse_delete(object(many))), "MalformedXML");
}

TEST(Xml, KeysGoThroughWriterAndReader) {
    EXPECT_TRUE(rc::check("any text without a zero byte", [](std::string key) {
        std::erase(key, '\0');
        for (char& c : key) c = static_cast<char>(c & 0x7f);  // UTF-8 of one byte
        std::erase(key, '\0');
        if (key.empty()) return;
        XmlWriter writer("Delete");
        writer.open("Object").text("Key", key);
        RC_ASSERT(parse_delete(writer.finish())->objects[0].key == key);
    }));
}

}  // namespace
}  // namespace kvern::server
