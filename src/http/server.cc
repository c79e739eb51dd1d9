// SPDX-License-Identifier: Apache-2.0
#include "http/server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <cerrno>
#include <condition_variable>
#include <limits>
#include <mutex>

#include "base/log.h"
#include "kvern/limits.h"

namespace kvern::http {

namespace asio = boost::asio;

AnswerHead& AnswerHead::add(std::string_view name, std::string_view value) {
    lines_.append(name).append(": ").append(value).append("\r\n");
    return *this;
}

// ---------------------------------------------------------------------------------------------------------- Exchange

Exchange::Exchange(Loop& loop, std::size_t loop_index, Stream& stream, MessageReader& reader, Head head,
                   DateTexts& dates, const std::atomic<bool>& stopping)
    : loop_(loop),
      loop_index_(loop_index),
      stream_(stream),
      reader_(reader),
      head_(std::move(head)),
      started_(loop.now()),
      dates_(dates),
      stopping_(stopping),
      keep_(head_.keep_alive),
      read_before_(stream.read_bytes()) {
    asked_for_body_ = !head_.expects_continue;
}

std::uint64_t Exchange::body_bytes_in() const {
    if (head_.content_length) return *head_.content_length - reader_.body_left().value_or(0);
    return stream_.read_bytes() - read_before_;
}

Task<Result<void>> Exchange::admit_body() {
    if (asked_for_body_ || reader_.body_ended()) co_return Result<void>{};
    asked_for_body_ = true;
    co_return co_await stream_.write_all("HTTP/1.1 100 Continue\r\n\r\n");
}

Task<Result<std::size_t>> Exchange::read(std::span<std::byte> into, const Arrived* arrived) {
    const auto before = loop_.now();
    const auto admitted = co_await admit_body();
    if (!admitted) co_return tl::unexpected(admitted.error());
    auto moved = co_await reader_.read(into, arrived);
    wire_ += loop_.now() - before;
    co_return moved;
}

Task<Result<std::span<const std::byte>>> Exchange::look() {
    const auto before = loop_.now();
    const auto admitted = co_await admit_body();
    if (!admitted) co_return tl::unexpected(admitted.error());
    auto seen = co_await reader_.look();
    wire_ += loop_.now() - before;
    co_return seen;
}

void Exchange::begin(const AnswerHead& head, std::uint64_t size_bytes) {
    begun_ = true;
    status_ = head.status();
    // A body that was asked for by nobody may still be on its way or not: this connection can't be read on.
    if (stopping_ || (!asked_for_body_ && !reader_.body_ended())) keep_ = false;
    pending_.append("HTTP/1.1 ").append(std::to_string(status_)).append(" ").append(reason_phrase(status_));
    pending_.append("\r\nDate: ")
        .append(dates_.http(second_of(WallClock::system().now_ns())))
        .append("\r\n")
        .append(always_)
        .append(head.lines());
    if (status_ != 204 && status_ != 304)
        pending_.append("Content-Length: ").append(std::to_string(size_bytes)).append("\r\n");
    pending_.append(keep_ ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n");
    const bool silent = head_.method == "HEAD" || status_ == 204 || status_ == 304;
    left_ = silent ? 0 : size_bytes;
}

Task<Result<void>> Exchange::flush_head(std::span<const std::byte> piece) {
    const auto before = loop_.now();
    iovec list[2] = {{pending_.data(), pending_.size()}, {const_cast<std::byte*>(piece.data()), piece.size()}};
    const auto sent = co_await stream_.write_all(std::span(list));
    pending_.clear();
    wire_ += loop_.now() - before;
    co_return sent;
}

Task<Result<void>> Exchange::send(std::span<const std::byte> piece) {
    if (left_ == 0 && pending_.empty()) co_return Result<void>{};
    piece = piece.first(std::min<std::uint64_t>(piece.size(), left_));
    const auto sent = co_await flush_head(piece);
    if (!sent) {
        broken_ = true;
        co_return tl::unexpected(sent.error());
    }
    left_ -= piece.size();
    sent_ += piece.size();
    co_return Result<void>{};
}

Task<Result<void>> Exchange::answer(AnswerHead head, std::string_view body) {
    begin(head, body.size());
    co_return co_await send(std::as_bytes(std::span(body)));
}

void Exchange::break_off(std::string reason) {
    broken_ = true;
    stream_.abort(std::move(reason));
}

// ------------------------------------------------------------------------------------------------------------ Server

namespace {

// The kernel doubles it, for what it keeps beside the bytes; only root gets more than net.core.wmem_max.
void set_send_buffer(int fd, std::size_t size_bytes) {
    const int size = static_cast<int>(std::min<std::size_t>(size_bytes, std::numeric_limits<int>::max() / 2));
    if (size == 0 || setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size) == 0) return;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
}

// A connection while it lives, known to its loop.
struct Live {
    Stream* stream = nullptr;
    bool idle = true;
    Live* next = nullptr;
    Live* previous = nullptr;
};

}  // namespace

struct Server::Impl {
    Impl(ServerOptions given, Handler handle, std::vector<Loop*> all)
        : options(std::move(given)),
          handler(std::move(handle)),
          loops(std::move(all)),
          lives(loops.size()),
          dates(loops.size()) {}
    ~Impl() {
        if (listening.fd >= 0) ::close(listening.fd);
    }

