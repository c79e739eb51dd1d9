// SPDX-License-Identifier: Apache-2.0
#include "http/s3_error.h"

#include <algorithm>
#include <array>

namespace kvern::http {
namespace {

struct Row {
    S3Code code;
    std::string_view name;
    unsigned status;
};

constexpr auto rows = std::to_array<Row>({
    {S3Code::access_denied, "AccessDenied", 403},
    {S3Code::authorization_header_malformed, "AuthorizationHeaderMalformed", 400},
    {S3Code::authorization_query_parameters_error, "AuthorizationQueryParametersError", 400},
    {S3Code::bad_digest, "BadDigest", 400},
    {S3Code::bucket_already_exists, "BucketAlreadyExists", 409},
    {S3Code::bucket_already_owned_by_you, "BucketAlreadyOwnedByYou", 409},
    {S3Code::bucket_not_empty, "BucketNotEmpty", 409},
    {S3Code::conditional_request_conflict, "ConditionalRequestConflict", 409},
    {S3Code::entity_too_large, "EntityTooLarge", 400},
    {S3Code::entity_too_small, "EntityTooSmall", 400},
    {S3Code::incomplete_body, "IncompleteBody", 400},
    {S3Code::insufficient_storage, "InsufficientStorage", 507},
    {S3Code::internal_error, "InternalError", 500},
    {S3Code::invalid_access_key_id, "InvalidAccessKeyId", 403},
    {S3Code::invalid_argument, "InvalidArgument", 400},
    {S3Code::invalid_bucket_name, "InvalidBucketName", 400},
    {S3Code::invalid_chunk_size, "InvalidChunkSizeError", 403},
    {S3Code::invalid_digest, "InvalidDigest", 400},
    {S3Code::invalid_location_constraint, "InvalidLocationConstraint", 400},
    {S3Code::invalid_part, "InvalidPart", 400},
    {S3Code::invalid_part_number, "InvalidPartNumber", 416},
    {S3Code::invalid_part_order, "InvalidPartOrder", 400},
    {S3Code::invalid_range, "InvalidRange", 416},
    {S3Code::invalid_request, "InvalidRequest", 400},
    {S3Code::invalid_token, "InvalidToken", 400},
    {S3Code::invalid_uri, "InvalidURI", 400},
    {S3Code::key_too_long, "KeyTooLongError", 400},
    {S3Code::malformed_trailer, "MalformedTrailerError", 400},
    {S3Code::malformed_xml, "MalformedXML", 400},
    {S3Code::max_message_length_exceeded, "MaxMessageLengthExceeded", 400},
    {S3Code::metadata_too_large, "MetadataTooLarge", 400},
    {S3Code::method_not_allowed, "MethodNotAllowed", 405},
    {S3Code::missing_content_length, "MissingContentLength", 411},
    {S3Code::missing_request_body, "MissingRequestBodyError", 400},
    {S3Code::no_such_bucket, "NoSuchBucket", 404},
    {S3Code::no_such_key, "NoSuchKey", 404},
    {S3Code::no_such_upload, "NoSuchUpload", 404},
    {S3Code::not_implemented, "NotImplemented", 501},
    {S3Code::object_damaged, "ObjectDamaged", 500},
    {S3Code::precondition_failed, "PreconditionFailed", 412},
    {S3Code::request_header_section_too_large, "RequestHeaderSectionTooLarge", 431},
    {S3Code::request_time_too_skewed, "RequestTimeTooSkewed", 403},
    {S3Code::request_timeout, "RequestTimeout", 400},
    {S3Code::service_unavailable, "ServiceUnavailable", 503},
    {S3Code::signature_does_not_match, "SignatureDoesNotMatch", 403},
    {S3Code::slow_down, "SlowDown", 503},
    {S3Code::content_sha256_mismatch, "XAmzContentSHA256Mismatch", 400},
});

constexpr bool in_order() {
    for (std::size_t i = 0; i < rows.size(); ++i) {
        if (rows[i].code != static_cast<S3Code>(i)) return false;
    }
    return true;
}
static_assert(in_order() && rows.back().code == S3Code::content_sha256_mismatch);

const Row& row(S3Code code) {
    return rows[static_cast<std::size_t>(code)];
}

}  // namespace

std::string_view to_string(S3Code code) {
    return row(code).name;
}

std::optional<S3Code> parse_s3_code(std::string_view text) {
    const auto found =
        std::find_if(rows.begin(), rows.end(), [&](const Row& candidate) { return candidate.name == text; });
    if (found == rows.end()) return std::nullopt;
    return found->code;
}

unsigned http_status(S3Code code) {
    return row(code).status;
}

}  // namespace kvern::http
