// SPDX-License-Identifier: Apache-2.0
// The XML bodies of S3's clients: read within their limits, or refused; and keys come back from our own writing.
#include "server/xml.h"

#include "fuzz.h"
#include "kvern/limits.h"
#include "server/xml_writer.h"

namespace kvern::fuzz {
namespace {

using namespace server;

void check_written(const DeleteRequest& request) {
    XmlWriter writer("Delete");
    for (const DeleteObject& object : request.objects) writer.open("Object").text("Key", object.key).close();
    const auto again = parse_delete(writer.finish());
    FUZZ_REQUIRE(again && again->objects.size() == request.objects.size());
    for (std::size_t i = 0; i < request.objects.size(); ++i) {
        FUZZ_REQUIRE(again->objects[i].key == request.objects[i].key);
    }
}

}  // namespace

void check(std::string_view input) {
    if (const auto parts = parse_complete_upload(input)) {
        FUZZ_REQUIRE(!parts->empty() && parts->size() <= limits::upload_parts_max);
        for (std::size_t i = 1; i < parts->size(); ++i) FUZZ_REQUIRE((*parts)[i - 1].number < (*parts)[i].number);
    } else {
        FUZZ_REQUIRE(!parts.error().message.empty());
    }
    if (const auto request = parse_delete(input)) {
        FUZZ_REQUIRE(!request->objects.empty() && request->objects.size() <= limits::delete_objects_max);
        for (const DeleteObject& object : request->objects) {
            FUZZ_REQUIRE(!object.key.empty() && object.key.find('\0') == object.key.npos);
        }
        check_written(*request);
    }
    (void)parse_create_bucket(input);
}

std::vector<std::string> seeds() {
    return {
        "<?xml version=\"1.0\"?><CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Part>"
        "<ETag>&quot;abc&quot;</ETag><PartNumber>1</PartNumber><ChecksumCRC32C>sOO8/Q==</ChecksumCRC32C></Part>"
        "<Part><PartNumber>2</PartNumber><ETag>b</ETag></Part></CompleteMultipartUpload>",
        "<Delete><Quiet>true</Quiet><Object><Key>a&amp;&#xe4;<![CDATA[<]]></Key><Size>1</Size></Object><Object><Key> "
        "</Key><LastModifiedTime>Sun, 06 Nov 1994 08:49:37 GMT</LastModifiedTime></Object></Delete>",
        "<CreateBucketConfiguration><LocationConstraint>eu-west-1</LocationConstraint></CreateBucketConfiguration>",
        "<!DOCTYPE a [<!ENTITY b \"c\">]><Delete><Object><Key>&b;</Key></Object></Delete>"};
}

}  // namespace kvern::fuzz
