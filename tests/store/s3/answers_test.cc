// SPDX-License-Identifier: Apache-2.0
// Documents and headers of S3 servers, whole and broken; retries as numbers.
#include "store/s3/answers.h"

#include <gtest/gtest.h>

#include <limits>

#include "kvern/limits.h"
#include "store/s3/multipart.h"
#include "store/s3/retry.h"

namespace kvern {
namespace {

TEST(S3Answers, ListsAreRead) {
    const auto listing = parse_listing(
        "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
        "<EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>"
        "<Contents><Key>a%2Fb+c%2Bd%FF</Key><LastModified>2026-01-31T12:00:00.999Z</LastModified>"
        "<ETag>&quot;e-1&quot;</ETag><Size>18446744073709551615</Size></Contents>"
        "<CommonPrefixes><Prefix>x/</Prefix></CommonPrefixes></ListBucketResult>");
    ASSERT_TRUE(listing) << listing.error().message;
    EXPECT_TRUE(listing->more);
    ASSERT_EQ(listing->entries.size(), 1U);
    EXPECT_EQ(listing->entries[0].key, "a/b c+d\xff");
    EXPECT_EQ(listing->entries[0].size_bytes, ~std::uint64_t{0});
    EXPECT_EQ(listing->entries[0].etag, "e-1");
    EXPECT_EQ(listing->entries[0].mtime_ns, 1769860800LL * 1'000'000'000);
    for (const auto& [date, time_ns] : {std::pair("9999-12-31T23:59:59Z", std::numeric_limits<std::int64_t>::max()),
                                        std::pair("0000-01-01T00:00:00Z", std::int64_t{0})}) {
        const auto odd = parse_listing(std::string("<ListBucketResult><Contents><Key>a</Key><Size>1</Size>") +
                                       "<LastModified>" + date + "</LastModified></Contents></ListBucketResult>");
        ASSERT_TRUE(odd) << odd.error().message;
        EXPECT_EQ(odd->entries[0].mtime_ns, time_ns);
    }
    const auto plain = parse_listing(
        "<ListBucketResult><Contents><Key>a+b%2F</Key><LastModified>2026-01-31T12:00:00Z</LastModified>"
        "<Size>1</Size></Contents></ListBucketResult>");
    ASSERT_TRUE(plain);
    EXPECT_EQ(plain->entries[0].key, "a+b%2F");
}

TEST(S3Answers, BrokenDocumentsAreErrors) {
    for (const auto* const text :
         {"", "text", "<Error/>", "<ListBucketResult><Contents/></ListBucketResult>",
          "<ListBucketResult><Contents><Key>a</Key><Size>-1</Size></Contents></ListBucketResult>",
          "<ListBucketResult><EncodingType>url</EncodingType><Contents><Key>%zz</Key><Size>1</Size>"
          "<LastModified>2026-01-31T12:00:00Z</LastModified></Contents></ListBucketResult>"}) {
        EXPECT_FALSE(parse_listing(text)) << text;
    }
    EXPECT_FALSE(parse_upload_id("<InitiateMultipartUploadResult/>"));
    EXPECT_EQ(parse_completed("<Error><Code>InternalError</Code></Error>")->error.code, "InternalError");
    EXPECT_FALSE(parse_completed("<html/>"));
    EXPECT_FALSE(parse_deleted("<Deleted/>"));
}

TEST(S3Answers, AServersWordsAreCutAndOnOneLine) {
    const auto text = parse_error_document("<Error><Code>C</Code><Message>a\nb\x01" + std::string(10000, 'x') +
                                           "</Message><Region>r</Region></Error>");
    EXPECT_EQ(text.code, "C");
    EXPECT_EQ(text.region, "r");
    EXPECT_EQ(text.message.find('\n'), std::string::npos);
    EXPECT_LT(text.message.size(), limits::s3_answer_shown_bytes_max + 10);
}

TEST(S3Answers, VerdictsFollowTheCodeThenTheStatus) {
    EXPECT_EQ(judge(200, ""), S3Verdict::ok);
    EXPECT_EQ(judge(503, "SlowDown"), S3Verdict::throttled);
    EXPECT_EQ(judge(503, ""), S3Verdict::throttled);
    EXPECT_EQ(judge(400, "RequestTimeout"), S3Verdict::trouble);
    EXPECT_EQ(judge(500, ""), S3Verdict::trouble);
    EXPECT_EQ(judge(404, "NoSuchKey"), S3Verdict::told);
    EXPECT_EQ(judge(404, "NoSuchBucket"), S3Verdict::no_bucket);
    EXPECT_EQ(judge(403, "RequestTimeTooSkewed"), S3Verdict::skewed);
    EXPECT_EQ(judge(403, "SignatureDoesNotMatch"), S3Verdict::denied);
    EXPECT_EQ(judge(301, ""), S3Verdict::other_region);
    EXPECT_EQ(judge(400, "ExpiredToken"), S3Verdict::keys_refused);
    EXPECT_EQ(judge(507, ""), S3Verdict::no_space);
    EXPECT_EQ(judge(501, ""), S3Verdict::not_supported);
    EXPECT_EQ(judge(400, "InvalidRequest"), S3Verdict::refused);
}

TEST(S3Answers, RangesMustMakeSense) {
    const auto range = parse_content_range("bytes 0-9/100");
    ASSERT_TRUE(range);
    EXPECT_EQ(range->last, 9U);
    EXPECT_EQ(range->total, 100U);
    for (const auto* const text : {"", "bytes */100", "bytes 0-9/*", "bytes 9-0/100", "bytes 0-100/100", "0-9/100",
                                   "bytes 0-9", "bytes -0-9/100", "bytes 0-9/99999999999999999999999"}) {
        EXPECT_FALSE(parse_content_range(text)) << text;
    }
}

TEST(S3Answers, ExistsHasALineAKey) {
    const auto stats = parse_exists("-\n12 1764547200123456789 \"e\"\r\n-\n", 3);
    ASSERT_TRUE(stats) << stats.error().message;
    EXPECT_FALSE((*stats)[0]);
    EXPECT_EQ((*stats)[1]->size_bytes, 12U);
    EXPECT_EQ((*stats)[1]->mtime_ns, 1764547200LL * 1'000'000'000);
    EXPECT_EQ((*stats)[1]->etag, "e");
    for (const auto* const text : {"", "-\n-\n", "-\n-\n-\n-\n", "1 2 e\n-\n-\n", "1 2\n-\n-\n", "x 2 \"e\"\n-\n-\n",
                                   "1 99999999999999999999 \"e\"\n-\n-\n", "1 18446744073709551615 \"e\"\n-\n-\n"}) {
        EXPECT_FALSE(parse_exists(text, 3)) << text;
    }
}

TEST(S3Answers, SpaceIsNumbers) {
    EXPECT_EQ(parse_space(R"({"capacity_bytes":3,"free_bytes":2})")->free_bytes, 2U);
    for (const auto* const text :
         {"", "[]", "{}", R"({"capacity_bytes":-3,"free_bytes":2})", R"({"capacity_bytes":"3","free_bytes":2})"}) {
        EXPECT_FALSE(parse_space(text)) << text;
    }
    EXPECT_FALSE(parse_space(std::string(100000, '[')));
}

TEST(S3Retry, PausesGrowAndStayBelowTheCap) {
    Backoff backoff(1);
    Duration most{};
    for (int i = 0; i < 1000; ++i) {
        EXPECT_LE(backoff.after(1), Duration(limits::s3_backoff));
        EXPECT_LE(backoff.after(3), Duration(4 * limits::s3_backoff));
        EXPECT_LE(backoff.after(60), Duration(limits::s3_backoff_max));
        most = std::max(most, backoff.after(60));
    }
    EXPECT_GT(most, Duration(limits::s3_backoff_max) / 2);
}

TEST(S3Retry, ABudgetIsAShareOfRequests) {
    RetryBudget budget;
    unsigned retries = 0;
    for (int i = 0; i < 1000; ++i) {
        budget.request();
        while (budget.retry()) ++retries;
    }
    EXPECT_NEAR(retries, limits::s3_retries_saved_max + 1000 * limits::s3_retry_share, 2);
}

TEST(S3Parts, AreNeitherTooSmallNorTooMany) {
    for (const std::uint64_t size :
         {std::uint64_t{9} << 20, std::uint64_t{1} << 30, std::uint64_t{1} << 40, std::uint64_t{5} << 40}) {
        const auto part = s3_part_bytes(size, limits::s3_multipart_bytes_default);
        EXPECT_GE(part, limits::s3_part_bytes_min);
        EXPECT_LE((size + part - 1) / part, limits::upload_parts_max);
    }
}

TEST(S3Ways, AreWhatAServerOffers) {
    const auto both = parse_ways(
        R"({"local":{"socket":"@s","host":"h"},"ofi":{"providers":["verbs;ofi_rxm","tcp;ofi_rxm"]},"later":1})");
    ASSERT_TRUE(both) << both.error().message;
    EXPECT_EQ(both->socket, "@s");
    EXPECT_EQ(both->host, "h");
    EXPECT_EQ(both->ofi_providers, (std::vector<std::string>{"verbs;ofi_rxm", "tcp;ofi_rxm"}));
    const auto none = parse_ways("{}");
    ASSERT_TRUE(none);
    EXPECT_TRUE(none->socket.empty() && none->ofi_providers.empty());
    EXPECT_EQ(parse_ways(R"({"ofi":{"providers":[1,"tcp;ofi_rxm",null]}})")->ofi_providers.size(), 1U);
}

TEST(S3Ways, AnythingElseIsNoAnswer) {
    for (const auto* const wrong : {"", "[]", "<xml/>", R"({"local":1})", R"({"ofi":[]})", R"({"ofi":{}})",
                                    R"({"ofi":{"providers":"tcp;ofi_rxm"}})"}) {
        EXPECT_FALSE(parse_ways(wrong)) << wrong;
    }
    EXPECT_FALSE(parse_ways(std::string(1000, '[')));
}

}  // namespace
}  // namespace kvern
