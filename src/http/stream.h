// SPDX-License-Identifier: Apache-2.0
// Stream: one connected socket, plain or under TLS, whose bytes go straight between the socket and the caller's memory.
//
// Belongs to one loop's thread. At most one read and one write wait at a time, and the stream outlives them. Knows no
// HTTP, and keeps no bytes: what it read is the caller's.
#pragma once

#include <sys/uio.h>

#include <coroutine>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "http/loop.h"
#include "http/task.h"
#include "http/tls.h"
#include "kvern/result.h"

struct ssl_st;

namespace kvern::http {

// Told of bytes as they arrive, while they are in the cache: for checksums.
using Arrived = std::function<void(std::span<const std::byte>)>;

class Stream final : private Watched {
  public:
    // Takes a connected socket over, whatever its mode.
    Stream(Loop& loop, int fd);
    ~Stream();

    // Resolves, connects (each address in turn) and, with `tls`, shakes hands; `server_name` is what the certificate
    // must name. failed(unavailable) says which address answered what.
    static Task<Result<std::unique_ptr<Stream>>> connect(Loop& loop, std::string host, std::string port,
                                                         std::shared_ptr<const TlsContext> tls, Duration timeout);
    // As a server. The context may be replaced meanwhile; this connection keeps its own.
    Task<Result<void>> accept_tls(std::shared_ptr<const TlsContext> tls, Duration timeout);

    // The next read or write that moves nothing for so long fails with unavailable. Zero: no limit.
    void stall_limit(Duration limit) { stall_ = limit; }
    // Whatever happens: reads and writes beyond it fail.
    void deadline(TimePoint deadline) { deadline_ = deadline; }

    // At least one byte, at most as many as fit; 0 is the end of the stream. Fails with unavailable (reset, stalled).
    Task<Result<std::size_t>> read_some(std::span<std::byte> into);
    // All of it. The end of the stream before that is an error.
    Task<Result<void>> read_exact(std::span<std::byte> into, const Arrived* arrived = nullptr);
    // All of it; the list is used up.
    Task<Result<void>> write_all(std::span<iovec> list);
    Task<Result<void>> write_all(std::string_view text);

    // For whoever waits now, and for all that follows: fails with unavailable and this reason.
    void abort(std::string reason);
    // Says that nothing more will be written; reads go on.
    void shut_write();
    // True if the peer has closed, or sent something, while nobody asked: a kept connection that is of no use.
    bool stale();
    // Bytes moved so far, above TLS.
    std::uint64_t read_bytes() const { return read_bytes_; }
    std::uint64_t written_bytes() const { return written_bytes_; }
    const std::string& peer() const { return peer_; }  // "192.0.2.1:9000"
    bool under_tls() const { return ssl_ != nullptr; }

  private:
    enum class Direction : bool { read, write };
    struct Ready;

    void overdue() override;
    TimePoint loop_now() const;
    Result<void> wait_over(Direction direction);
    // One system call: bytes moved; 0: the end (reads); nothing: it would block, and `want` says on what.
    Result<std::optional<std::size_t>> try_read(std::span<std::byte> into, Direction& want);
    Result<std::optional<std::size_t>> try_write(std::span<const iovec> list, Direction& want);
    Result<std::optional<std::size_t>> tls_outcome(int returned, Direction& want);
    Task<Result<void>> shake_hands();
    Task<Result<void>> connect_tls(std::shared_ptr<const TlsContext> tls, const std::string& server_name);
    Task<Result<void>> wait_connected(Duration timeout);
    void low_water(std::size_t missing);

    struct Socket;
    Loop& loop_;
    std::unique_ptr<Socket> socket_;
    int fd_;
    std::shared_ptr<const TlsContext> tls_;
    ssl_st* ssl_ = nullptr;
    std::string peer_;
    std::string aborted_;  // why, if it was
    Duration stall_{};
    TimePoint deadline_ = TimePoint::max();
    unsigned waiting_ = 0;
    int low_water_ = 1;
    std::uint64_t read_bytes_ = 0, written_bytes_ = 0;
};

}  // namespace kvern::http
