// SPDX-License-Identifier: Apache-2.0
#include "http/stream.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cerrno>
#include <climits>

#include "http/address.h"
#include "kvern/limits.h"

namespace kvern::http {

namespace asio = boost::asio;

struct Stream::Socket {
    asio::posix::stream_descriptor descriptor;
};

// Waits until the socket can be read or written, or the stream is aborted. Result as wait_over() says.
struct Stream::Ready {
    Stream& stream;
    Direction direction;

    bool await_ready() const { return !stream.aborted_.empty(); }
    void await_suspend(std::coroutine_handle<> waiter) {
        ++stream.waiting_;
        const auto now = stream.loop_now();
        auto until = stream.deadline_;
        if (stream.stall_ > Duration::zero()) until = std::min(until, now + stream.stall_);
        stream.limit(until);
        stream.socket_->descriptor.async_wait(direction == Direction::read ? asio::posix::descriptor_base::wait_read
                                                                           : asio::posix::descriptor_base::wait_write,
                                              [waiter](const boost::system::error_code&) { waiter.resume(); });
    }
    Result<void> await_resume() const { return stream.wait_over(direction); }
};

namespace {

Error lost(int errno_value, const std::string& peer) {
    auto error = error_from_errno(errno_value, "connection to " + peer);
    error.code = ErrorCode::unavailable;
    return error;
}

std::string milliseconds_text(Duration duration) {
    return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(duration).count()) + " ms";
}

}  // namespace

Stream::Stream(Loop& loop, int fd) : Watched(loop), loop_(loop), fd_(fd), peer_(peer_text(fd)) {
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    const int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    socket_ = std::make_unique<Socket>(Socket{asio::posix::stream_descriptor(loop.context(), fd)});
}

Stream::~Stream() {
    if (ssl_ != nullptr) SSL_free(ssl_);
}

void Stream::overdue() {
    abort(loop_.now() >= deadline_ ? "its time is over" : "nothing moved for " + milliseconds_text(stall_));
}

void Stream::abort(std::string reason) {
    if (aborted_.empty()) aborted_ = std::move(reason);
    socket_->descriptor.cancel();
}

TimePoint Stream::loop_now() const {
    return loop_.now();
}

Result<void> Stream::wait_over(Direction) {
    if (waiting_ > 0 && --waiting_ == 0) no_limit();
    if (!aborted_.empty()) return fail(ErrorCode::unavailable, "connection to " + peer_ + ": " + aborted_);
    return {};
}

// ------------------------------------------------------------------------------------------------ one system call

Result<std::optional<std::size_t>> Stream::tls_outcome(int returned, Direction& want) {
    const int error = SSL_get_error(ssl_, returned);
    switch (error) {
        case SSL_ERROR_WANT_READ:
            want = Direction::read;
            return std::nullopt;
        case SSL_ERROR_WANT_WRITE:
            want = Direction::write;
            return std::nullopt;
        case SSL_ERROR_ZERO_RETURN:
            return 0;
        case SSL_ERROR_SYSCALL:
            return tl::unexpected(lost(errno == 0 ? ECONNRESET : errno, peer_));
        default:
            return fail(ErrorCode::unavailable, "connection to " + peer_ + ": TLS: " + tls_reasons());
    }
}

Result<std::optional<std::size_t>> Stream::try_read(std::span<std::byte> into, Direction& want) {
    if (ssl_ != nullptr) {
        ERR_clear_error();
        std::size_t size = 0;
        const int returned = SSL_read_ex(ssl_, into.data(), into.size(), &size);
        if (returned != 1) return tls_outcome(returned, want);
        read_bytes_ += size;
        return size;
    }
    for (;;) {
        const auto size = ::recv(fd_, into.data(), into.size(), 0);
        if (size >= 0) {
            read_bytes_ += static_cast<std::size_t>(size);
            return static_cast<std::size_t>(size);
        }
        if (errno == EINTR) continue;
        want = Direction::read;
        if (errno == EAGAIN) return std::nullopt;
        return tl::unexpected(lost(errno, peer_));
    }
}

Result<std::optional<std::size_t>> Stream::try_write(std::span<const iovec> list, Direction& want) {
    if (ssl_ != nullptr) {
        ERR_clear_error();
        std::size_t size = 0;
        const int returned = SSL_write_ex(ssl_, list.front().iov_base, list.front().iov_len, &size);
        if (returned != 1) return tls_outcome(returned, want);
        written_bytes_ += size;
        return size;
    }
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(list.data());
    message.msg_iovlen = std::min<std::size_t>(list.size(), IOV_MAX);
    for (;;) {
        const auto size = ::sendmsg(fd_, &message, MSG_NOSIGNAL);
        if (size >= 0) {
            written_bytes_ += static_cast<std::size_t>(size);
            return static_cast<std::size_t>(size);
        }
        if (errno == EINTR) continue;
        want = Direction::write;
        if (errno == EAGAIN) return std::nullopt;
        return tl::unexpected(lost(errno, peer_));
    }
}

