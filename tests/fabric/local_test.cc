// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "fabric/local_guest.h"
#include "fabric/local_host.h"
#include "fabric/local_socket.h"
#include "fabric/region_of.h"
#include "kvern/limits.h"

namespace kvern::fabric {
namespace {

Token token_of(const std::string& window, std::uint64_t base, std::uint64_t size_bytes) {
    return *parse_token(local_token(window, base, size_bytes));
}

bool eventually(const std::function<bool()>& holds) {
    for (int i = 0; i < 2000; ++i) {
        if (holds()) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
}

class LocalWindows : public ::testing::Test {
  protected:
    std::unique_ptr<LocalHost> host_ = *LocalHost::listen("");
    std::shared_ptr<Region> region_ = region_of(1 << 20);
};

// What the host calls a region that is handed over whole.
Result<std::string> id_of(LocalGuest& guest, const std::shared_ptr<Region>& region) {
    auto windows = guest.hand_over(region);
    if (!windows) return tl::unexpected(windows.error());
    return windows->front().id;
}

TEST_F(LocalWindows, AreTheSameMemoryOnBothSides) {
    auto guest = LocalGuest::connect(host_->address());
    ASSERT_TRUE(guest) << guest.error().message;
    const auto window = id_of(**guest, region_);
    ASSERT_TRUE(window) << window.error().message;
    auto span = host_->find(token_of(*window, 4096, 10));
    ASSERT_TRUE(span) << span.error().message;
    std::memcpy(span->data, "0123456789", 10);
    EXPECT_EQ(std::memcmp(region_->base() + 4096, "0123456789", 10), 0);
    std::memcpy(region_->base() + 4096, "abcdefghij", 10);
    EXPECT_EQ(std::memcmp(span->data, "abcdefghij", 10), 0);
    EXPECT_EQ(host_->stats().windows, 1U);
    EXPECT_EQ(host_->stats().window_bytes, 1U << 20);
}

TEST_F(LocalWindows, EndAtTheirEnd) {
    auto guest = LocalGuest::connect(host_->address());
    const auto window = id_of(**guest, region_);
    const std::uint64_t size = 1 << 20;
    EXPECT_TRUE(host_->find(token_of(*window, 0, size)));
    EXPECT_TRUE(host_->find(token_of(*window, size - 1, 1)));
    for (const auto& [base, bytes] : {std::pair(std::uint64_t{0}, size + 1), std::pair(size, std::uint64_t{1}),
                                      std::pair(~std::uint64_t{0} - 1, std::uint64_t{1})}) {
        const auto beyond = host_->find(token_of(*window, base, bytes));
        ASSERT_FALSE(beyond) << base << " " << bytes;
        EXPECT_EQ(beyond.error().code, ErrorCode::invalid_argument);
    }
}

TEST_F(LocalWindows, AreGoneWithTheirGuestButForWhatIsUnderWay) {
    std::string window;
    Result<Span> span(Span{});
    {
        auto guest = LocalGuest::connect(host_->address());
        window = *id_of(**guest, region_);
        EXPECT_TRUE((*guest)->alive());
        span = host_->find(token_of(window, 0, 100));
    }
    ASSERT_TRUE(eventually([&] { return host_->stats().windows == 0; }));
    const auto late = host_->find(token_of(window, 0, 100));
    ASSERT_FALSE(late);
    EXPECT_EQ(late.error().code, ErrorCode::unavailable);
    region_.reset();
    std::memset(span->data, 'x', 100);  // whoever had it may go on: the pages are still there
}

TEST_F(LocalWindows, AHostThatEndsIsNoticedAndItsWindowsAreNotThoseOfTheNext) {
    const auto address = host_->address();
    auto guest = LocalGuest::connect(address);
    const auto window = *id_of(**guest, region_);
    host_.reset();
    EXPECT_FALSE((*guest)->alive());
    EXPECT_FALSE((*guest)->hand_over(region_));
    host_ = *LocalHost::listen(address);
    EXPECT_FALSE(host_->find(token_of(window, 0, 1)));
}

TEST_F(LocalWindows, AGuestHasSeveralAndOtherGuestsOthers) {
    auto one = LocalGuest::connect(host_->address()), other = LocalGuest::connect(host_->address());
    const auto second = region_of(4096);
    const auto a = *id_of(**one, region_), b = *id_of(**one, second), c = *id_of(**other, second);
    EXPECT_TRUE(a != b && b != c);
    region_->base()[0] = std::byte{1};
    second->base()[0] = std::byte{2};
    EXPECT_EQ(host_->find(token_of(a, 0, 1))->data[0], std::byte{1});
    EXPECT_EQ(host_->find(token_of(b, 0, 1))->data[0], std::byte{2});
    EXPECT_EQ(host_->find(token_of(c, 0, 1))->data[0], std::byte{2});
    EXPECT_EQ(host_->stats().windows, 3U);
}

TEST_F(LocalWindows, MoreThanTheLimitAreRefusedWithAReason) {
    auto guest = LocalGuest::connect(host_->address());
    for (std::size_t i = 0; i < limits::fabric_windows_max; ++i) ASSERT_TRUE((*guest)->hand_over(region_)) << i;
    const auto beyond = (*guest)->hand_over(region_);
    ASSERT_FALSE(beyond);
    EXPECT_EQ(beyond.error().code, ErrorCode::permission);
    EXPECT_NE(beyond.error().message.find("windows"), std::string::npos) << beyond.error().message;
    EXPECT_TRUE((*guest)->alive()) << "the others stay";
}

// Packets of whoever found the socket.
class Stranger {
  public:
    explicit Stranger(const std::string& address) : socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
        const auto unix = *unix_address(address);
        EXPECT_EQ(connect(socket_.get(), reinterpret_cast<const sockaddr*>(&unix.address), unix.size_bytes), 0);
    }
    // Whether the answer is a refusal; a broken connection is one, too.
    bool is_refused(const Offer& offer, std::size_t size_bytes, int fd) {
        iovec part{const_cast<Offer*>(&offer), size_bytes};
        alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)]{};
        msghdr message{};
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        if (fd >= 0) {
            message.msg_control = control;
            message.msg_controllen = sizeof control;
            auto* const header = CMSG_FIRSTHDR(&message);
            header->cmsg_level = SOL_SOCKET;
            header->cmsg_type = SCM_RIGHTS;
            header->cmsg_len = CMSG_LEN(sizeof fd);
            std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
        }
        EXPECT_GE(sendmsg(socket_.get(), &message, MSG_NOSIGNAL), 0);
        Verdict verdict;
        const auto got = recv(socket_.get(), &verdict, sizeof verdict, 0);
        return got <= 0 || verdict.window[0] == '\0';
    }

