// SPDX-License-Identifier: Apache-2.0
// Addresses of sockets as text, and listening sockets. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "kvern/result.h"

struct sockaddr;

namespace kvern::http {

std::string address_text(const sockaddr* address);  // "192.0.2.1:9000", "[2001:db8::1]:9000"
std::string peer_text(int fd);                      // of the other end; "?" if it is gone
bool is_ip_address(std::string_view text);
bool is_loopback(std::string_view host);  // "127.0.0.1", "::1", "localhost"

struct HostPort {
    std::string host;  // without brackets
    std::string port;  // digits; empty where none was given
};
// "host", "host:port", "[::1]:port"; invalid_argument names what is wrong.
Result<HostPort> parse_host_port(std::string_view text);

// A listening socket, and the port that it got. Owned by the caller.
struct Listening {
    int fd = -1;
    unsigned port = 0;
};
Result<Listening> listen_on(const HostPort& address);

}  // namespace kvern::http