    void accept_soon();
    void accept_all();
    Task<void> serve(std::size_t index, int fd);
    Task<bool> serve_one(std::size_t index, Stream& stream, MessageReader& reader, Live& live);
    Task<void> refuse(Stream& stream, const Error& error);
    Task<void> linger(Stream& stream);
    void on_each_loop(const std::function<void(Live&)>& action);
    bool wait_empty(Duration limit);

    ServerOptions options;
    Handler handler;
    std::vector<Loop*> loops;
    std::vector<Live*> lives;      // heads of lists; each of its loop's thread
    std::vector<DateTexts> dates;  // each of its loop's thread
    Listening listening;
    std::unique_ptr<asio::posix::stream_descriptor> acceptor;  // loop 0
    std::mutex mutex;
    std::condition_variable emptied;
    std::shared_ptr<const TlsContext> tls;  // under mutex
    std::atomic<std::size_t> connections{0};
    std::atomic<std::uint64_t> refused{0};
    std::atomic<bool> stopping{false};
    std::size_t next_loop = 0;
};

void Server::Impl::accept_soon() {
    if (stopping) return;
    acceptor->async_wait(asio::posix::stream_descriptor::wait_read, [this](const boost::system::error_code& error) {
        if (!error) accept_all();
    });
}

void Server::Impl::accept_all() {
    for (;;) {
        const int fd = ::accept4(listening.fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno == EINTR || errno == ECONNABORTED) continue;
            if (errno == EAGAIN) break;
            // Out of descriptors or memory: the waiting ones stay in the kernel's queue for a moment.
            log(LogLevel::warning, "http", "accept: " + error_from_errno(errno, "accept").message);
            detach([](Impl& self) -> Task<void> {
                co_await self.loops[0]->sleep(limits::http_accept_pause);
                self.accept_soon();
            }(*this));
            return;
        }
        if (connections >= options.connections_max) {
            ++refused;
            ::close(fd);
            continue;
        }
        ++connections;
        set_send_buffer(fd, options.send_buffer_bytes);
        const auto index = next_loop++ % loops.size();
        loops[index]->spawn(serve(index, fd));
    }
    accept_soon();
}

// Closing with unread bytes in the socket resets it, and the peer may lose the answer: take what comes, for a while.
Task<void> Server::Impl::linger(Stream& stream) {
    stream.shut_write();
    stream.deadline(Clock::steady().now() + limits::http_linger);
    std::vector<std::byte> sink(limits::http_head_bytes_max);
    for (;;) {
        const auto moved = co_await stream.read_some(sink);
        if (!moved || *moved == 0) co_return;
    }
}

Task<void> Server::Impl::refuse(Stream& stream, const Error& error) {
    const unsigned status = error.code == ErrorCode::resource ? 431 : 400;
    auto [head, body] = options.refuse(status, error.message);
    auto text = "HTTP/1.1 " + std::to_string(status) + " " + std::string(reason_phrase(status)) + "\r\n" + head.lines();
    text += "Content-Length: " + std::to_string(body.size()) + "\r\nConnection: close\r\n\r\n" + body;
    stream.stall_limit(options.stall_limit);
    const auto sent = co_await stream.write_all(text);
    if (sent) co_await linger(stream);
}

