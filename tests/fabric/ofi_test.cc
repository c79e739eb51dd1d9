// SPDX-License-Identifier: Apache-2.0
// Transfers by libfabric over TCP: between two endpoints of this process, and with owners that die, stop and lie.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <future>
#include <string>
#include <vector>

#include "base/fd.h"
#include "fabric/ofi_guest.h"
#include "fabric/ofi_mover.h"
#include "fabric/region_of.h"
#include "kvern/limits.h"

namespace kvern::fabric {
namespace {

std::string variable(const char* name, const char* otherwise) {
    const char* const value = std::getenv(name);
    return value != nullptr ? value : otherwise;
}
// tests/rdma runs all of this over verbs.
const std::string provider = variable("KVERN_TEST_OFI_PROVIDER", "tcp;ofi_rxm");
const std::string loopback = variable("KVERN_TEST_OFI_ADDRESS", "127.0.0.1");
constexpr std::size_t mib = std::size_t{1} << 20;

void fill(std::byte* data, std::size_t size_bytes, unsigned seed) {
    for (std::size_t i = 0; i < size_bytes; ++i) data[i] = static_cast<std::byte>((i * 2654435761U + seed) >> 7);
}

// A process of tests/fabric/window_owner.cc.
class Owner {
  public:
    explicit Owner(std::size_t size_bytes, unsigned fill_with = 7) {
        std::array<int, 2> in{}, out{};
        if (pipe(in.data()) != 0 || pipe(out.data()) != 0) std::abort();
        const auto size = std::to_string(size_bytes), value = std::to_string(fill_with);
        pid_ = fork();
        if (pid_ == 0) {
            dup2(in[0], 0);
            dup2(out[1], 1);
            for (const int fd : {in[0], in[1], out[0], out[1]}) ::close(fd);
            execl(KVERN_WINDOW_OWNER, KVERN_WINDOW_OWNER, provider.c_str(), loopback.c_str(), size.c_str(),
                  value.c_str(), nullptr);
            _exit(127);
        }
        ::close(in[0]);
        ::close(out[1]);
        to_.reset(in[1]);
        from_.reset(out[0]);
        token_ = line();
    }
    ~Owner() {
        send(SIGKILL);
        waitpid(pid_, nullptr, 0);
    }
    Token token() const {
        auto token = parse_token(token_);
        EXPECT_TRUE(token) << token_;
        return token ? *token : Token{};
    }
    void send(int signal) const { kill(pid_, signal); }
    std::string sum() {
        EXPECT_EQ(write(to_.get(), "\n", 1), 1);
        return line();
    }

  private:
    std::string line() const {
        std::string text;
        for (char c = 0; read(from_.get(), &c, 1) == 1 && c != '\n';) text.push_back(c);
        return text;
    }
    pid_t pid_ = 0;
    Fd to_, from_;
    std::string token_;
};

class OfiTransfers : public ::testing::Test {
  protected:
    void SetUp() override {
        if (const auto version = ofi_version(); !version) GTEST_SKIP() << version.error().message;
        auto mover = OfiMover::open(provider, loopback, memory_);
        ASSERT_TRUE(mover) << mover.error().message;
        mover_ = std::move(*mover);
    }
    std::future<Result<void>> start(Token token, std::uint64_t offset, std::span<std::byte> memory,
                                    Direction direction) {
        auto promise = std::make_shared<std::promise<Result<void>>>();
        auto future = promise->get_future();
        mover_->move({std::move(token), offset, memory.data(), memory.size(), direction,
                      [promise](Result<void> result) { promise->set_value(std::move(result)); }});
        return future;
    }
    Result<void> move(Token token, std::uint64_t offset, std::span<std::byte> memory, Direction direction) {
        return start(std::move(token), offset, memory, direction).get();
    }
    std::span<std::byte> bytes(std::size_t offset, std::size_t size_bytes) {
        return {memory_->base() + offset, size_bytes};
    }

