// SPDX-License-Identifier: Apache-2.0
#include "fabric/local_host.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "base/thread.h"
#include "fabric/local_socket.h"
#include "kvern/limits.h"

namespace kvern::fabric {
namespace {

struct Mapping {
    std::byte* base = nullptr;
    std::size_t size_bytes = 0;
    Mapping(std::byte* begin, std::size_t bytes) : base(begin), size_bytes(bytes) {}
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    ~Mapping() { munmap(base, size_bytes); }
};

std::string random_hex(std::size_t bytes) {
    std::string raw(bytes, '\0');
    if (getrandom(raw.data(), raw.size(), 0) != static_cast<ssize_t>(raw.size())) std::abort();
    return to_hex(std::string_view(raw));
}

// Sealed against shrinking, so that nobody can take pages away under a copy.
Result<std::shared_ptr<const Mapping>> map_offer(int fd, std::uint64_t size_bytes) {
    const int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
        return fail(ErrorCode::permission, "not a memfd that is sealed against shrinking");
    }
    struct stat status {};
    if (fstat(fd, &status) != 0) return tl::unexpected(error_from_errno(errno, "fstat"));
    if (size_bytes == 0 || size_bytes > static_cast<std::uint64_t>(status.st_size)) {
        return fail(ErrorCode::invalid_argument, "the memory is smaller than was said");
    }
    void* const base = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) return tl::unexpected(error_from_errno(errno, "mmap"));
    return std::make_shared<const Mapping>(static_cast<std::byte*>(base), size_bytes);
}

// One packet and the descriptor that came with it.
struct Packet {
    Offer offer;
    Fd fd;
    bool nothing = false, ended = false, malformed = false;
};

Packet receive(int socket) {
    Packet packet;
    iovec part{&packet.offer, sizeof packet.offer};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 4)];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const auto size = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) {
        packet.nothing = true;
        return packet;
    }
    if (size <= 0) {
        packet.ended = true;
        return packet;
    }
    for (auto* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
        const auto count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t i = 0; i < count; ++i) {
            int fd = -1;
            std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
            packet.fd.reset(fd);
        }
    }
    packet.malformed = size != sizeof packet.offer || packet.offer.magic != Offer{}.magic ||
                       (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 || !packet.fd;
    return packet;
}

// Whether nobody listens at the path of a socket any more: its server was killed.
bool is_left_behind(const UnixAddress& unix) {
    const Fd probe(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    const auto* const where = reinterpret_cast<const sockaddr*>(&unix.address);
    return unix.address.sun_path[0] != '\0' && connect(probe.get(), where, unix.size_bytes) != 0 &&
           errno == ECONNREFUSED;
}

}  // namespace

struct LocalHost::Impl {
    struct Connection {
        Fd fd;
        std::vector<std::string> windows;
    };

    ~Impl() {
        if (thread.joinable()) {
            const std::uint64_t one = 1;
            (void)!write(stop.get(), &one, sizeof one);
            thread.join();
        }
        if (!address.empty() && address.front() != '@') unlink(address.c_str());
    }

    void serve();
    void accept_all();
    bool take_offer(Connection& connection);  // false: the connection is over
    Result<std::string> take(Connection& connection, const Packet& packet);
    void end(Connection& connection);

    std::string address;
    Fd listening, stop;
    std::vector<Connection> connections;  // the thread's
    mutable std::mutex mutex;
    std::map<std::string, std::shared_ptr<const Mapping>, std::less<>> windows;  // under mutex, as the next
    LocalStats counts;
    std::thread thread;
};

void LocalHost::Impl::accept_all() {
    for (;;) {
        Fd fd(accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!fd && (errno == EINTR || errno == ECONNABORTED)) continue;
        if (!fd && errno != EAGAIN) {  // out of descriptors or memory: the waiting ones stay in the kernel's queue
            log(LogLevel::warning, "fabric", address + ": " + error_from_errno(errno, "accept").message);
            pollfd until_stop{stop.get(), POLLIN, 0};
            poll(&until_stop, 1, static_cast<int>(limits::http_accept_pause.count()));
        }
        if (!fd) return;
        if (connections.size() >= limits::fabric_guests_max) {
            log(LogLevel::warning, "fabric",
                address + ": more than " + std::to_string(limits::fabric_guests_max) +
                    " processes: one goes without windows");
            continue;
        }
        connections.push_back({std::move(fd), {}});
    }
}

Result<std::string> LocalHost::Impl::take(Connection& connection, const Packet& packet) {
    if (packet.malformed) return fail(ErrorCode::invalid_argument, "not an offer of this protocol");
    if (connection.windows.size() >= limits::fabric_windows_max) {
        return fail(ErrorCode::resource, "more than " + std::to_string(limits::fabric_windows_max) + " windows");
    }
    auto mapping = map_offer(packet.fd.get(), packet.offer.size_bytes);
    if (!mapping) return tl::unexpected(mapping.error());
    auto id = random_hex(sizeof(Verdict::window) / 2);
    const std::lock_guard lock(mutex);
    counts.window_bytes += (*mapping)->size_bytes;
    ++counts.windows;
    windows.emplace(id, std::move(*mapping));
    connection.windows.push_back(id);
    return id;
}

