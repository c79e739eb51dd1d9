// SPDX-License-Identifier: Apache-2.0
#include "fabric/local_guest.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "fabric/local_socket.h"
#include "fabric/token.h"
#include "kvern/limits.h"

namespace kvern::fabric {
namespace {

tl::unexpected<Error> lost(const std::string& address, int errno_value) {
    auto error = error_from_errno(errno_value, "the window socket '" + address + "'");
    error.code = ErrorCode::unavailable;
    return tl::unexpected(std::move(error));
}

bool send_offer(int socket, const Offer& offer, int fd) {
    iovec part{const_cast<Offer*>(&offer), sizeof offer};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)]{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    auto* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
    return sendmsg(socket, &message, MSG_NOSIGNAL) == sizeof offer;
}

std::string text_of(const char* begin, std::size_t size_bytes) {
    return {begin, std::find(begin, begin + size_bytes, '\0')};
}

}  // namespace

Result<std::shared_ptr<LocalGuest>> LocalGuest::connect(const std::string& address) {
    const auto unix = unix_address(address);
    if (!unix) return tl::unexpected(unix.error());
    Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (!socket) return lost(address, errno);
    const auto wait = std::chrono::microseconds(limits::fabric_hand_over_wait);
    const timeval limit{static_cast<time_t>(wait.count() / 1'000'000),
                        static_cast<suseconds_t>(wait.count() % 1'000'000)};
    for (const int direction : {SO_RCVTIMEO, SO_SNDTIMEO}) {
        setsockopt(socket.get(), SOL_SOCKET, direction, &limit, sizeof limit);
    }
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&unix->address), unix->size_bytes) != 0) {
        return lost(address, errno);
    }
    return std::shared_ptr<LocalGuest>(new LocalGuest(std::move(socket), address));
}

Result<std::vector<Guest::Window>> LocalGuest::hand_over(const std::shared_ptr<Region>& region) {
    Offer offer;
    offer.size_bytes = region->size_bytes();
    if (!send_offer(socket_.get(), offer, region->memfd())) return lost(address_, errno);
    Verdict verdict;
    const auto size = recv(socket_.get(), &verdict, sizeof verdict, 0);
    if (size < 0) return lost(address_, errno);
    if (size != sizeof verdict || verdict.magic != Verdict{}.magic) return lost(address_, EPROTO);
    auto window = text_of(verdict.window.data(), verdict.window.size());
    if (window.size() == verdict.window.size()) {
        count_registration();
        return std::vector<Window>{{region->base(), region->size_bytes(), std::move(window)}};
    }
    return fail(ErrorCode::permission, "the window socket '" + address_ + "' refuses this memory: " +
                                           text_of(verdict.reason.data(), verdict.reason.size()));
}

Result<Guest::Minted> LocalGuest::token(const Window& window, std::uint64_t offset, std::uint64_t size_bytes,
                                        Direction) {
    return Minted{local_token(window.id, offset, size_bytes), nullptr};
}

bool LocalGuest::alive() const {
    char one = 0;
    return recv(socket_.get(), &one, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

std::string local_host_id() {
    std::string boot;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
    struct stat network {};
    if (boot.empty() || stat("/proc/self/ns/net", &network) != 0) return {};
    return boot + "/" + std::to_string(network.st_ino);
}

}  // namespace kvern::fabric