    std::shared_ptr<Region> memory_ = region_of(256 * mib);
    std::unique_ptr<OfiMover> mover_;
};

TEST_F(OfiTransfers, WriteAndReadTheMemoryThatATokenNames) {
    const auto region = region_of(32 * mib);
    const auto guest = OfiGuest::shared(provider, loopback);
    ASSERT_TRUE(guest) << guest.error().message;
    const auto window = (*guest)->hand_over(region)->front();
    unsigned seed = 1;
    for (const std::size_t size : {std::size_t{1}, std::size_t{4096}, 3 * mib + 5, 20 * mib}) {
        for (const std::size_t offset : {std::size_t{0}, std::size_t{12345}, 32 * mib - size}) {
            SCOPED_TRACE(std::to_string(size) + " bytes at " + std::to_string(offset));
            const auto token = *parse_token((*guest)->token(window, offset, size, Direction::into)->text);
            fill(memory_->base(), size, ++seed);
            const auto written = move(token, 0, bytes(0, size), Direction::into);
            ASSERT_TRUE(written) << written.error().message;
            ASSERT_EQ(std::memcmp(region->base() + offset, memory_->base(), size), 0);
            fill(region->base() + offset, size, ++seed);
            const auto read = move(token, 0, bytes(32 * mib, size), Direction::from);
            ASSERT_TRUE(read) << read.error().message;
            ASSERT_EQ(std::memcmp(region->base() + offset, memory_->base() + 32 * mib, size), 0);
        }
    }
    EXPECT_EQ(mover_->stats().peers, 1U);
    EXPECT_EQ(mover_->stats().cut, 0U);
}

TEST_F(OfiTransfers, MemoryIsRegisteredOnceAndAGuestIsOneAProcess) {
    const auto region = region_of(mib);
    const auto guest = *OfiGuest::shared(provider, loopback), again = *OfiGuest::shared(provider, loopback);
    EXPECT_EQ(guest, again);
    const auto text = [&] { return guest->token(guest->hand_over(region)->front(), 0, 1, Direction::into)->text; };
    EXPECT_EQ(text(), text());
    const auto other = guest->hand_over(region_of(mib))->front();
    EXPECT_NE(text(), guest->token(other, 0, 1, Direction::into)->text);
}

TEST_F(OfiTransfers, AWrongKeyOrRangeIsRefusedAndHurtsNobodyElse) {
    Owner owner(4 * mib), other(mib);
    const auto good = owner.token(), others = other.token();
    auto wrong_key = good, beyond = good;
    wrong_key.key ^= 1;
    beyond.base += 4 * mib - 10;
    std::vector<std::future<Result<void>>> fine;
    const auto before = owner.sum();
    for (const auto& wrong : {wrong_key, beyond}) {
        fill(memory_->base(), mib, 3);
        const auto refused = move(wrong, 0, bytes(0, 4096), Direction::into);
        ASSERT_FALSE(refused);
        EXPECT_EQ(refused.error().code, ErrorCode::io) << refused.error().message;
        EXPECT_EQ(owner.sum(), before) << "nothing was written";
        EXPECT_FALSE(move(wrong, 0, bytes(0, 4096), Direction::from));
        for (const auto& token : {good, others}) {
            const auto moved = move(token, 0, bytes(2 * mib, mib), Direction::from);
            EXPECT_TRUE(moved) << moved.error().message;
            EXPECT_EQ(memory_->base()[2 * mib], std::byte{7});
        }
    }
}

TEST_F(OfiTransfers, WhatIsUnderWayBesideARefusalIsDoneAgain) {
    Owner owner(32 * mib);
    auto wrong = owner.token();
    wrong.key ^= 1;
    std::vector<std::future<Result<void>>> fine;
    for (std::size_t i = 0; i < 8; ++i)
        fine.push_back(start(owner.token(), i * mib, bytes(i * mib, mib), Direction::from));
    auto refused = start(wrong, 0, bytes(40 * mib, mib), Direction::from);
    for (std::size_t i = 8; i < 16; ++i)
        fine.push_back(start(owner.token(), i * mib, bytes(i * mib, mib), Direction::from));
    EXPECT_FALSE(refused.get());
    for (auto& one : fine) {
        const auto moved = one.get();
        EXPECT_TRUE(moved) << moved.error().message;
    }
    for (std::size_t i = 0; i < 16; ++i) EXPECT_EQ(memory_->base()[i * mib], std::byte{7}) << i;
}

TEST_F(OfiTransfers, WhatIsRefusedIsNotTriedPieceByPiece) {
    Owner owner(256 * mib);
    ASSERT_TRUE(move(owner.token(), 0, bytes(0, 4096), Direction::into));
    auto wrong = owner.token();
    wrong.key ^= 1;
    const auto begin = Clock::steady().now();
    EXPECT_FALSE(move(wrong, 0, bytes(0, 256 * mib), Direction::into));
    // Each piece that fails alone costs its connection, and a pause: all 32 would take until the deadline.
    EXPECT_LT(Clock::steady().now() - begin, limits::fabric_transfer_wait * 3 / 5);
}

TEST_F(OfiTransfers, AnOwnerThatDiesEndsItsTransfersSoon) {
    Owner owner(32 * mib), other(mib);
    ASSERT_TRUE(move(owner.token(), 0, bytes(0, mib), Direction::into));
    std::vector<std::future<Result<void>>> moving;
    for (int i = 0; i < 16; ++i) {
        moving.push_back(start(owner.token(), 0, bytes(0, 16 * mib), i % 2 == 0 ? Direction::into : Direction::from));
    }
    owner.send(SIGKILL);
    const auto begin = Clock::steady().now();
    for (auto& one : moving) (void)one.get();  // the first may have been fast enough
    EXPECT_LT(Clock::steady().now() - begin, limits::fabric_transfer_wait + limits::fabric_connect_wait);
    const auto late = move(owner.token(), 0, bytes(0, mib), Direction::into);
    ASSERT_FALSE(late);
    EXPECT_TRUE(move(other.token(), 0, bytes(0, mib), Direction::into)) << "others are reached as before";
}

TEST_F(OfiTransfers, AnAddressWhereNobodyIsIsGivenUpWithoutDoubt) {
    Token token;
    {
        Owner owner(mib);
        token = owner.token();
    }
    const auto begin = Clock::steady().now();
    const auto moved = move(token, 0, bytes(0, 4096), Direction::into);
    ASSERT_FALSE(moved);
    EXPECT_EQ(moved.error().code, ErrorCode::unavailable) << moved.error().message;
    EXPECT_LT(Clock::steady().now() - begin, limits::fabric_transfer_wait);
}

class OfiOwnerStandsStill : public OfiTransfers, public ::testing::WithParamInterface<Direction> {
  protected:
    void SetUp() override {
        if (provider.starts_with("verbs")) GTEST_SKIP() << "over verbs its card goes on for it";
        OfiTransfers::SetUp();
    }
};
INSTANTIATE_TEST_SUITE_P(Both, OfiOwnerStandsStill, ::testing::Values(Direction::into, Direction::from));

TEST_P(OfiOwnerStandsStill, AndLosesItsTransferAndHoldsUpNobody) {
    Owner owner(32 * mib), other(mib);
    ASSERT_TRUE(move(owner.token(), 0, bytes(0, mib), Direction::into));
    owner.send(SIGSTOP);
    auto stuck = start(owner.token(), 0, bytes(0, 32 * mib), GetParam());
    EXPECT_TRUE(move(other.token(), 0, bytes(40 * mib, mib), Direction::into)) << "while the other stands still";
    const auto ended = stuck.get();
    ASSERT_FALSE(ended);
    EXPECT_EQ(ended.error().code, ErrorCode::io) << "bytes may still be on their way: " << ended.error().message;
    EXPECT_EQ(mover_->stats().cut, 1U);
    owner.send(SIGCONT);
    EXPECT_TRUE(move(other.token(), 0, bytes(0, mib), Direction::into));
    const auto again = move(owner.token(), 0, bytes(0, mib), Direction::into);
    EXPECT_TRUE(again) << again.error().message;
}

TEST_P(OfiOwnerStandsStill, AndTheMoverEndsAllTheSame) {
    Owner owner(32 * mib);
    ASSERT_TRUE(move(owner.token(), 0, bytes(0, mib), Direction::into));
    owner.send(SIGSTOP);
    auto stuck = start(owner.token(), 0, bytes(0, 32 * mib), GetParam());
    mover_.reset();
    EXPECT_FALSE(stuck.get());
}

TEST(OfiProviders, ThatAreNotUsedHereSayTheirNameAndAnAddressThatIsNotOursSaysSo) {
    const auto shared_memory = OfiEndpoint::open("shm", "");
    ASSERT_FALSE(shared_memory);
    EXPECT_NE(shared_memory.error().message.find("'shm'"), std::string::npos) << shared_memory.error().message;
    const auto elsewhere = OfiEndpoint::open(provider, "192.0.2.1");
    ASSERT_FALSE(elsewhere);
    EXPECT_NE(elsewhere.error().message.find("192.0.2.1"), std::string::npos) << elsewhere.error().message;
}

}  // namespace
}  // namespace kvern::fabric