// Wakes up for large pieces only: fewer system calls. A mark that stays high would let the next head lie unseen.
void Stream::low_water(std::size_t missing) {
    if (ssl_ != nullptr) return;
    const int wanted = missing < limits::http_low_water_from_bytes
                           ? 1
                           : static_cast<int>(std::min(missing, limits::http_low_water_bytes));
    if (wanted == low_water_) return;
    low_water_ = wanted;
    setsockopt(fd_, SOL_SOCKET, SO_RCVLOWAT, &wanted, sizeof wanted);
}

// ----------------------------------------------------------------------------------------------------- coroutines

Task<Result<std::size_t>> Stream::read_some(std::span<std::byte> into) {
    low_water(0);
    for (;;) {
        auto want = Direction::read;
        const auto moved = try_read(into, want);
        if (!moved) co_return tl::unexpected(moved.error());
        if (*moved) co_return **moved;
        const auto waited = co_await Ready{*this, want};
        if (!waited) co_return tl::unexpected(waited.error());
    }
}

Task<Result<void>> Stream::read_exact(std::span<std::byte> into, const Arrived* arrived) {
    while (!into.empty()) {
        auto want = Direction::read;
        // In pieces that stay in the cache until they are summed.
        const auto piece = arrived == nullptr ? into : into.first(std::min(into.size(), limits::http_piece_bytes));
        const auto moved = try_read(piece, want);
        if (!moved) co_return tl::unexpected(moved.error());
        if (*moved) {
            const std::size_t size = **moved;
            if (size == 0) {
                co_return fail(ErrorCode::unavailable, "connection to " + peer_ + ": closed with " +
                                                           std::to_string(into.size()) + " bytes of the body missing");
            }
            if (arrived != nullptr) (*arrived)(into.first(size));
            into = into.subspan(size);
            continue;
        }
        low_water(into.size());
        const auto waited = co_await Ready{*this, want};
        if (!waited) co_return tl::unexpected(waited.error());
    }
    low_water(0);
    co_return Result<void>{};
}

Task<Result<void>> Stream::write_all(std::span<iovec> list) {
    while (!list.empty()) {
        if (list.front().iov_len == 0) {
            list = list.subspan(1);
            continue;
        }
        auto want = Direction::write;
        const auto moved = try_write(list, want);
        if (!moved) co_return tl::unexpected(moved.error());
        if (!*moved) {
            const auto waited = co_await Ready{*this, want};
            if (!waited) co_return tl::unexpected(waited.error());
            continue;
        }
        for (std::size_t size = **moved; size > 0;) {
            auto& first = list.front();
            const auto part = std::min(size, first.iov_len);
            first.iov_base = static_cast<std::byte*>(first.iov_base) + part;
            first.iov_len -= part;
            size -= part;
            if (first.iov_len == 0) list = list.subspan(1);
        }
    }
    co_return Result<void>{};
}

Task<Result<void>> Stream::write_all(std::string_view text) {
    iovec one{const_cast<char*>(text.data()), text.size()};
    co_return co_await write_all(std::span(&one, 1));
}

Task<Result<void>> Stream::shake_hands() {
    for (;;) {
        ERR_clear_error();
        const int returned = SSL_do_handshake(ssl_);
        if (returned == 1) co_return Result<void>{};
        auto want = Direction::read;
        const auto outcome = tls_outcome(returned, want);
        if (!outcome) co_return tl::unexpected(outcome.error());
        if (*outcome)
            co_return fail(ErrorCode::unavailable, "connection to " + peer_ + ": closed during the handshake");
        const auto waited = co_await Ready{*this, want};
        if (!waited) co_return tl::unexpected(waited.error());
    }
}

Task<Result<void>> Stream::accept_tls(std::shared_ptr<const TlsContext> tls, Duration timeout) {
    tls_ = std::move(tls);
    ssl_ = SSL_new(tls_->get());
    if (ssl_ == nullptr || SSL_set_fd(ssl_, fd_) != 1) co_return fail(ErrorCode::resource, "TLS: " + tls_reasons());
    SSL_set_accept_state(ssl_);
    deadline(loop_.now() + timeout);
    auto shaken = co_await shake_hands();
    deadline(TimePoint::max());
    co_return shaken;
}

