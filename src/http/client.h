// SPDX-License-Identifier: Apache-2.0
// HttpClient: kept connections to one endpoint, and one request and answer on one of them.
//
// Belongs to one loop's thread; requests beyond `connections_max` wait their turn. A kept connection that turns out to
// be dead before a byte of the answer is replaced once. Signs nothing, retries nothing else.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "http/address.h"
#include "http/message.h"
#include "http/tls.h"
#include "kvern/store.h"

namespace kvern::http {

struct HttpRequest {
    std::string head;                  // request line and headers with Host and Content-Length, to the empty line
    bool is_head = false;              // the method is HEAD: the answer has no body
    std::span<const Buffer> body;      // the caller's, until the answer is there
    std::span<const Buffer> into;      // where the body of a 200 or 206 goes, and nowhere else; must hold all of it
    bool text_body = false;            // the body of a 200 or 206 goes into HttpAnswer::text, too
    const Arrived* arrived = nullptr;  // told of the bytes that land in `into`
    // Never sent a second time, on a fresh connection, where a kept one turns out to be dead.
    bool once = false;
    TimePoint deadline = TimePoint::max();
};

struct HttpAnswer {
    Head head;
    std::uint64_t body_bytes = 0;  // in `into`
    std::string text;              // a body that is not in `into`, at most limits::http_text_bytes_max
    bool repeated = false;  // the request was also sent on a kept connection that was dead: it may be the second one
};

struct HttpFailure {
    Error error;
    // Nothing of the request can have taken effect: it was not sent whole.
    bool unsent = false;
    Head head;  // of the answer, where it had come before its body failed; else its status is 0
};

struct HttpClientOptions {
    HostPort address;
    std::shared_ptr<const TlsContext> tls;  // none: plain
    std::size_t connections_max = 16;
    Duration connect_limit, stall_limit, idle_limit;  // a connection kept longer than idle_limit is not used again
};

class HttpClient {
  public:
    HttpClient(Loop& loop, HttpClientOptions options);
    ~HttpClient();  // REQUIRES: no request under way
    HttpClient(const HttpClient&) = delete;
    HttpClient& operator=(const HttpClient&) = delete;

    Task<tl::expected<HttpAnswer, HttpFailure>> exchange(const HttpRequest& request);
    // Breaks off what is under way: each request fails with unavailable and this reason.
    void abort_all(const std::string& reason);

    std::size_t connections() const { return used_; }

  private:
    struct Connection;
    struct Turn;
    using Exchanged = tl::expected<HttpAnswer, HttpFailure>;

    Task<Result<std::unique_ptr<Connection>>> connection(bool fresh, TimePoint deadline);
    Task<Exchanged> attempt(Connection& connection, const HttpRequest& request, bool& answered);
    Task<Result<void>> receive(Connection& connection, const HttpRequest& request, HttpAnswer& answer);
    void give_turn();

    Loop& loop_;
    const HttpClientOptions options_;
    std::vector<std::unique_ptr<Connection>> kept_;  // newest last
    std::vector<Connection*> busy_;
    std::uint64_t aborts_ = 0;
    std::size_t used_ = 0;  // connections that a request has
    std::deque<std::coroutine_handle<>> waiting_;
};

}  // namespace kvern::http
