// SPDX-License-Identifier: Apache-2.0
// What S3 calls its errors: the code that stands in the XML document, and the HTTP status that goes with it.
//
// Pure values, any thread. The document itself is written by the server.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

namespace kvern::http {

enum class S3Code : std::uint8_t {
    access_denied,
    authorization_header_malformed,
    authorization_query_parameters_error,
    bad_digest,
    bucket_already_exists,
    bucket_already_owned_by_you,
    bucket_not_empty,
    conditional_request_conflict,
    entity_too_large,
    entity_too_small,
    incomplete_body,
    insufficient_storage,
    internal_error,
    invalid_access_key_id,
    invalid_argument,
    invalid_bucket_name,
    invalid_chunk_size,
    invalid_digest,
    invalid_location_constraint,
    invalid_part,
    invalid_part_number,
    invalid_part_order,
    invalid_range,
    invalid_request,
    invalid_token,
    invalid_uri,
    key_too_long,
    malformed_trailer,
    malformed_xml,
    max_message_length_exceeded,
    metadata_too_large,
    method_not_allowed,
    missing_content_length,
    missing_request_body,
    no_such_bucket,
    no_such_key,
    no_such_upload,
    not_implemented,
    object_damaged,  // of this server's own: the object is there, its bytes are not what was stored
    precondition_failed,
    request_header_section_too_large,
    request_time_too_skewed,
    request_timeout,
    service_unavailable,
    signature_does_not_match,
    slow_down,
    content_sha256_mismatch,
};

std::string_view to_string(S3Code code);  // "NoSuchKey"
std::optional<S3Code> parse_s3_code(std::string_view text);
unsigned http_status(S3Code code);

struct S3Error {
    S3Code code = S3Code::internal_error;
    std::string message;
    std::string etag{};  // of an object that is damaged: names this version, without quotes
};

template <class T = void>
using S3Result = tl::expected<T, S3Error>;

inline tl::unexpected<S3Error> refuse(S3Code code, std::string message) {
    return tl::unexpected<S3Error>(S3Error{code, std::move(message), {}});
}

}  // namespace kvern::http