Task<Result<void>> Stream::connect_tls(std::shared_ptr<const TlsContext> tls, const std::string& server_name) {
    tls_ = std::move(tls);
    ssl_ = SSL_new(tls_->get());
    if (ssl_ == nullptr || SSL_set_fd(ssl_, fd_) != 1) co_return fail(ErrorCode::resource, "TLS: " + tls_reasons());
    SSL_set_connect_state(ssl_);
    if (is_ip_address(server_name)) {
        X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl_), server_name.c_str());
    } else {
        // The macro for this casts in the old style.
        SSL_ctrl(ssl_, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, const_cast<char*>(server_name.c_str()));
        SSL_set1_host(ssl_, server_name.c_str());
    }
    auto shaken = co_await shake_hands();
    if (!shaken && SSL_get_verify_result(ssl_) != X509_V_OK) {
        shaken = fail(ErrorCode::permission,
                      "connection to " + peer_ + ": the certificate of '" + server_name + "' is not trusted: " +
                          X509_verify_cert_error_string(SSL_get_verify_result(ssl_)) + " (give its root as ca=FILE)");
    }
    co_return shaken;
}

void Stream::shut_write() {
    if (ssl_ != nullptr) SSL_shutdown(ssl_);
    ::shutdown(fd_, SHUT_WR);
}

bool Stream::stale() {
    std::byte one{};
    if (ssl_ != nullptr) {  // a session ticket may lie there, which is none of the caller's bytes
        ERR_clear_error();
        std::size_t size = 0;
        const int returned = SSL_peek_ex(ssl_, &one, 1, &size);
        return returned == 1 || SSL_get_error(ssl_, returned) != SSL_ERROR_WANT_READ;
    }
    return ::recv(fd_, &one, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EAGAIN;
}

// -------------------------------------------------------------------------------------------------------- connecting

namespace {

struct Resolve {
    Resolve(Loop& loop, const std::string& wanted_host, const std::string& wanted_port)
        : resolver(loop.context()), host(wanted_host), port(wanted_port) {}
    asio::ip::tcp::resolver resolver;
    const std::string& host;
    const std::string& port;
    boost::system::error_code error;
    std::vector<asio::ip::tcp::endpoint> found;

    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<> waiter) {
        resolver.async_resolve(host, port, [this, waiter](const auto& failure, const auto& results) {
            error = failure;
            for (const auto& one : results) found.push_back(one.endpoint());
            waiter.resume();
        });
    }
    void await_resume() {}
};

}  // namespace

Task<Result<void>> Stream::wait_connected(Duration timeout) {
    deadline(loop_.now() + timeout);
    const auto waited = co_await Ready{*this, Direction::write};
    deadline(TimePoint::max());
    if (!waited) co_return tl::unexpected(waited.error());
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) co_return tl::unexpected(lost(error, peer_));
    co_return Result<void>{};
}

Task<Result<std::unique_ptr<Stream>>> Stream::connect(Loop& loop, std::string host, std::string port,
                                                      std::shared_ptr<const TlsContext> tls, Duration timeout) {
    const auto until = loop.now() + timeout;
    Resolve resolve(loop, host, port);
    co_await resolve;
    if (resolve.error) {
        co_return fail(ErrorCode::unavailable, "host '" + host + "': " + resolve.error.message());
    }
    Error last{ErrorCode::unavailable, "host '" + host + "' has no address"};
    for (const auto& endpoint : resolve.found) {
        const int fd = ::socket(endpoint.protocol().family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
        if (fd < 0) {
            last = error_from_errno(errno, "socket");
            continue;
        }
        const int started = ::connect(fd, endpoint.data(), static_cast<socklen_t>(endpoint.size()));
        const int why = started == 0 ? 0 : errno;
        auto stream = std::make_unique<Stream>(loop, fd);
        stream->peer_ = address_text(endpoint.data());
        if (why != 0 && why != EINPROGRESS) {
            last = lost(why, stream->peer_);
            continue;
        }
        auto done = co_await stream->wait_connected(std::max(until - loop.now(), Duration::zero()));
        if (done && tls) {
            stream->deadline(until);
            done = co_await stream->connect_tls(tls, host);
            stream->deadline(TimePoint::max());
        }
        if (done) co_return std::move(stream);
        last = done.error();
        if (loop.now() >= until) break;
    }
    co_return tl::unexpected(std::move(last));
}

}  // namespace kvern::http
