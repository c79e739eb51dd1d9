// SPDX-License-Identifier: Apache-2.0
// One-sided transfers as requests ask for them: the token in a header, the memory that it names, and the reply.
//
// Loop's thread. A token counts only as part of an authentic request, so ask after that is known.
#pragma once

#include "http/s3_error.h"
#include "http/server.h"
#include "server/request.h"

namespace kvern::server {

struct Site;

// What a request says of one-sided transfer, in the dialect of its header.
enum class WindowAsk : std::uint8_t {
    none,      // nothing
    granted,   // request.window is the memory, at least as large as the token says
    declined,  // its memory can't be reached: another provider, a window that is gone. The body goes over HTTP
    foreign    // a header of a dialect that is not spoken here
};
// invalid_request: the token is malformed, or names more than its window has.
http::S3Result<WindowAsk> ask_for_window(const Site& site, Request& request);

// Of a request whose body is in a window, if it names one: request.window, or nothing where it has a body of its own.
// not_implemented: declined, the body must be sent; invalid_request: nothing would be stored and success be told.
http::S3Result<> take_window(const Site& site, Request& request);

// x-amz-rdma-reply, of a transfer that was done: 200, 206; and how much was moved where that is the client's to check.
void add_window_reply(http::AnswerHead& answer, unsigned status, std::uint64_t moved_bytes);
// The same of a decline, in whatever the answer will be.
void decline_window(Request& request);

}  // namespace kvern::server
