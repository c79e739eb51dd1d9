// SPDX-License-Identifier: Apache-2.0
// What the HTTP tests share: loops, a server with a given handler, and waiting for a coroutine from the test's thread.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "http/client.h"
#include "http/server.h"

namespace kvern::http::testing {

// Runs a coroutine on the loop and waits for its value.
template <class T>
T await(Loop& loop, Task<T> task) {
    std::promise<T> promise;
    auto future = promise.get_future();
    loop.spawn([](Task<T> inner, std::promise<T>& done) -> Task<void> {
        T value = co_await std::move(inner);
        done.set_value(std::move(value));
    }(std::move(task), promise));
    return future.get();
}

// A server on loopback, stopped at the end.
class LocalServer {
  public:
    explicit LocalServer(Handler handler, std::size_t loops = 1, std::shared_ptr<const TlsContext> tls = nullptr,
                         Duration limit = std::chrono::seconds(20)) {
        std::vector<Loop*> all;
        for (std::size_t i = 0; i < loops; ++i)
            all.push_back(loops_.emplace_back(std::make_unique<Loop>("test")).get());
        ServerOptions options;
        options.address = {"127.0.0.1", "0"};
        options.tls = std::move(tls);
        options.connections_max = 64;
        options.head_limit = options.idle_limit = options.stall_limit = limit;
        options.refuse = [](unsigned status, std::string_view reason) {
            return std::pair(AnswerHead(status), std::string(reason));
        };
        auto started = Server::start(std::move(options), std::move(handler), std::move(all));
        if (!started) ADD_FAILURE() << started.error().message;
        server_ = std::move(*started);
    }
    ~LocalServer() {
        server_->stop(std::chrono::seconds(2));
        for (auto& loop : loops_) loop->stop();
    }
    Server& server() { return *server_; }
    HostPort address() const { return {"127.0.0.1", std::to_string(server_->port())}; }

  private:
    std::vector<std::unique_ptr<Loop>> loops_;
    std::unique_ptr<Server> server_;
};

// A blocking socket for what no client would send.
class RawClient {
  public:
    explicit RawClient(unsigned port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(static_cast<std::uint16_t>(port));
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) ADD_FAILURE() << "connect";
        timeval limit{20, 0};
        setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    }
    ~RawClient() { ::close(fd_); }
    RawClient(const RawClient&) = delete;
    RawClient& operator=(const RawClient&) = delete;
    void send(std::string_view text) {
        ASSERT_EQ(::send(fd_, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
    }
    void shut_write() { ::shutdown(fd_, SHUT_WR); }
    // Until the end of the stream, or until `marker` was seen.
    std::string receive(std::string_view marker = {}) {
        std::string text;
        char bytes[4096];
        while (marker.empty() || text.find(marker) == std::string::npos) {
            const auto size = ::recv(fd_, bytes, sizeof bytes, 0);
            if (size <= 0) break;
            text.append(bytes, static_cast<std::size_t>(size));
        }
        return text;
    }

  private:
    int fd_;
};

}  // namespace kvern::http::testing
