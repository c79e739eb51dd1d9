// SPDX-License-Identifier: Apache-2.0
// What S3 servers and metadata services answer, and the files that AWS's tools write.
#include "store/s3/answers.h"

#include "fuzz.h"
#include "kvern/limits.h"
#include "store/s3/credentials.h"
#include "store/s3/profiles.h"

namespace kvern::fuzz {

void check(std::string_view input) {
    if (const auto listing = parse_listing(input)) FUZZ_REQUIRE(listing->entries.size() <= limits::list_entries_max);
    const auto error = parse_error_document(input);
    FUZZ_REQUIRE(error.code.size() <= limits::s3_answer_shown_bytes_max + 3);
    FUZZ_REQUIRE(error.message.find('\n') == std::string::npos);
    if (const auto id = parse_upload_id(input)) FUZZ_REQUIRE(!id->empty());
    (void)parse_completed(input);
    (void)parse_deleted(input);
    if (const auto stats = parse_exists(input, 2)) FUZZ_REQUIRE(stats->size() == 2);
    (void)parse_space(input);
    (void)parse_ways(input);
    if (const auto range = parse_content_range(input)) {
        FUZZ_REQUIRE(range->first <= range->last && range->last < range->total);
    }
    if (const auto keys = parse_key_document(input)) {
        FUZZ_REQUIRE(keys->credentials.access_key.find_first_of("\r\n") == std::string::npos);
        FUZZ_REQUIRE(keys->credentials.session_token.find_first_of("\r\n") == std::string::npos);
    }
    if (const auto profiles = parse_profiles(input)) {
        for (const auto& [section, pairs] : *profiles) {
            for (const auto& [name, value] : pairs) {
                FUZZ_REQUIRE(!name.empty() && value.find('\n') == std::string::npos);
            }
        }
    }
    const std::string escaped = xml_escaped(input);
    FUZZ_REQUIRE(escaped.find('<') == std::string::npos);
}

std::vector<std::string> seeds() {
    return {
        "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><EncodingType>url</EncodingType>"
        "<IsTruncated>true</IsTruncated><Contents><Key>a%2Fb+c</Key><LastModified>2026-01-31T12:00:00.000Z"
        "</LastModified><ETag>&quot;e-1&quot;</ETag><Size>5</Size></Contents></ListBucketResult>",
        "<Error><Code>AuthorizationHeaderMalformed</Code><Message>m</Message><Region>eu-west-1</Region></Error>",
        "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>",
        "<CompleteMultipartUploadResult><ETag>\"e-2\"</ETag></CompleteMultipartUploadResult>",
        "<DeleteResult><Error><Key>k</Key><Code>AccessDenied</Code></Error></DeleteResult>",
        "-\n12 1764547200123456789 \"e\"\n",
        R"({"capacity_bytes":3,"free_bytes":2,"quota_bytes":0})",
        "bytes 0-9/100",
        R"({"Code":"Success","AccessKeyId":"A","SecretAccessKey":"s","Token":"t","Expiration":"2030-01-01T00:00:00Z"})",
        "[default]\naws_access_key_id = A # c\ns3 =\n  x = 1\n[profile \"p q\"]\n",
        nested(100'000)};
}

}  // namespace kvern::fuzz
