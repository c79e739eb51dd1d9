// SPDX-License-Identifier: Apache-2.0
// Signatures of requests: Authorization headers and presigned URLs of any text are refused or read, never more; and
// what is signed here verifies, whatever its path, query and headers hold.
#include "http/sigv4.h"

#include <algorithm>
#include <utility>

#include "fuzz.h"
#include "http/percent.h"

namespace kvern::fuzz {
namespace {

using namespace http;

const Credentials credentials{"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", ""};
const sys_seconds now = *parse_basic_date("20130524T000000Z");

// "METHOD\npath?query\nname:value\n...": names and values are views of the input.
struct Request {
    explicit Request(std::string_view text) {
        method = line(text);
        const std::string_view target = line(text);
        path = target.substr(0, target.find('?'));
        query_text = target.substr(std::min(target.size(), path.size() + 1));
        while (!text.empty()) {
            const std::string_view header = line(text);
            const std::size_t colon = header.find(':');
            if (colon != header.npos) headers.push_back({header.substr(0, colon), header.substr(colon + 1)});
        }
    }

    static std::string_view line(std::string_view& text) {
        const std::string_view first = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(text.size(), first.size() + 1));
        return first;
    }

    std::string_view method;
    std::string_view path;
    std::string_view query_text;
    std::vector<HeaderView> headers;
};

void check_received(const Request& request, const std::vector<QueryPair>& query) {
    const RequestHead head{request.method, request.path, query, request.headers};
    const auto authorization = parse_authorization(head);
    if (!authorization) {
        FUZZ_REQUIRE(!authorization.error().message.empty());
        return;
    }
    Verifier verifier("us-east-1");
    const auto verified = verifier.verify(*authorization, head, credentials, now);
    FUZZ_REQUIRE(verified || !verified.error().message.empty());
    FUZZ_REQUIRE(!verified || authorization->form != AuthForm::anonymous);
    FUZZ_REQUIRE(!verified || authorization->access_key == credentials.access_key);
}

bool is_signer_own(std::string_view name) {
    return name == "authorization" || name == "x-amz-date" || name == "x-amz-content-sha256" ||
           name == "x-amz-security-token";
}

// Names as HTTP allows them, so that SignedHeaders can hold them.
bool is_name(std::string_view name) {
    return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
    });
}

void check_signed(const Request& request, const std::vector<QueryPair>& query) {
    const auto owned = [](const QueryPair& pair) {
        return pair.name.starts_with("X-Amz-") || pair.name == "AWSAccessKeyId";
    };
    if (std::any_of(query.begin(), query.end(), owned)) return;
    std::vector<HeaderView> headers{{"host", "h"}};
    for (const HeaderView& header : request.headers) {
        if (headers.size() < 20 && is_name(header.name) && !is_signer_own(header.name)) headers.push_back(header);
    }
    const std::string path = percent_encode(request.path, Slash::keep);
    Signer signer(credentials, "us-east-1");
    const SignedHeaders added = signer.sign({request.method, path, query, headers}, unsigned_payload, now);
    headers.push_back({"authorization", added.authorization});
    headers.push_back({"x-amz-date", added.amz_date});
    headers.push_back({"x-amz-content-sha256", added.amz_content_sha256});
    const auto again = parse_query(canonical_query(query));
    FUZZ_REQUIRE(again);
    const RequestHead head{request.method, path, *again, headers};
    const auto authorization = parse_authorization(head);
    FUZZ_REQUIRE(authorization);
    Verifier verifier("us-east-1");
    FUZZ_REQUIRE(verifier.verify(*authorization, head, credentials, now));
}

}  // namespace

void check(std::string_view input) {
    const Request request(input);
    const auto query = parse_query(request.query_text);
    if (!query) return;
    check_received(request, *query);
    check_signed(request, *query);
}

std::vector<std::string> seeds() {
    const std::string scope = "20130524/us-east-1/s3/aws4_request";
    return {
        "GET\n/test.txt\nhost:examplebucket.s3.amazonaws.com\nrange:bytes=0-9\nx-amz-date:20130524T000000Z\n"
        "x-amz-content-sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\n"
        "authorization:AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/" +
            scope +
            ", SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, "
            "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        "GET\n/"
        "test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2F"
        "s3%2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&"
        "X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404\n"
        "host:examplebucket.s3.amazonaws.com",
        "PUT\n/b/k%20?partNumber=1&uploadId=a+b\nhost:h:9000\ndate:Fri, 24 May 2013 00:00:00 GMT\nx-amz-meta-a: a  "
        "b\t\n"
        "x-amz-meta-a:c\nx-amz-content-sha256:STREAMING-UNSIGNED-PAYLOAD-TRAILER"};
}

}  // namespace kvern::fuzz
