// SPDX-License-Identifier: Apache-2.0
// Networks: where a server may connect to for a token, which anybody who may read could write anything into.
//
// Pure values, any thread. It looks nothing up.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kvern/result.h"

namespace kvern::fabric {

class Networks {
  public:
    // "10.0.0.0/8,fd00::/8,192.0.2.7"; empty: none. invalid_argument names the part.
    static Result<Networks> parse(std::string_view list);

    // Whether an endpoint's name (the bytes of a sockaddr_in or sockaddr_in6) is in one of these networks, or is the
    // address that the request itself came from, in digits. Anything else that a name may be is not.
    bool permit(std::string_view endpoint, std::string_view requested_from) const;

  private:
    struct Network {
        std::array<std::uint8_t, 16> address{};  // of IPv4: mapped into IPv6
        unsigned bits = 0;
    };
    std::vector<Network> networks_;
};

// An endpoint's name in digits, "192.0.2.1:9000"; in hex where it is no internet address.
std::string endpoint_text(const std::string& name);

}  // namespace kvern::fabric
