// SPDX-License-Identifier: Apache-2.0
#include "http/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

namespace kvern::http {

std::string address_text(const sockaddr* address) {
    char text[INET6_ADDRSTRLEN] = "";
    if (address->sa_family == AF_INET) {
        sockaddr_in ip{};
        std::memcpy(&ip, address, sizeof ip);
        inet_ntop(AF_INET, &ip.sin_addr, text, sizeof text);
        return std::string(text) + ":" + std::to_string(ntohs(ip.sin_port));
    }
    if (address->sa_family == AF_INET6) {
        sockaddr_in6 ip{};
        std::memcpy(&ip, address, sizeof ip);
        inet_ntop(AF_INET6, &ip.sin6_addr, text, sizeof text);
        return "[" + std::string(text) + "]:" + std::to_string(ntohs(ip.sin6_port));
    }
    return "?";
}

std::string peer_text(int fd) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    return getpeername(fd, generic, &size) == 0 ? address_text(generic) : "?";
}

bool is_ip_address(std::string_view text) {
    const std::string copy(text);
    in6_addr ignored{};
    return inet_pton(AF_INET, copy.c_str(), &ignored) == 1 || inet_pton(AF_INET6, copy.c_str(), &ignored) == 1;
}

bool is_loopback(std::string_view host) {
    return host == "localhost" || host == "::1" || (host.starts_with("127.") && is_ip_address(host));
}

Result<HostPort> parse_host_port(std::string_view text) {
    HostPort parsed;
    auto rest = text;
    if (rest.starts_with('[')) {
        const auto end = rest.find(']');
        if (end == std::string_view::npos) {
            return fail(ErrorCode::invalid_argument, "address '" + std::string(text) + "': a ']' is missing");
        }
        parsed.host = rest.substr(1, end - 1);
        rest.remove_prefix(end + 1);
    } else {
        const auto colon = std::min(rest.find(':'), rest.size());
        parsed.host = rest.substr(0, colon);
        rest.remove_prefix(colon);
    }
    if (rest.starts_with(':')) parsed.port = rest.substr(1);
    const bool digits =
        std::all_of(parsed.port.begin(), parsed.port.end(), [](char c) { return c >= '0' && c <= '9'; });
    const bool port_ok =
        parsed.port.empty() ? rest.empty() : digits && parsed.port.size() <= 5 && std::stoul(parsed.port) <= 65535;
    if (parsed.host.empty() || !port_ok) {
        return fail(ErrorCode::invalid_argument,
                    "address '" + std::string(text) + "': expected HOST:PORT, such as 127.0.0.1:9000 or [::1]:9000");
    }
    return parsed;
}

Result<Listening> listen_on(const HostPort& address) {
    const auto name = address.host + ":" + address.port;
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
    addrinfo* found = nullptr;
    if (const int error = getaddrinfo(address.host.c_str(), address.port.c_str(), &hints, &found); error != 0) {
        return fail(ErrorCode::invalid_argument, "address '" + name + "': " + gai_strerror(error));
    }
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
    const int fd = ::socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
    if (fd < 0) return tl::unexpected(error_from_errno(errno, "socket"));
    const int one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (::bind(fd, found->ai_addr, found->ai_addrlen) != 0 || ::listen(fd, SOMAXCONN) != 0) {
        auto error = error_from_errno(errno, "listen on " + name);
        ::close(fd);
        return tl::unexpected(std::move(error));
    }
    sockaddr_storage bound{};
    socklen_t size = sizeof bound;
    auto* const generic = reinterpret_cast<sockaddr*>(&bound);
    getsockname(fd, generic, &size);
    const auto text = address_text(generic);
    return Listening{fd, static_cast<unsigned>(std::stoul(text.substr(text.rfind(':') + 1)))};
}

}  // namespace kvern::http
