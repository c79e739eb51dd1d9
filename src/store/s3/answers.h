// SPDX-License-Identifier: Apache-2.0
// What an S3 server's answers mean: headers, XML documents, and which errors are worth another attempt.
//
// Pure functions, any thread. All of it comes from outside: nothing here trusts a length, a depth or an encoding.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "http/head.h"
#include "kvern/store.h"

namespace kvern {

// The document of an error, or what it lacks as empty texts.
struct S3ErrorText {
    std::string code;     // "SlowDown"
    std::string message;  // the server's own words, cut and free of control characters
    std::string region;   // where the bucket is, if it says so
};
// `body` may be anything; an answer to HEAD has none, and only a kvern server tells the code in a header. The region
// may also come from a header.
S3ErrorText error_text(const http::Head& head, std::string_view body);
// Only the document. Empty code: it is none.
S3ErrorText parse_error_document(std::string_view xml);

enum class S3Verdict : std::uint8_t {
    ok,
    told,          // 304, 404, 409, 412, 416: what it means depends on what was asked
    throttled,     // later
    trouble,       // of the server's own: again
    skewed,        // our clock and the server's differ too much
    other_region,  // the bucket is elsewhere, or the signature must name another region
    keys_refused,  // ended: others are needed
    denied,
    no_bucket,
    no_space,
    damaged,  // a kvern server's word: the object is there, its bytes are not what was stored
    not_supported,
    refused  // anything else
};
S3Verdict judge(unsigned status, std::string_view code);

// Size, time, etag and, if wanted, metadata of an answer to GET, HEAD or PUT. mtime is in whole seconds, since that is
// all that every answer has.
Stat stat_of(const http::Head& head, bool with_metadata);

// "bytes 0-9/100". Nothing where it is none, or its total is not known.
struct ContentRange {
    std::uint64_t first = 0, last = 0, total = 0;
};
std::optional<ContentRange> parse_content_range(std::string_view text);

struct S3Listing {
    std::vector<Entry> entries;  // keys as S3 knows them, in the order of the answer
    bool more = false;
};
Result<S3Listing> parse_listing(std::string_view xml);

Result<std::string> parse_upload_id(std::string_view xml);
// The etag of a completed upload. An error that came under status 200 is in `error`, and its code not empty.
struct S3Completed {
    std::string etag;
    S3ErrorText error;
};
Result<S3Completed> parse_completed(std::string_view xml);

struct S3NotDeleted {
    std::string key;
    S3ErrorText error;
};
Result<std::vector<S3NotDeleted>> parse_deleted(std::string_view xml);

// Answers to a kvern server's extensions. Of exists: as many lines as keys were asked about, "-" or size, time, "etag".
Result<std::vector<std::optional<Stat>>> parse_exists(std::string_view text, std::size_t keys);
Result<Space> parse_space(std::string_view json);
// Of kvern-fabric: how the server reaches the memory of its clients.
struct S3Ways {
    std::string socket, host;                // where this host's processes hand theirs over; no socket: nowhere
    std::vector<std::string> ofi_providers;  // of libfabric, the better one first
};
Result<S3Ways> parse_ways(std::string_view json);

std::string without_quotes(std::string_view etag);
// Of a server's words: at most limits::s3_answer_shown_bytes_max, on one line.
std::string shown_text(std::string_view text);
std::string xml_escaped(std::string_view text);

}  // namespace kvern
