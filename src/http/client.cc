// SPDX-License-Identifier: Apache-2.0
#include "http/client.h"

#include <algorithm>

#include "kvern/limits.h"

namespace kvern::http {

struct HttpClient::Connection {
    explicit Connection(std::unique_ptr<Stream> connected)
        : stream(std::move(connected)), reader(*stream, HeadKind::response) {}
    std::unique_ptr<Stream> stream;
    MessageReader reader;
    TimePoint last_used;
    bool reused = false;
};

HttpClient::HttpClient(Loop& loop, HttpClientOptions options) : loop_(loop), options_(std::move(options)) {}
HttpClient::~HttpClient() = default;

// A place among the connections; given on when it is destroyed.
struct HttpClient::Turn {
    HttpClient& client;
    bool await_ready() const { return client.used_ < client.options_.connections_max && client.waiting_.empty(); }
    void await_suspend(std::coroutine_handle<> waiter) { client.waiting_.push_back(waiter); }
    void await_resume() { ++client.used_; }
};

void HttpClient::give_turn() {
    --used_;
    if (waiting_.empty()) return;
    const auto next = waiting_.front();
    waiting_.pop_front();
    next.resume();
}

Task<Result<std::unique_ptr<HttpClient::Connection>>> HttpClient::connection(bool fresh, TimePoint deadline) {
    while (!fresh && !kept_.empty()) {
        auto kept = std::move(kept_.back());
        kept_.pop_back();
        if (loop_.now() - kept->last_used > options_.idle_limit || kept->stream->stale()) continue;
        kept->reused = true;
        co_return std::move(kept);
    }
    const auto limit = std::min<Duration>(options_.connect_limit, deadline - loop_.now());
    auto stream = co_await Stream::connect(loop_, options_.address.host, options_.address.port, options_.tls, limit);
    if (!stream) co_return tl::unexpected(stream.error());
    co_return std::make_unique<Connection>(std::move(*stream));
}

Task<Result<void>> HttpClient::receive(Connection& connection, const HttpRequest& request, HttpAnswer& answer) {
    auto& reader = connection.reader;
    const bool wanted = !request.text_body && (answer.head.status == 200 || answer.head.status == 206);
    if (wanted) {
        std::size_t room = 0;
        for (const auto& buffer : request.into) room += buffer.size_bytes;
        if (reader.body_left() && *reader.body_left() > room) {
            co_return fail(ErrorCode::io, "the answer has " + std::to_string(*reader.body_left()) + " bytes, " +
                                              std::to_string(room) + " were asked for");
        }
        for (const auto& buffer : request.into) {
            const auto moved = co_await reader.read({buffer.data, buffer.size_bytes}, request.arrived);
            if (!moved) co_return tl::unexpected(moved.error());
            answer.body_bytes += *moved;
            if (*moved < buffer.size_bytes) break;
        }
        const auto beyond = co_await reader.look();
        if (!beyond) co_return tl::unexpected(beyond.error());
        if (!beyond->empty()) co_return fail(ErrorCode::io, "the answer has more bytes than were asked for");
        co_return Result<void>{};
    }
    for (;;) {
        const auto seen = co_await reader.look();
        if (!seen) co_return tl::unexpected(seen.error());
        if (seen->empty()) co_return Result<void>{};
        if (answer.text.size() + seen->size() > limits::http_text_bytes_max) {
            co_return fail(ErrorCode::io, "the answer's text is longer than " +
                                              std::to_string(limits::http_text_bytes_max) + " bytes");
        }
        answer.text.append(reinterpret_cast<const char*>(seen->data()), seen->size());
        reader.take(seen->size());
    }
}

Task<HttpClient::Exchanged> HttpClient::attempt(Connection& connection, const HttpRequest& request, bool& answered) {
    auto& stream = *connection.stream;
    stream.stall_limit(options_.stall_limit);
    stream.deadline(request.deadline);
    std::vector<iovec> list{{const_cast<char*>(request.head.data()), request.head.size()}};
    for (const auto& buffer : request.body) list.push_back({buffer.data, buffer.size_bytes});
    // A server may answer before it has read all, and close: what it said counts more than that writing failed.
    const auto written = co_await stream.write_all(std::span(list));
    HttpAnswer answer;
    for (;;) {
        auto head = co_await connection.reader.next_head(options_.stall_limit, options_.stall_limit);
        stream.deadline(request.deadline);
        answered = answered || connection.reader.holds_bytes() || (head && *head);
        if (!head || !*head) {
            auto error = !written ? written.error()
                         : !head  ? head.error()
                                  : Error{ErrorCode::unavailable,
                                         "connection to " + stream.peer() + ": closed without an answer"};
            co_return tl::unexpected(HttpFailure{std::move(error), !written, {}});
        }
        answer.head = std::move(**head);
        if (answer.head.status >= 200 || answer.head.status == 101) break;
    }
    if (request.is_head) connection.reader.no_body();
    stream.stall_limit(options_.stall_limit);
    const auto received = co_await receive(connection, request, answer);
    if (!received) co_return tl::unexpected(HttpFailure{received.error(), false, std::move(answer.head)});
    if (!written) answer.head.keep_alive = false;
    co_return std::move(answer);
}

Task<HttpClient::Exchanged> HttpClient::exchange(const HttpRequest& request) {
    co_await Turn{*this};
    Exchanged outcome = tl::unexpected(HttpFailure{});
    bool repeated = false;
    for (bool fresh = false;; fresh = true) {
        auto got = co_await connection(fresh, request.deadline);
        if (!got) {
            outcome = tl::unexpected(HttpFailure{got.error(), true, {}});
            break;
        }
        auto& connection = **got;
        busy_.push_back(&connection);
        bool answered = false;
        const auto began = loop_.now();
        const auto aborts = aborts_;
        outcome = co_await attempt(connection, request, answered);
        std::erase(busy_, &connection);
        const bool dead = !outcome && !answered && outcome.error().error.code == ErrorCode::unavailable &&
                          loop_.now() - began < options_.stall_limit && aborts_ == aborts;
        if (dead && connection.reused && !fresh && !request.once && loop_.now() < request.deadline) {
            repeated = !outcome.error().unsent;
            continue;  // the server had closed it, most likely before it read this
        }
        if (outcome && outcome->head.keep_alive && connection.reader.body_ended() && !connection.reader.holds_bytes()) {
            connection.stream->deadline(TimePoint::max());
            connection.last_used = loop_.now();
            kept_.push_back(std::move(*got));
        }
        break;
    }
    if (outcome) {
        outcome->repeated = repeated;
    } else {
        outcome.error().unsent = outcome.error().unsent && !repeated;
    }
    give_turn();
    co_return outcome;
}

void HttpClient::abort_all(const std::string& reason) {
    ++aborts_;
    for (auto* connection : busy_) connection->stream->abort(reason);
}

}  // namespace kvern::http
