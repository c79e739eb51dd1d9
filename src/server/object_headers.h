// SPDX-License-Identifier: Apache-2.0
// Records to and from headers and XML: what S3 keeps of an object as its clients say and see it. Pure but for random
// ids; any thread.
#pragma once

#include <string>

#include "server/object_record.h"
#include "server/request.h"
#include "server/xml_writer.h"

namespace kvern::server {

// Content-Type, Cache-Control and the like, and user metadata, of a request that writes an object. metadata_too_large.
http::S3Result<ObjectRecord> record_from_headers(const Request& request);
// What a copy takes over: all but sums, parts and times.
ObjectRecord copied_record(const ObjectRecord& from);

// ETag, Last-Modified, Content-Type and the kept headers; response-… parameters of the request replace some.
void add_object_headers(http::AnswerHead& answer, const Request& request, const ObjectRecord& record);
void add_checksum_headers(http::AnswerHead& answer, const ObjectRecord& record);
void add_checksum_elements(XmlWriter& xml, const ObjectRecord& record);

std::string http_time(std::int64_t time_ns);  // "Sat, 31 Jan 2026 12:00:00 GMT"
std::string iso_time(std::int64_t time_ns);   // "2026-01-31T12:00:00.000Z"

}  // namespace kvern::server
