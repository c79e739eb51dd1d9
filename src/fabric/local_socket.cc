// SPDX-License-Identifier: Apache-2.0
#include "fabric/local_socket.h"

#include <cstddef>
#include <cstring>

namespace kvern::fabric {

Result<UnixAddress> unix_address(const std::string& text) {
    UnixAddress unix;
    unix.address.sun_family = AF_UNIX;
    if (text.size() < 2 || text.size() >= sizeof unix.address.sun_path || text.find('\0') != std::string::npos) {
        return fail(ErrorCode::invalid_argument, "'" + text +
                                                     "' is no address of a Unix socket: a path or @name of at most " +
                                                     std::to_string(sizeof unix.address.sun_path - 1) + " bytes");
    }
    std::memcpy(unix.address.sun_path, text.data(), text.size());
    const bool abstract = text.front() == '@';
    if (abstract) unix.address.sun_path[0] = '\0';
    unix.size_bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + text.size() + (abstract ? 0 : 1));
    return unix;
}

}  // namespace kvern::fabric
