// SPDX-License-Identifier: Apache-2.0
#include "fabric/networks.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>

#include "base/text.h"

namespace kvern::fabric {
namespace {

using Address = std::array<std::uint8_t, 16>;
constexpr unsigned mapped_bits = 96;  // of an IPv4 address in IPv6: ::ffff:a.b.c.d

Address mapped(const in_addr& address) {
    Address all{};
    all[10] = all[11] = 0xff;
    std::memcpy(all.data() + 12, &address, sizeof address);
    return all;
}

struct Parsed {
    Address address{};
    bool v4 = false;
};
std::optional<Parsed> parse_address(const std::string& text) {
    in_addr v4{};
    if (inet_pton(AF_INET, text.c_str(), &v4) == 1) return Parsed{mapped(v4), true};
    Parsed parsed;
    if (inet_pton(AF_INET6, text.c_str(), parsed.address.data()) == 1) return parsed;
    return std::nullopt;
}

std::optional<Address> address_of(std::string_view endpoint) {
    sockaddr_in v4{};
    sockaddr_in6 v6{};
    sa_family_t family = 0;
    if (endpoint.size() < sizeof family) return std::nullopt;
    std::memcpy(&family, endpoint.data(), sizeof family);
    if (family == AF_INET && endpoint.size() == sizeof v4) {
        std::memcpy(&v4, endpoint.data(), sizeof v4);
        return mapped(v4.sin_addr);
    }
    if (family == AF_INET6 && endpoint.size() == sizeof v6) {
        std::memcpy(&v6, endpoint.data(), sizeof v6);
        Address address{};
        std::memcpy(address.data(), &v6.sin6_addr, address.size());
        return address;
    }
    return std::nullopt;
}

bool within(const Address& address, const Address& network, unsigned bits) {
    const auto bytes = bits / 8;
    if (!std::equal(address.begin(), address.begin() + bytes, network.begin())) return false;
    const auto rest = bits % 8;
    if (rest == 0) return true;
    const auto mask = static_cast<std::uint8_t>(0xff << (8 - rest));
    return (address[bytes] & mask) == (network[bytes] & mask);
}

}  // namespace

Result<Networks> Networks::parse(std::string_view list) {
    Networks networks;
    while (!list.empty()) {
        const auto part = list.substr(0, list.find(','));
        list.remove_prefix(std::min(part.size() + 1, list.size()));
        const auto slash = std::min(part.find('/'), part.size());
        const auto parsed = parse_address(std::string(part.substr(0, slash)));
        const unsigned most = parsed && parsed->v4 ? 32 : 128;
        unsigned bits = most;
        bool good = parsed.has_value();
        if (slash < part.size()) {
            const auto [rest, error] = std::from_chars(part.data() + slash + 1, part.data() + part.size(), bits);
            good = good && error == std::errc{} && rest == part.data() + part.size() && bits <= most;
        }
        if (!good) {
            return fail(ErrorCode::invalid_argument, "'" + std::string(part) + "' is no network, such as 10.0.0.0/8");
        }
        networks.networks_.push_back({parsed->address, parsed->v4 ? bits + mapped_bits : bits});
    }
    return networks;
}

bool Networks::permit(std::string_view endpoint, std::string_view requested_from) const {
    const auto address = address_of(endpoint);
    if (!address) return false;
    const auto from = parse_address(std::string(requested_from));
    if (from && from->address == *address) return true;
    return std::any_of(networks_.begin(), networks_.end(),
                       [&](const Network& one) { return within(*address, one.address, one.bits); });
}

std::string endpoint_text(const std::string& name) {
    sockaddr_storage address{};
    std::array<char, NI_MAXHOST> host{};
    std::array<char, NI_MAXSERV> port{};
    std::memcpy(&address, name.data(), std::min(name.size(), sizeof address));
    const auto size = static_cast<socklen_t>(std::min(name.size(), sizeof address));
    if (getnameinfo(reinterpret_cast<sockaddr*>(&address), size, host.data(), host.size(), port.data(), port.size(),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        return to_hex(std::string_view(name));
    }
    const bool v6 = address.ss_family == AF_INET6;
    return (v6 ? "[" : "") + std::string(host.data()) + (v6 ? "]:" : ":") + port.data();
}

}  // namespace kvern::fabric
