// SPDX-License-Identifier: Apache-2.0
// The plainest HTTP there is, to measure clients and servers against: blocking sockets, a thread a connection, memory
// that is there before; or one epoll loop for short answers; or a server that only receives.
//
//   kvern_bench_http_plain get   --port P --connections N --seconds S --bytes B PATH...
//   kvern_bench_http_plain epoll --port P --connections N --seconds S --bytes B PATH...   one thread, short answers
//   kvern_bench_http_plain put   --port P --connections N --seconds S --bytes B PATH      PATH-i-j are written
//   kvern_bench_http_plain sink  --connections N                                          prints its port, receives
// With KVERN_ACCESS_KEY and KVERN_SECRET_KEY set, requests are signed. Prints one line of JSON.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/crc64nvme.h"
#include "http/address.h"
#include "http/checksum.h"
#include "http/sigv4.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Options {
    std::string mode;
    unsigned port = 0;
    std::size_t connections = 8, bytes = 4 << 20;
    double seconds = 3;
    bool checksum = false;  // puts bring a CRC64NVME
    std::vector<std::string> paths;
};

[[noreturn]] void die(const std::string& why) {
    fmt::print(stderr, "http_plain: {}\n", why);
    std::exit(1);
}

Options parse(int argc, char** argv) {
    Options options;
    if (argc < 2) die("a mode is missing: get, epoll, put, sink");
    options.mode = argv[1];
    for (int i = 2; i < argc; ++i) {
        const std::string name = argv[i];
        if (!name.starts_with("--")) {
            options.paths.push_back(name);
            continue;
        }
        if (name == "--checksum") {
            options.checksum = true;
            continue;
        }
        if (i + 1 == argc) die(name + " needs a value");
        const char* const value = argv[++i];
        if (name == "--port") {
            options.port = static_cast<unsigned>(std::strtoul(value, nullptr, 10));
        } else if (name == "--connections") {
            options.connections = std::strtoul(value, nullptr, 10);
        } else if (name == "--bytes") {
            options.bytes = std::strtoul(value, nullptr, 10);
        } else if (name == "--seconds") {
            options.seconds = std::strtod(value, nullptr);
        } else {
            die("unknown option " + name);
        }
    }
    return options;
}

double cpu_seconds() {
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    const auto seconds = [](const timeval& t) {
        return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
    };
    return seconds(used.ru_utime) + seconds(used.ru_stime);
}

