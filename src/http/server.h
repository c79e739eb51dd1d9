// SPDX-License-Identifier: Apache-2.0
// Server: listens, reads requests, and gives each to a handler as an Exchange.
//
// A connection lives on one loop, requests on it one after the other; handlers run there and must not block. What S3
// is, it does not know. start() and stop() from any thread but a loop's.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "http/address.h"
#include "http/date.h"
#include "http/loop.h"
#include "http/message.h"
#include "http/tls.h"

namespace kvern::http {

// The head of an answer, as it is written. Date, Connection and the length are added by the exchange.
class AnswerHead {
  public:
    explicit AnswerHead(unsigned status) : status_(status) {}
    // Values must be free of CR and LF; what could hold them is escaped before. A name may come more than once.
    AnswerHead& add(std::string_view name, std::string_view value);
    unsigned status() const { return status_; }
    const std::string& lines() const { return lines_; }

  private:
    unsigned status_;
    std::string lines_;
};

// One request and its answer. Loop's thread.
class Exchange {
  public:
    const Head& request() const { return head_; }
    const std::string& peer() const { return stream_.peer(); }
    bool under_tls() const { return stream_.under_tls(); }
    Loop& loop() const { return loop_; }
    std::size_t loop_index() const { return loop_index_; }
    TimePoint started() const { return started_; }

    // The request's body. The first call answers an `Expect: 100-continue`.
    Task<Result<std::size_t>> read(std::span<std::byte> into, const Arrived* arrived = nullptr);
    Task<Result<std::span<const std::byte>>> look();  // see MessageReader
    void take(std::size_t size_bytes) { reader_.take(size_bytes); }
    bool body_ended() const { return reader_.body_ended(); }

    // Further lines, each with its end, for the head of the answer, whatever it will be.
    void add_to_answer(std::string_view lines) { always_ += lines; }
    // The whole answer. For HEAD the body's length is told and the body is not sent.
    Task<Result<void>> answer(AnswerHead head, std::string_view body = {});
    // An answer of `size_bytes` in pieces: begin, then send until all is sent. The head goes out with the first piece.
    void begin(const AnswerHead& head, std::uint64_t size_bytes);
    Task<Result<void>> send(std::span<const std::byte> piece);
    // The rest of the answer can't be sent rightly: the connection ends, so that the peer sees it cut.
    void break_off(std::string reason);
    // No further request on this connection.
    void close_after() { keep_ = false; }

    bool begun() const { return begun_; }
    unsigned status() const { return status_; }
    std::uint64_t body_bytes_in() const;
    std::uint64_t body_bytes_out() const { return sent_; }
    Duration wire_time() const { return wire_; }  // waited for the peer

  private:
    friend class Server;
    Exchange(Loop& loop, std::size_t loop_index, Stream& stream, MessageReader& reader, Head head, DateTexts& dates,
             const std::atomic<bool>& stopping);
    Task<Result<void>> admit_body();
    Task<Result<void>> flush_head(std::span<const std::byte> piece);

    Loop& loop_;
    const std::size_t loop_index_;
    Stream& stream_;
    MessageReader& reader_;
    const Head head_;
    const TimePoint started_;
    DateTexts& dates_;                   // the loop's
    const std::atomic<bool>& stopping_;  // the server; its last answers say that they are
    bool keep_;
    bool asked_for_body_ = false;  // 100 Continue was sent, or was not asked for
    bool begun_ = false;
    bool broken_ = false;
    unsigned status_ = 0;
    std::string always_;
    std::string pending_;  // a head that waits for its first piece
    std::uint64_t left_ = 0, sent_ = 0;
    std::uint64_t read_before_;
    Duration wire_{};
};

using Handler = std::function<Task<void>(Exchange&)>;

struct ServerOptions {
    HostPort address;
    std::shared_ptr<const TlsContext> tls;  // none: plain
    std::size_t connections_max;
    Duration head_limit, idle_limit, stall_limit;
    // The answer to what is no HTTP: status and reason to head lines and body.
    std::function<std::pair<AnswerHead, std::string>(unsigned status, std::string_view reason)> refuse;
    // That a socket holds of what is not received yet; 0: as much as the kernel thinks.
    std::size_t send_buffer_bytes = 0;
};

class Server {
  public:
    // Connections are dealt out to the loops in turn. The loops and the handler must outlive the server.
    static Result<std::unique_ptr<Server>> start(ServerOptions options, Handler handler, std::vector<Loop*> loops);
    ~Server();

    unsigned port() const;
    std::size_t connections() const;
    std::uint64_t refused() const;  // connections beyond the limit
    void replace_tls(std::shared_ptr<const TlsContext> tls);
    // Listens no more, ends idle connections, lets requests under way finish until `drain` is over, then breaks them
    // off. After it no handler runs. Returns whether all had finished.
    bool stop(Duration drain);

  private:
    struct Impl;
    explicit Server(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace kvern::http
