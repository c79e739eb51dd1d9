// SPDX-License-Identifier: Apache-2.0
// Signatures against AWS's published examples, and against each other: what is signed here verifies here, and nothing
// that was changed does.
#include "http/sigv4.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/text.h"
#include "http/percent.h"

namespace kvern::http {
namespace {

using namespace std::chrono_literals;

const Credentials example{"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", ""};
const sys_seconds example_time = *parse_basic_date("20130524T000000Z");
constexpr std::string_view example_host = "examplebucket.s3.amazonaws.com";
constexpr std::string_view empty_hash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

// A request that owns its texts.
struct Request {
    std::string method = "GET";
    std::string path = "/";
    std::vector<QueryPair> query;
    std::vector<std::pair<std::string, std::string>> headers{{"host", std::string(example_host)}};

    RequestHead head() const {
        views.clear();
        for (const auto& [name, value] : headers) views.push_back({name, value});
        return {method, path, query, views};
    }

    void sign(const Credentials& credentials, std::string_view payload_hash, sys_seconds time,
              std::string region = "us-east-1") {
        Signer signer(credentials, std::move(region));
        const SignedHeaders added = signer.sign(head(), payload_hash, time);
        headers.emplace_back("authorization", added.authorization);
        headers.emplace_back("x-amz-date", added.amz_date);
        headers.emplace_back("x-amz-content-sha256", added.amz_content_sha256);
        if (!added.amz_security_token.empty()) headers.emplace_back("x-amz-security-token", added.amz_security_token);
    }

    std::string& header(std::string_view name) {
        for (auto& [known, value] : headers) {
            if (known == name) return value;
        }
        return headers.emplace_back(name, "").second;
    }

    void drop(std::string_view name) {
        std::erase_if(headers, [&](const auto& header) { return header.first == name; });
    }

