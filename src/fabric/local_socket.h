// SPDX-License-Identifier: Apache-2.0
// What host and guest of the provider `local` say to each other, on a Unix socket of packets:
//
//   guest: one Offer with the descriptor of a sealed memfd, as often as it has memory to hand over
//   host:  one Verdict for each, in order
//
// The memory is the guest's as long as the connection stands. Not for anybody else.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "kvern/result.h"

namespace kvern::fabric {

struct Offer {
    std::array<char, 8> magic{'k', 'v', 'e', 'r', 'n', 'w', 'n', '1'};
    std::uint64_t size_bytes = 0;
};

struct Verdict {
    std::array<char, 8> magic{'k', 'v', 'e', 'r', 'n', 'w', 'n', '1'};
    std::array<char, 32> window{};   // hex digits; zeros: refused
    std::array<char, 120> reason{};  // of a refusal, with zeros behind
};

struct UnixAddress {
    sockaddr_un address{};
    socklen_t size_bytes = 0;
};
// "@name" is an abstract one, which has no file and no owner: its name must not be guessed. Else a path.
Result<UnixAddress> unix_address(const std::string& text);

}  // namespace kvern::fabric