  private:
    Fd socket_;
};

TEST_F(LocalWindows, WhatIsNotSafeToMapIsRefused) {
    Offer offer;
    offer.size_bytes = 4096;
    const Fd unsealed(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(ftruncate(unsealed.get(), 4096), 0);
    const Fd file(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
    Stranger stranger(host_->address());
    EXPECT_TRUE(stranger.is_refused(offer, sizeof offer, unsealed.get())) << "it could shrink under a copy";
    EXPECT_TRUE(stranger.is_refused(offer, sizeof offer, file.get()));
    EXPECT_TRUE(stranger.is_refused(offer, sizeof offer, -1)) << "no memory at all";
    EXPECT_TRUE(stranger.is_refused(offer, 3, region_->memfd()));
    auto large = offer;
    large.size_bytes = (1 << 20) + 1;
    EXPECT_TRUE(stranger.is_refused(large, sizeof large, region_->memfd()));
    large.size_bytes = 0;
    EXPECT_TRUE(stranger.is_refused(large, sizeof large, region_->memfd()));
    auto other = offer;
    other.magic[7] = '2';
    EXPECT_TRUE(stranger.is_refused(other, sizeof other, region_->memfd()));
    EXPECT_EQ(host_->stats().windows, 0U);
    EXPECT_FALSE(stranger.is_refused(offer, sizeof offer, region_->memfd())) << "and the right one is taken";
}

TEST(LocalSocket, OfAPathIsForItsGroupAndGoesWithTheHost) {
    const auto path = "/tmp/kvern-window-test-" + std::to_string(getpid());
    {
        const auto host = LocalHost::listen(path);
        ASSERT_TRUE(host) << host.error().message;
        struct stat status {};
        ASSERT_EQ(stat(path.c_str(), &status), 0);
        EXPECT_EQ(status.st_mode & 0777, 0660U);
        const auto second = LocalHost::listen(path);
        ASSERT_FALSE(second);
        EXPECT_NE(second.error().message.find(path), std::string::npos);
        auto guest = LocalGuest::connect(path);
        EXPECT_TRUE(guest && (*guest)->hand_over(region_of(4096)));
    }
    EXPECT_NE(access(path.c_str(), F_OK), 0);
    EXPECT_FALSE(LocalGuest::connect(path));
    EXPECT_FALSE(LocalHost::listen(std::string(300, 'x')));
}

TEST(LocalHostId, IsOfThisHost) {
    EXPECT_EQ(local_host_id(), local_host_id());
    EXPECT_NE(local_host_id().find('/'), std::string::npos);
}

}  // namespace
}  // namespace kvern::fabric