bool LocalHost::Impl::take_offer(Connection& connection) {
    const auto packet = receive(connection.fd.get());
    if (packet.nothing) return true;
    if (packet.ended) return false;
    const auto taken = take(connection, packet);
    Verdict verdict;
    if (taken) {
        std::copy(taken->begin(), taken->end(), verdict.window.begin());
    } else {
        const auto& reason = taken.error().message;
        std::copy_n(reason.begin(), std::min(reason.size(), verdict.reason.size() - 1), verdict.reason.begin());
        log(LogLevel::warning, "fabric", address + ": an offer of memory was refused: " + reason);
    }
    return send(connection.fd.get(), &verdict, sizeof verdict, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof verdict;
}

void LocalHost::Impl::end(Connection& connection) {
    connection.fd.reset();
    const std::lock_guard lock(mutex);
    for (const auto& id : connection.windows) {
        const auto found = windows.find(id);
        if (found == windows.end()) continue;
        counts.window_bytes -= found->second->size_bytes;
        --counts.windows;
        windows.erase(found);  // unmapped with the last span
    }
}

void LocalHost::Impl::serve() {
    for (;;) {
        std::vector<pollfd> waiting{{stop.get(), POLLIN, 0}, {listening.get(), POLLIN, 0}};
        for (const auto& connection : connections) waiting.push_back({connection.fd.get(), POLLIN, 0});
        if (poll(waiting.data(), waiting.size(), -1) < 0 && errno != EINTR) return;
        if (waiting[0].revents != 0) return;
        std::vector<Connection> alive;
        for (std::size_t i = 0; i < connections.size(); ++i) {
            auto& connection = connections[i];
            if (waiting[i + 2].revents == 0 || take_offer(connection)) {
                alive.push_back(std::move(connection));
            } else {
                end(connection);
            }
        }
        connections = std::move(alive);
        if (waiting[1].revents != 0) accept_all();
    }
}

LocalHost::LocalHost(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LocalHost::~LocalHost() = default;

Result<std::unique_ptr<LocalHost>> LocalHost::listen(const std::string& address) {
    const auto chosen = address.empty() ? "@kvern-" + random_hex(16) : address;
    const auto unix = unix_address(chosen);
    if (!unix) return tl::unexpected(unix.error());
    auto impl = std::make_unique<Impl>();
    impl->stop = Fd(eventfd(0, EFD_CLOEXEC));
    impl->listening = Fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!impl->stop || !impl->listening) return tl::unexpected(error_from_errno(errno, "socket '" + chosen + "'"));
    const auto* const where = reinterpret_cast<const sockaddr*>(&unix->address);
    const auto mask = umask(0117);  // 0660
    bool bound = bind(impl->listening.get(), where, unix->size_bytes) == 0;
    int error = errno;
    if (!bound && error == EADDRINUSE && is_left_behind(*unix)) {
        unlink(chosen.c_str());
        bound = bind(impl->listening.get(), where, unix->size_bytes) == 0;
        error = errno;
    }
    umask(mask);
    if (!bound) return tl::unexpected(error_from_errno(error, "socket '" + chosen + "': bind"));
    impl->address = chosen;
    if (::listen(impl->listening.get(), SOMAXCONN) != 0) {
        return tl::unexpected(error_from_errno(errno, "socket '" + chosen + "': listen"));
    }
    auto* const raw = impl.get();
    impl->thread = start_thread("kvern-windows", [raw] { raw->serve(); });
    return std::unique_ptr<LocalHost>(new LocalHost(std::move(impl)));
}

const std::string& LocalHost::address() const {
    return impl_->address;
}

Result<Span> LocalHost::find(const Token& token) const {
    std::shared_ptr<const Mapping> mapping;
    {
        const std::lock_guard lock(impl_->mutex);
        const auto found = impl_->windows.find(token.window);
        if (found == impl_->windows.end()) return fail(ErrorCode::unavailable, "nobody here has this window");
        mapping = found->second;
    }
    if (token.base > mapping->size_bytes || token.size_bytes > mapping->size_bytes - token.base) {
        return fail(ErrorCode::invalid_argument, "the token names more than its window has");
    }
    auto* const data = mapping->base + token.base;
    return Span{std::move(mapping), data, token.size_bytes};
}

LocalStats LocalHost::stats() const {
    const std::lock_guard lock(impl_->mutex);
    return impl_->counts;
}

}  // namespace kvern::fabric