int connect_to(unsigned port) {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
        die("nobody listens on " + std::to_string(port));
    const int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

// Heads of requests, signed where keys are given.
class Heads {
  public:
    explicit Heads(unsigned port) : host_("127.0.0.1:" + std::to_string(port)) {
        const char* const access = std::getenv("KVERN_ACCESS_KEY");
        const char* const secret = std::getenv("KVERN_SECRET_KEY");
        if (access != nullptr && secret != nullptr)
            signer_.emplace(kvern::http::Credentials{access, secret, ""}, "us-east-1");
    }
    void write(std::string& head, std::string_view method, std::string_view path, std::size_t body_bytes,
               std::string_view checksum = {}) {
        head.clear();
        fmt::format_to(std::back_inserter(head), "{} {} HTTP/1.1\r\nHost: {}\r\n", method, path, host_);
        if (method == "PUT") fmt::format_to(std::back_inserter(head), "Content-Length: {}\r\n", body_bytes);
        std::vector<kvern::http::HeaderView> headers{{"host", host_}};
        if (!checksum.empty()) {
            fmt::format_to(std::back_inserter(head), "x-amz-checksum-crc64nvme: {}\r\n", checksum);
            headers.push_back({"x-amz-checksum-crc64nvme", checksum});
        }
        if (signer_) {
            const kvern::http::RequestHead request{method, path, {}, headers};
            const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
            const auto made = signer_->sign(request, kvern::http::unsigned_payload, now);
            fmt::format_to(std::back_inserter(head),
                           "x-amz-date: {}\r\nx-amz-content-sha256: {}\r\nAuthorization: {}\r\n", made.amz_date,
                           made.amz_content_sha256, made.authorization);
        }
        head += "\r\n";
    }

  private:
    std::string host_;
    std::optional<kvern::http::Signer> signer_;
};

void send_all(int fd, const char* data, std::size_t size) {
    while (size > 0) {
        const auto sent = ::send(fd, data, size, MSG_NOSIGNAL);
        if (sent <= 0) die("a connection broke while sending");
        data += sent;
        size -= static_cast<std::size_t>(sent);
    }
}

// One answer into `memory`: bytes of its body. Dies where it is no 200.
std::size_t receive_answer(int fd, char* memory, std::size_t capacity) {
    char head[16 << 10];
    std::size_t have = 0;
    const char* end = nullptr;
    while (end == nullptr) {
        const auto got = ::recv(fd, head + have, sizeof head - have, 0);
        if (got <= 0) die("a connection broke while receiving a head");
        have += static_cast<std::size_t>(got);
        end = static_cast<const char*>(memmem(head, have, "\r\n\r\n", 4));
    }
    const std::string_view text(head, static_cast<std::size_t>(end + 4 - head));
    if (text.substr(9, 3) != "200") die("the answer is " + std::string(text.substr(0, text.find('\r'))));
    auto at = text.find("Content-Length: ");
    if (at == std::string_view::npos) at = text.find("content-length: ");
    const auto size = std::strtoul(head + at + 16, nullptr, 10);
    if (size > capacity) die("the answer is larger than --bytes");
    auto done = have - text.size();
    std::memcpy(memory, end + 4, done);
    while (done < size) {
        const auto got = ::recv(fd, memory + done, size - done, 0);
        if (got <= 0) die("a connection broke while receiving a body");
        done += static_cast<std::size_t>(got);
    }
    return size;
}

struct Measured {
    double seconds = 0, cpu = 0;
    std::vector<double> latencies;
    std::uint64_t bytes = 0;
};

void print(const Measured& measured) {
    auto sorted = measured.latencies;
    std::sort(sorted.begin(), sorted.end());
    const auto at = [&](double part) {
        return sorted.empty() ? 0.0 : sorted[static_cast<std::size_t>(static_cast<double>(sorted.size() - 1) * part)];
    };
    const auto gigabytes = static_cast<double>(measured.bytes) * 1e-9;
    fmt::print(
        "{{\"gb_per_s\": {:.4f}, \"cpu_s_per_gb\": {:.4f}, \"requests_per_s\": {:.1f}, \"cpu_us_per_request\": {:.2f}, "
        "\"p50_us\": {:.1f}, \"p99_us\": {:.1f}}}\n",
        gigabytes / measured.seconds, measured.cpu / std::max(gigabytes, 1e-9),
        static_cast<double>(sorted.size()) / measured.seconds,
        measured.cpu * 1e6 / static_cast<double>(std::max<std::size_t>(sorted.size(), 1)), at(0.5) * 1e6,
        at(0.99) * 1e6);
}

// Each connection in a thread of its own, from one start to one end.
template <class Work>
Measured run_threads(const Options& options, Work work) {
    std::vector<Measured> each(options.connections);
    std::vector<std::thread> threads;
    std::atomic<bool> stop{false}, go{false};
    std::atomic<std::size_t> ready{0};
    for (std::size_t i = 0; i < options.connections; ++i)
        threads.emplace_back([&, i] { work(i, each[i], ready, go, stop); });
    while (ready < options.connections) std::this_thread::yield();
    const auto start = Clock::now();
    const auto cpu = cpu_seconds();
    go = true;
    std::this_thread::sleep_for(std::chrono::duration<double>(options.seconds));
    stop = true;
    for (auto& thread : threads) thread.join();
    Measured all;
    all.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    all.cpu = cpu_seconds() - cpu;
    for (const auto& one : each) {
        all.bytes += one.bytes;
        all.latencies.insert(all.latencies.end(), one.latencies.begin(), one.latencies.end());
    }
    return all;
}

Measured get(const Options& options) {
    return run_threads(options, [&](std::size_t i, Measured& mine, auto& ready, auto& go, auto& stop) {
        std::vector<char> memory(options.bytes, 1);
        Heads heads(options.port);
        const int fd = connect_to(options.port);
        std::string head;
        ++ready;
        while (!go) std::this_thread::yield();
        for (std::size_t n = i; !stop; ++n) {
            const auto start = Clock::now();
            heads.write(head, "GET", options.paths[n % options.paths.size()], 0);
            send_all(fd, head.data(), head.size());
            mine.bytes += receive_answer(fd, memory.data(), memory.size());
            mine.latencies.push_back(std::chrono::duration<double>(Clock::now() - start).count());
        }
        ::close(fd);
    });
}

Measured put(const Options& options) {
    return run_threads(options, [&](std::size_t i, Measured& mine, auto& ready, auto& go, auto& stop) {
        std::vector<char> memory(options.bytes, static_cast<char>('a' + i % 26)), answer(64 << 10);
        std::string checksum;
        Heads heads(options.port);
        const int fd = connect_to(options.port);
        std::string head;
        ++ready;
        while (!go) std::this_thread::yield();
        for (std::size_t n = 0; !stop; ++n) {
            const auto start = Clock::now();
            if (options.checksum) {  // as a real client: over the bytes, each time
                auto sum = kvern::http::Checksum::make(kvern::http::ChecksumAlgorithm::crc64nvme);
                sum->update(std::as_bytes(std::span(memory)));
                checksum = sum->finish().text();
            }
            heads.write(head, "PUT", options.paths[0] + "-" + std::to_string(i) + "-" + std::to_string(n % 4),
                        memory.size(), checksum);
            send_all(fd, head.data(), head.size());
            send_all(fd, memory.data(), memory.size());
            receive_answer(fd, answer.data(), answer.size());
            mine.bytes += memory.size();
            mine.latencies.push_back(std::chrono::duration<double>(Clock::now() - start).count());
        }
        ::close(fd);
    });
}

// One thread, one epoll, short answers that come with their heads.
Measured epoll_loop(const Options& options) {
    struct Connection {
        int fd = -1;
        Clock::time_point start;
        std::size_t have = 0;
        std::vector<char> memory;
    };
    const int epoll = epoll_create1(0);
    Heads heads(options.port);
    std::vector<Connection> all(options.connections);
    std::string head;
    std::size_t n = 0;
    const auto ask = [&](Connection& one) {
        one.start = Clock::now();
        one.have = 0;
        heads.write(head, "GET", options.paths[n++ % options.paths.size()], 0);
        send_all(one.fd, head.data(), head.size());
    };
    for (std::size_t i = 0; i < all.size(); ++i) {
        all[i].fd = connect_to(options.port);
        all[i].memory.resize(options.bytes + (16 << 10));
        epoll_event event{};
        event.events = EPOLLIN;
        event.data.u64 = i;
        epoll_ctl(epoll, EPOLL_CTL_ADD, all[i].fd, &event);
    }
    Measured measured;
    const auto start = Clock::now();
    const auto cpu = cpu_seconds();
    for (auto& one : all) ask(one);
    epoll_event events[64];
    while (std::chrono::duration<double>(Clock::now() - start).count() < options.seconds) {
        const int count = epoll_wait(epoll, events, 64, 1000);
        for (int e = 0; e < count; ++e) {
            auto& one = all[events[e].data.u64];
            const auto got = ::recv(one.fd, one.memory.data() + one.have, one.memory.size() - one.have, 0);
            if (got <= 0) die("a connection broke");
            one.have += static_cast<std::size_t>(got);
            const auto* const end = static_cast<const char*>(memmem(one.memory.data(), one.have, "\r\n\r\n", 4));
            if (end == nullptr) continue;
            if (std::memcmp(one.memory.data() + 9, "200", 3) != 0)
                die("the answer is " + std::string(one.memory.data(), 40));
            if (one.have < static_cast<std::size_t>(end + 4 - one.memory.data()) + options.bytes) continue;
            measured.bytes += options.bytes;
            measured.latencies.push_back(std::chrono::duration<double>(Clock::now() - one.start).count());
            ask(one);
        }
    }
    measured.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    measured.cpu = cpu_seconds() - cpu;
    return measured;
}

// Receives PUTs into memory that is there, a thread a connection, and answers 200.
void sink() {
    auto listening = kvern::http::listen_on({"127.0.0.1", "0"});
    if (!listening) die(listening.error().message);
    fmt::print("{}\n", listening->port);
    std::fflush(stdout);
    for (;;) {
        const int fd = ::accept4(listening->fd, nullptr, nullptr, 0);
        if (fd < 0) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            continue;
        }
        std::thread([fd] {
            std::vector<char> memory(64 << 20, 1);
            for (;;) {
                std::size_t have = 0;
                const char* end = nullptr;
                char head[16 << 10];
                while (end == nullptr) {
                    const auto got = ::recv(fd, head + have, sizeof head - have, 0);
                    if (got <= 0) {
                        ::close(fd);
                        return;
                    }
                    have += static_cast<std::size_t>(got);
                    end = static_cast<const char*>(memmem(head, have, "\r\n\r\n", 4));
                }
                const std::string_view text(head, static_cast<std::size_t>(end + 4 - head));
                const auto at = text.find("Content-Length: ");
                const auto size = at == std::string_view::npos ? 0 : std::strtoul(head + at + 16, nullptr, 10);
                auto done = have - text.size();
                std::memcpy(memory.data(), end + 4, done);
                while (done < size) {
                    const auto got = ::recv(fd, memory.data() + done, size - done, 0);
                    if (got <= 0) die("a connection broke");
                    done += static_cast<std::size_t>(got);
                }
                constexpr std::string_view answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
                send_all(fd, answer.data(), answer.size());
            }
        }).detach();
    }
}

}  // namespace

int main(int argc, char** argv) {
    const auto options = parse(argc, argv);
    if (options.mode == "sink") sink();
    if (options.paths.empty()) die("a path is missing");
    if (options.mode == "get") {
        print(get(options));
    } else if (options.mode == "put") {
        print(put(options));
    } else if (options.mode == "epoll") {
        print(epoll_loop(options));
    } else {
        die("unknown mode " + options.mode);
    }
}
