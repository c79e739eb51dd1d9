// SPDX-License-Identifier: Apache-2.0
// AWS Signature Version 4 for S3: signing requests and URLs, and verifying them.
//
// Pure: no sockets, no clock; times are given. A Signer or a Verifier belongs to one thread: both keep the day's key
// and the memory they work in, so that a request costs about a microsecond and takes no memory of its own. They read
// only the head of a request: that the body has the hash which the head promises is for Checksum and AwsChunked.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/sha256.h"
#include "http/date.h"
#include "http/header_view.h"
#include "http/query.h"
#include "http/s3_error.h"

namespace kvern::http {

inline constexpr std::string_view unsigned_payload = "UNSIGNED-PAYLOAD";

struct Credentials {
    std::string access_key;
    std::string secret_key;
    std::string session_token;  // empty: none
};

struct RequestHead {
    std::string_view method;
    std::string_view path;                // as on the wire: encoded once, without the query
    std::span<const QueryPair> query;     // decoded
    std::span<const HeaderView> headers;  // names in lower case
};

// The key that signs on one day in one region, kept until another is asked for.
class SigningKey {
  public:
    const HmacSha256& of(std::string_view secret_key, std::string_view day, std::string_view region);

  private:
    std::string secret_key_;
    std::string day_;
    std::string region_;
    HmacSha256 key_;
};

// ------------------------------------------------------------------------------------------------------------- client

// Headers to add to the request; the views last until the Signer's next call. Empty values are not sent.
struct SignedHeaders {
    std::string_view authorization;       // authorization
    std::string_view amz_date;            // x-amz-date
    std::string_view amz_content_sha256;  // x-amz-content-sha256
    std::string_view amz_security_token;  // x-amz-security-token
};

class Signer {
  public:
    Signer(Credentials credentials, std::string region);

    // Signs all `headers`, which must hold host (with its port, unless that is the scheme's own) and none of those that
    // this adds, and these. `payload_hash`: 64 hex digits, or a word like UNSIGNED-PAYLOAD; it must last as the result.
    SignedHeaders sign(const RequestHead& request, std::string_view payload_hash, sys_seconds now);

    // The query of a URL that anybody may use for `life` from now, who sends the same headers (at least host).
    std::string presign(const RequestHead& request, std::chrono::seconds life, sys_seconds now);

  private:
    std::string_view scope(std::string_view day);
    void sort_headers();  // headers_, and their names
    void append_signature(std::string& to, const RequestHead& request, std::string_view query,
                          std::string_view payload_hash, std::string_view amz_date);

    Credentials credentials_;
    std::string region_;
    DateTexts dates_;
    SigningKey key_;
    std::string scope_;  // of the day it begins with
    // Only memory that is used again:
    std::vector<HeaderView> headers_;
    std::string signed_names_;
    std::string text_;
    std::string authorization_;
};

// ------------------------------------------------------------------------------------------------------------- server

enum class AuthForm : std::uint8_t { anonymous, header, query };

// What x-amz-content-sha256 promises of the body.
enum class PayloadForm : std::uint8_t {
    hash,                       // it has this SHA-256
    not_signed,                 // nothing
    streaming_signed,           // aws-chunked, each chunk signed
    streaming_signed_trailer,   // the same, and trailers that are signed
    streaming_unsigned_trailer  // aws-chunked, nothing signed, and trailers
};

// How a request says it is signed; views of the head.
struct Authorization {
    AuthForm form = AuthForm::anonymous;
    std::string_view access_key;
    std::string_view day;  // YYYYMMDD
    std::string_view region;
    std::string_view signed_headers;  // "host;x-amz-date"
    std::string_view signature;
    std::string_view session_token;
    std::string_view payload_hash;  // as it was signed
    PayloadForm payload = PayloadForm::not_signed;
    BasicDate amz_date{};
    sys_seconds time{};
    std::chrono::seconds life{};  // form query

    std::string_view amz_date_text() const { return {amz_date.data(), amz_date.size()}; }
};

// Reads an Authorization header, or the X-Amz-... parameters of a presigned URL, or finds neither (anonymous: then only
// the payload's form is filled). Checks form alone: whether the access key is known is for the caller to say
// (InvalidAccessKeyId), who then lets a Verifier check the rest.
S3Result<Authorization> parse_authorization(const RequestHead& head);

// What the first chunk of a signed stream continues: kept by the decoder of the body.
struct ChunkSeed {
    HmacSha256 key;
    std::string amz_date;
    std::string scope;
    std::string signature;
};

class Verifier {
  public:
    // With an empty region a request may be signed for any.
    explicit Verifier(std::string region) : region_(std::move(region)) {}

    // Ok: who sent this head knows the secret key, sent it within limits::signature_skew_max (or within the life of its
    // URL), and signed host and every x-amz- header there is. Never for an anonymous one.
    S3Result<> verify(const Authorization& authorization, const RequestHead& head, const Credentials& credentials,
                      sys_seconds now);

    // For a body whose chunks are signed, after verify() was ok.
    ChunkSeed chunk_seed(const Authorization& authorization, const Credentials& credentials);

  private:
    S3Result<> check_scope(const Authorization& authorization) const;
    S3Result<> sort_signed_headers(const Authorization& authorization, std::span<const HeaderView> headers);
    SigningKey& key_of(const Credentials& credentials);

    struct Key {
        std::string access_key;
        SigningKey key;
    };

    std::string region_;
    std::vector<Key> keys_;  // one for each access key that was ever verified: few, since the caller knows them all
    // Only memory that is used again:
    std::vector<const HeaderView*> sorted_;
    std::vector<HeaderView> headers_;
    std::vector<QueryPair> query_;
    std::string path_;
    std::string text_;
};

}  // namespace kvern::http
