// SPDX-License-Identifier: Apache-2.0
// Reads the XML documents that S3's clients send.
//
// Pure functions, any thread. Bodies are bounded (limits::xml_...), and have no document type and no entities of their
// own; elements that are not known are passed over, as newer clients send some. Whether parts and objects exist is for
// the caller.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "http/checksum.h"
#include "http/date.h"
#include "http/s3_error.h"

namespace kvern::server {

struct CompletedPart {
    unsigned number = 0;  // 1..limits::upload_parts_max, in ascending order, none twice
    std::string etag;     // without quotes
    std::vector<http::ChecksumValue> checksums;
};
// CompleteMultipartUpload: at least one part.
http::S3Result<std::vector<CompletedPart>> parse_complete_upload(std::string_view body);

struct DeleteObject {
    std::string key;  // 1 byte or more; may be too long
    std::string version_id;
    // Conditions: remove only what is like this.
    std::optional<std::string> etag;  // without quotes
    std::optional<std::uint64_t> size_bytes;
    std::optional<http::sys_seconds> last_modified;
};
struct DeleteRequest {
    bool quiet = false;
    std::vector<DeleteObject> objects;  // 1..limits::delete_objects_max
};
// Delete, the body of DeleteObjects.
http::S3Result<DeleteRequest> parse_delete(std::string_view body);

// CreateBucketConfiguration: its LocationConstraint; empty where there is none, and for an empty body.
http::S3Result<std::string> parse_create_bucket(std::string_view body);

}  // namespace kvern::server