    mutable std::vector<HeaderView> views;
};

// "ok", or the code of the error.
std::string outcome(const Request& request, const Credentials& credentials = example, sys_seconds now = example_time,
                    std::string region = "us-east-1") {
    const RequestHead head = request.head();
    const auto authorization = parse_authorization(head);
    if (!authorization) return std::string(to_string(authorization.error().code));
    Verifier verifier(std::move(region));
    const auto verified = verifier.verify(*authorization, head, credentials, now);
    return verified ? "ok" : std::string(to_string(verified.error().code));
}

std::string message(const Request& request, sys_seconds now = example_time) {
    const RequestHead head = request.head();
    const auto authorization = parse_authorization(head);
    if (!authorization) return authorization.error().message;
    Verifier verifier("us-east-1");
    const auto verified = verifier.verify(*authorization, head, example, now);
    return verified ? "" : verified.error().message;
}

Request signed_get() {
    Request request;
    request.path = "/a%20key";
    request.query = {{"versionId", "1 2"}};
    request.headers.emplace_back("x-amz-meta-a", "b");
    request.sign(example, unsigned_payload, example_time);
    return request;
}

std::string signature_of(const Request& request) {
    const auto authorization = parse_authorization(request.head());
    return authorization ? std::string(authorization->signature) : authorization.error().message;
}

// ------------------------------------------------------------------------------------------------------ AWS's examples

TEST(SigV4Example, GetObjectWithRange) {
    Request request;
    request.path = "/test.txt";
    request.headers.emplace_back("range", "bytes=0-9");
    request.sign(example, empty_hash, example_time);
    EXPECT_EQ(request.header("authorization"),
              "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
              "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, "
              "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
    EXPECT_EQ(outcome(request), "ok");
}

TEST(SigV4Example, PutObject) {
    Request request;
    request.method = "PUT";
    request.path = "/test%24file.text";
    request.headers.emplace_back("date", "Fri, 24 May 2013 00:00:00 GMT");
    request.headers.emplace_back("x-amz-storage-class", "REDUCED_REDUNDANCY");
    request.sign(example, to_hex(sha256("Welcome to Amazon S3.")), example_time);
    EXPECT_EQ(signature_of(request), "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
    EXPECT_EQ(outcome(request), "ok");
    request.path = "/test$file.text";  // another way to write the same path
    EXPECT_EQ(outcome(request), "ok");
}

TEST(SigV4Example, GetBucketLifecycle) {
    Request request;
    request.query = {{"lifecycle", ""}};
    request.sign(example, empty_hash, example_time);
    EXPECT_EQ(signature_of(request), "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
    EXPECT_EQ(outcome(request), "ok");
}

TEST(SigV4Example, ListObjects) {
    Request request;
    request.query = {{"prefix", "J"}, {"max-keys", "2"}};
    request.sign(example, empty_hash, example_time);
    EXPECT_EQ(signature_of(request), "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
    EXPECT_EQ(outcome(request), "ok");
}

TEST(SigV4Example, PresignedUrl) {
    Request request;
    request.path = "/test.txt";
    const std::string query = Signer(example, "us-east-1").presign(request.head(), 86400s, example_time);
    EXPECT_EQ(query,
              "X-Amz-Algorithm=AWS4-HMAC-SHA256&"
              "X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&"
              "X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&"
              "X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404");
    request.query = parse_query(query).value();
    EXPECT_EQ(outcome(request), "ok");
}

// ------------------------------------------------------------------------------------------------------------ both
// ends

TEST(SigV4, EveryByteOfAKeyVerifies) {
    for (unsigned byte = 1; byte < 256; ++byte) {
        const std::string key = std::string("a") + static_cast<char>(byte) + "b";
        Request request;
        request.path = "/bucket/" + percent_encode(key, Slash::keep);
        request.query = {{"prefix", key}, {key, ""}};
        request.sign(example, unsigned_payload, example_time);
        // The server sees the query's text, not our pairs.
        request.query = parse_query(canonical_query(request.query)).value();
        EXPECT_EQ(outcome(request), "ok") << byte;
    }
}

TEST(SigV4, PathsThatAreWrittenAnotherWayAreTheSame) {
    Request request;
    request.path = percent_encode("/b/~ +*'(e)", Slash::keep);
    request.sign(example, unsigned_payload, example_time);
    for (const char* other : {"/b/~%20+*'(e)", "/b/%7E%20%2b%2A'%28e)", "/%62/~%20+*'(%65)"}) {
        request.path = other;
        EXPECT_EQ(outcome(request), "ok") << other;
    }
    request.path = "/b/~%20%2520";
    EXPECT_EQ(outcome(request), "SignatureDoesNotMatch");
    request.path = "/b/%zz";
    EXPECT_EQ(outcome(request), "InvalidURI");
}

TEST(SigV4, ValuesAreTrimmedAndInnerBlanksAreOne) {
    Request request;
    request.headers.emplace_back("x-amz-meta-text", "a b c");
    request.headers.emplace_back("range", "bytes=0-1");
    request.sign(example, unsigned_payload, example_time);
    request.header("x-amz-meta-text") = " \t a   b \t c ";
    request.header("range") = "bytes=0-1  ";
    EXPECT_EQ(outcome(request), "ok");
    request.header("x-amz-meta-text") = "a bc";
    EXPECT_EQ(outcome(request), "SignatureDoesNotMatch");
}

TEST(SigV4, HeadersOfOneNameAreJoinedInTheirOrder) {
    Request request;
    request.headers.emplace_back("x-amz-meta-z", "1");
    request.headers.emplace_back("x-amz-meta-a", "2");
    request.headers.emplace_back("x-amz-meta-a", "1");
    request.sign(example, unsigned_payload, example_time);
    EXPECT_NE(request.header("authorization").find("host;x-amz-content-sha256;x-amz-date;x-amz-meta-a;x-amz-meta-z,"),
              std::string::npos);
    EXPECT_EQ(outcome(request), "ok");
    Request joined = request;
    joined.drop("x-amz-meta-a");
    joined.headers.emplace_back("x-amz-meta-a", "2,1");
    EXPECT_EQ(outcome(joined), "ok");
    joined.header("x-amz-meta-a") = "1,2";
    EXPECT_EQ(outcome(joined), "SignatureDoesNotMatch");
}

TEST(SigV4, ThePortOfTheHostCounts) {
    Request request;
    request.header("host") = "localhost:9000";
    request.sign(example, unsigned_payload, example_time);
    EXPECT_EQ(outcome(request), "ok");
    request.header("host") = "localhost";
    EXPECT_EQ(outcome(request), "SignatureDoesNotMatch");
}

TEST(SigV4, SessionTokensAreSignedAndCompared) {
    const Credentials temporary{"ASIA", "secret", "token/with+signs=="};
    Request request;
    request.sign(temporary, unsigned_payload, example_time);
    EXPECT_EQ(outcome(request, temporary), "ok");
    EXPECT_EQ(outcome(request, {"ASIA", "secret", "another"}), "InvalidToken");
    EXPECT_EQ(outcome(request, {"ASIA", "secret", ""}), "InvalidToken");
    request.drop("x-amz-security-token");
    EXPECT_EQ(outcome(request, temporary), "InvalidToken");

    Request url;
    url.query = parse_query(Signer(temporary, "us-east-1").presign(url.head(), 60s, example_time)).value();
    EXPECT_EQ(outcome(url, temporary), "ok");
    EXPECT_EQ(outcome(url, {"ASIA", "secret", "another"}), "InvalidToken");
}

TEST(SigV4, OneSignerServesManyRequestsAndDays) {
    Signer signer(example, "us-east-1");
    Verifier verifier("us-east-1");
    for (const auto time : {example_time, example_time + 1s, example_time + 86400s, example_time}) {
        Request request;
        request.path = "/x";
        const SignedHeaders added = signer.sign(request.head(), unsigned_payload, time);
        request.headers.emplace_back("authorization", added.authorization);
        request.headers.emplace_back("x-amz-date", added.amz_date);
        request.headers.emplace_back("x-amz-content-sha256", added.amz_content_sha256);
        const RequestHead head = request.head();
        const auto authorization = parse_authorization(head);
        ASSERT_TRUE(authorization) << authorization.error().message;
        EXPECT_TRUE(verifier.verify(*authorization, head, example, time));
        EXPECT_FALSE(verifier.verify(*authorization, head, {example.access_key, "changed", ""}, time));
        EXPECT_TRUE(verifier.verify(*authorization, head, example, time));
    }
}

// -------------------------------------------------------------------------------------------------------------
// refusals

TEST(SigV4, AnyChangedBitIsRefused) {
    Request request = signed_get();
    ASSERT_EQ(outcome(request), "ok");
    std::vector<std::string*> texts{&request.method, &request.path, &request.query[0].name, &request.query[0].value};
    for (auto& [name, value] : request.headers) texts.insert(texts.end(), {&name, &value});
    for (std::string* const text : texts) {
        const std::string right = *text;
        for (std::size_t bit = 0; bit < right.size() * 8; ++bit) {
            (*text)[bit / 8] = static_cast<char>(static_cast<unsigned char>(right[bit / 8]) ^ (1u << (bit % 8)));
            // An escape's digits may change their case.
            const auto decoded = percent_decode(*text, Plus::literal);
            const bool same =
                text == &request.path && decoded && *decoded == percent_decode(right, Plus::literal).value();
            EXPECT_EQ(outcome(request) == "ok", same) << *text;
            *text = right;
        }
    }
}

TEST(SigV4, AddedParametersAndHeadersOfAmazonAreRefused) {
    Request request = signed_get();
    request.headers.emplace_back("user-agent", "x");  // may go unsigned
    EXPECT_EQ(outcome(request), "ok");
    request.query.push_back({"acl", ""});
    EXPECT_EQ(outcome(request), "SignatureDoesNotMatch");
    request.query.pop_back();
    request.headers.emplace_back("x-amz-meta-b", "1");
    EXPECT_EQ(outcome(request), "AccessDenied");
    EXPECT_NE(message(request).find("x-amz-meta-b"), std::string::npos);
    request.drop("x-amz-meta-b");
    request.drop("x-amz-meta-a");
    EXPECT_EQ(outcome(request), "SignatureDoesNotMatch");
    EXPECT_NE(message(request).find("x-amz-meta-a"), std::string::npos);
}

TEST(SigV4, WrongKeysAndRegionsAreRefused) {
    const Request request = signed_get();
    EXPECT_EQ(outcome(request, {example.access_key, "wrong", ""}), "SignatureDoesNotMatch");
    EXPECT_EQ(outcome(request, {"another", example.secret_key, ""}), "InvalidAccessKeyId");
    EXPECT_EQ(outcome(request, example, example_time, "eu-west-1"), "AuthorizationHeaderMalformed");
    EXPECT_EQ(outcome(request, example, example_time, ""), "ok");  // any region
}

TEST(SigV4, ClocksMayDifferByFifteenMinutes) {
    const Request request = signed_get();
    EXPECT_EQ(outcome(request, example, example_time + 900s), "ok");
    EXPECT_EQ(outcome(request, example, example_time - 900s), "ok");
    EXPECT_EQ(outcome(request, example, example_time + 901s), "RequestTimeTooSkewed");
    EXPECT_EQ(outcome(request, example, example_time - 901s), "RequestTimeTooSkewed");
}

TEST(SigV4, PresignedUrlsEnd) {
    Request request;
    request.query = parse_query(Signer(example, "us-east-1").presign(request.head(), 60s, example_time)).value();
    EXPECT_EQ(outcome(request, example, example_time + 60s), "ok");
    EXPECT_EQ(outcome(request, example, example_time + 61s), "AccessDenied");
    EXPECT_NE(message(request, example_time + 61s).find("Request has expired"), std::string::npos);
    EXPECT_EQ(outcome(request, example, example_time - 900s), "ok");
    EXPECT_EQ(outcome(request, example, example_time - 901s), "AccessDenied");
}

TEST(SigV4, PresignedUrlsAreReadStrictly) {
    Request right;
    right.query = parse_query(Signer(example, "us-east-1").presign(right.head(), 60s, example_time)).value();
    const auto with = [&](std::string_view name, std::string_view value) {
        Request request = right;
        for (QueryPair& pair : request.query) {
            if (pair.name == name) pair.value = value;
        }
        return outcome(request);
    };
    const std::string wrong = "AuthorizationQueryParametersError";
    for (const QueryPair& pair : right.query) {
        Request without = right;
        std::erase(without.query, pair);
        EXPECT_EQ(outcome(without), wrong) << pair.name;
        Request twice = right;
        twice.query.push_back(pair);
        EXPECT_EQ(outcome(twice), wrong) << pair.name;
    }
    EXPECT_EQ(with("X-Amz-Expires", "604800"), "SignatureDoesNotMatch");
    for (const char* life : {"1.5", "", "60 ", "-", "x"}) EXPECT_EQ(with("X-Amz-Expires", life), wrong) << life;
    for (const char* life : {"604801", "0", "-1", "99999999999999999999"}) {
        EXPECT_EQ(with("X-Amz-Expires", life), "AccessDenied") << life;
    }
    EXPECT_EQ(with("X-Amz-Algorithm", "AWS4-HMAC-SHA1"), wrong);
    EXPECT_EQ(with("X-Amz-Date", "20130524T000000"), wrong);
    EXPECT_EQ(with("X-Amz-Date", "20130525T000000Z"), wrong);  // not the day of the credential
    EXPECT_EQ(with("X-Amz-Credential", "AK/20130524/us-east-1/s3"), wrong);
    EXPECT_EQ(with("X-Amz-SignedHeaders", "range"), wrong);
    EXPECT_EQ(with("X-Amz-Signature", std::string(64, '0')), "SignatureDoesNotMatch");
}

TEST(SigV4, AuthorizationHeadersAreReadStrictly) {
    const std::string scope = "/20130524/us-east-1/s3/aws4_request";
    const std::string credential = "Credential=AK" + scope;
    const std::string headers = "SignedHeaders=host;x-amz-date";
    const std::string signature = "Signature=" + std::string(64, 'a');
    const auto code_of = [](const std::string& text) {
        Request request;
        request.headers.emplace_back("authorization", text);
        request.headers.emplace_back("x-amz-date", "20130524T000000Z");
        request.headers.emplace_back("x-amz-content-sha256", "UNSIGNED-PAYLOAD");
        const auto found = parse_authorization(request.head());
        return found ? "ok, key " + std::string(found->access_key) : std::string(to_string(found.error().code));
    };
    const std::string word = "AWS4-HMAC-SHA256 ";
    EXPECT_EQ(code_of(word + credential + ", " + headers + ", " + signature), "ok, key AK");
    EXPECT_EQ(code_of(word + credential + "," + headers + "," + signature), "ok, key AK");
    EXPECT_EQ(code_of(word + signature + "," + headers + ",  " + credential), "ok, key AK");
    EXPECT_EQ(code_of(word + "Credential=a/b" + scope + "," + headers + "," + signature), "ok, key a/b");
    const std::string malformed = "AuthorizationHeaderMalformed";
    for (const std::string& text : {
             std::string("AWS4-HMAC-SHA256"),
             word,
             "AWS4-HMAC-SHA256" + credential + "," + headers + "," + signature,
             word + credential + "," + headers,
             word + credential + "," + signature,
             word + headers + "," + signature,
             word + credential + "," + credential + "," + headers + "," + signature,
             word + credential + "," + headers + "," + signature + ",Extra=1",
             word + credential + "," + headers + "," + signature + ",,",
             word + "Credential=," + headers + "," + signature,
             word + "Credential=" + scope + "," + headers + "," + signature,
             word + "Credential=AK/20130524/us-east-1/ec2/aws4_request," + headers + "," + signature,
             word + "Credential=AK/20130524/us-east-1/s3/aws5_request," + headers + "," + signature,
             word + "Credential=AK/2013/us-east-1/s3/aws4_request," + headers + "," + signature,
             word + "Credential=AK/20130525/us-east-1/s3/aws4_request," + headers + "," + signature,
             word + credential + ",SignedHeaders=x-amz-date," + signature,
             word + credential + ",SignedHeaders=host;," + signature,
             word + credential + ",SignedHeaders=;host," + signature,
             word + credential + ",SignedHeaders=Host," + signature,
             word + credential + ",SignedHeaders=x-amz-date;host," + signature,
             word + credential + ",SignedHeaders=host;host," + signature,
         }) {
        EXPECT_EQ(code_of(text), malformed) << text;
    }
    EXPECT_EQ(code_of("AWS AK:signature"), "InvalidRequest");
    EXPECT_EQ(code_of("Bearer x"), "InvalidRequest");
    EXPECT_EQ(code_of(""), "InvalidRequest");
}

TEST(SigV4, TheDateHeaderServesWhereThereIsNoOther) {
    Request request;
    request.headers.emplace_back("date", "Fri, 24 May 2013 00:00:00 GMT");
    request.sign(example, unsigned_payload, example_time);
    request.drop("x-amz-date");
    EXPECT_EQ(outcome(request), "SignatureDoesNotMatch");  // x-amz-date was signed; but the form was good
    EXPECT_NE(message(request).find("x-amz-date"), std::string::npos);
    request.drop("date");
    EXPECT_EQ(outcome(request), "AccessDenied");
    request.headers.emplace_back("date", "yesterday");
    EXPECT_EQ(outcome(request), "AccessDenied");
}

TEST(SigV4, PayloadsAreNamed) {
    const auto form = [](std::string_view hash) {
        Request request;
        request.sign(example, hash, example_time);
        const auto found = parse_authorization(request.head());
        return found ? static_cast<int>(found->payload) : -1;
    };
    EXPECT_EQ(form(empty_hash), static_cast<int>(PayloadForm::hash));
    EXPECT_EQ(form("UNSIGNED-PAYLOAD"), static_cast<int>(PayloadForm::not_signed));
    EXPECT_EQ(form("STREAMING-AWS4-HMAC-SHA256-PAYLOAD"), static_cast<int>(PayloadForm::streaming_signed));
    EXPECT_EQ(form("STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"),
              static_cast<int>(PayloadForm::streaming_signed_trailer));
    EXPECT_EQ(form("STREAMING-UNSIGNED-PAYLOAD-TRAILER"), static_cast<int>(PayloadForm::streaming_unsigned_trailer));
    for (const std::string_view wrong : {"", "unsigned-payload", "e3b0", "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD"}) {
        EXPECT_EQ(form(wrong), -1) << wrong;
    }
    Request missing = signed_get();
    missing.drop("x-amz-content-sha256");
    EXPECT_EQ(outcome(missing), "InvalidRequest");
}

TEST(SigV4, UnsignedRequestsAreAnonymous) {
    Request request;
    const auto found = parse_authorization(request.head());
    ASSERT_TRUE(found);
    EXPECT_EQ(found->form, AuthForm::anonymous);
    EXPECT_EQ(outcome(request), "AccessDenied");
    request.headers.emplace_back("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD");
    EXPECT_EQ(outcome(request), "InvalidRequest");
}

TEST(SigV4, TwoWaysToAuthorizeAreOneTooMany) {
    Request request = signed_get();
    request.headers.emplace_back("authorization", request.header("authorization"));
    EXPECT_EQ(outcome(request), "InvalidArgument");
    Request both = signed_get();
    both.query.push_back({"X-Amz-Signature", "0"});
    EXPECT_EQ(outcome(both), "InvalidArgument");
    Request old;
    old.query = {{"AWSAccessKeyId", "AK"}, {"Signature", "x"}, {"Expires", "1"}};
    EXPECT_EQ(outcome(old), "InvalidRequest");
}

}  // namespace
}  // namespace kvern::http