// One request. False: the connection is over.
Task<bool> Server::Impl::serve_one(std::size_t index, Stream& stream, MessageReader& reader, Live& live) {
    live.idle = !reader.holds_bytes();
    auto head = co_await reader.next_head(options.idle_limit, options.head_limit);
    live.idle = false;
    if (!head) {
        if (head.error().code != ErrorCode::unavailable) co_await refuse(stream, head.error());
        co_return false;
    }
    if (!*head) co_return false;
    stream.stall_limit(options.stall_limit);
    Exchange exchange(*loops[index], index, stream, reader, std::move(**head), dates[index], stopping);
    co_await handler(exchange);
    if (!exchange.begun_ && !exchange.broken_) {
        (void)co_await exchange.answer(AnswerHead(500));
    }
    if (exchange.broken_ || exchange.left_ > 0) co_return false;
    if (!exchange.pending_.empty()) (void)co_await exchange.flush_head({});
    if (!reader.body_ended() && exchange.asked_for_body_) {
        const auto left = reader.body_left();
        if (!exchange.keep_ || !left || *left > limits::http_drain_bytes_max) {
            co_await linger(stream);
            co_return false;
        }
        while (!reader.body_ended()) {
            const auto seen = co_await reader.look();
            if (!seen) co_return false;
            reader.take(seen->size());
        }
    }
    if (!exchange.keep_) co_await linger(stream);
    co_return exchange.keep_;
}

Task<void> Server::Impl::serve(std::size_t index, int fd) {
    {
        Stream stream(*loops[index], fd);
        Live live{&stream, true, lives[index], nullptr};
        if (live.next != nullptr) live.next->previous = &live;
        lives[index] = &live;
        std::shared_ptr<const TlsContext> context;
        {
            const std::lock_guard lock(mutex);
            context = tls;
        }
        bool going = !stopping;
        if (going && context) {
            const auto shaken = co_await stream.accept_tls(std::move(context), options.head_limit);
            going = shaken.has_value();
        }
        MessageReader reader(stream, HeadKind::request);
        while (going) {
            going = co_await serve_one(index, stream, reader, live);
            if (stopping) going = false;
        }
        if (live.next != nullptr) live.next->previous = live.previous;
        (live.previous != nullptr ? live.previous->next : lives[index]) = live.next;
    }
    const std::lock_guard lock(mutex);
    if (--connections == 0) emptied.notify_all();
}

void Server::Impl::on_each_loop(const std::function<void(Live&)>& action) {
    for (std::size_t index = 0; index < loops.size(); ++index) {
        loops[index]->post([this, index, action] {
            for (auto* live = lives[index]; live != nullptr; live = live->next) action(*live);
        });
    }
}

bool Server::Impl::wait_empty(Duration limit) {
    std::unique_lock lock(mutex);
    return emptied.wait_for(lock, limit, [this] { return connections == 0; });
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() {
    stop(Duration::zero());
}

Result<std::unique_ptr<Server>> Server::start(ServerOptions options, Handler handler, std::vector<Loop*> loops) {
    auto listening = listen_on(options.address);
    if (!listening) return tl::unexpected(listening.error());
    auto impl = std::make_unique<Impl>(std::move(options), std::move(handler), std::move(loops));
    impl->listening = *listening;
    impl->tls = impl->options.tls;
    auto* const raw = impl.get();
    std::unique_ptr<Server> server(new Server(std::move(impl)));
    raw->loops[0]->post([raw] {
        raw->acceptor = std::make_unique<asio::posix::stream_descriptor>(raw->loops[0]->context(), raw->listening.fd);
        raw->accept_soon();
    });
    return server;
}

unsigned Server::port() const {
    return impl_->listening.port;
}
std::size_t Server::connections() const {
    return impl_->connections;
}
std::uint64_t Server::refused() const {
    return impl_->refused;
}

void Server::replace_tls(std::shared_ptr<const TlsContext> tls) {
    const std::lock_guard lock(impl_->mutex);
    impl_->tls = std::move(tls);
}

bool Server::stop(Duration drain) {
    if (impl_->stopping.exchange(true)) return true;
    std::atomic<bool> closed{false};
    impl_->loops[0]->post([this, &closed] {
        if (impl_->acceptor) impl_->acceptor->release();
        impl_->acceptor.reset();
        ::close(std::exchange(impl_->listening.fd, -1));
        closed = true;
        closed.notify_all();
    });
    closed.wait(false);
    impl_->on_each_loop([](Live& live) {
        if (live.idle) live.stream->abort("the server stops");
    });
    if (impl_->wait_empty(drain)) return true;
    impl_->on_each_loop([](Live& live) { live.stream->abort("the server stops"); });
    impl_->wait_empty(limits::close_wait);
    return false;
}

}  // namespace kvern::http
