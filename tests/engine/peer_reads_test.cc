// SPDX-License-Identifier: Apache-2.0
// Ranks that hold the same bytes and take them from each other's reads. Three loaders in one process stand for the
// ranks.
#include "engine/peer_reads.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "engine/load_fixture.h"

namespace kvern {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;
using testing::eventually;
using testing::hash_of;
using testing::LoadFixture;
using testing::short_stall;

std::string fresh_name() {
    static std::atomic<int> number = 0;
    return "test " + std::to_string(::getpid()) + " " + std::to_string(++number);
}

std::shared_ptr<Region> small_region() {
    RegionOptions options;
    options.size_bytes = 64 << 10;
    return Region::create(options).value();
}

struct Pair {
    Pair() {
        const std::string name = fresh_name();
        for (std::uint32_t i = 0; i < 2; ++i) {
            regions[i] = small_region();
            auto opened = PeerReads::open(name, i, 2, regions[i]);
            EXPECT_TRUE(opened) << opened.error().message;
            peers[i] = std::move(*opened);
        }
    }
    // An object that the rank reads, by the hash.
    ObjectId of(std::uint32_t rank) {
        for (std::size_t number = 0;; ++number)
            if (!peers[rank]->read_elsewhere({hash_of(number), 0})) return {hash_of(number), 0};
    }
    std::shared_ptr<Region> regions[2];
    std::unique_ptr<PeerReads> peers[2];
    const Digest name_space{};
};

TEST(PeerReads, OneRankReadsAndTheOtherTakesItFromItsStaging) {
    Pair p;
    const ObjectId id = p.of(0);
    EXPECT_TRUE(p.peers[1]->read_elsewhere(id));
    auto lease = std::make_shared<Lease>(std::move(*p.regions[0]->try_lease(8192)));
    std::memset(lease->data(), 0x5a, 8192);
    p.peers[0]->offer(p.name_space, id, lease, steady_clock::now() + seconds(60));
    lease.reset();
    const auto now = steady_clock::now();
    p.peers[0]->move_on(now);
    p.peers[1]->move_on(now);
    const PeerReads::Offer* offer = p.peers[1]->find(p.name_space, id);
    ASSERT_NE(offer, nullptr);
    ASSERT_EQ(offer->object.size(), 8192U);
    EXPECT_EQ(offer->object[8191], std::byte{0x5a});
    EXPECT_EQ(p.regions[0]->stats().leased_bytes, 8192U) << "kept until it is released";
    p.peers[1]->release(p.name_space, id);
    p.peers[1]->move_on(now);
    p.peers[0]->move_on(now);
    EXPECT_EQ(p.regions[0]->stats().leased_bytes, 0U);
    EXPECT_EQ(p.peers[1]->find(p.name_space, id), nullptr);
}

TEST(PeerReads, AnOfferEndsByItself) {
    Pair p;
    const ObjectId id = p.of(0);
    const auto start = steady_clock::now();
    p.peers[0]->offer(p.name_space, id, std::make_shared<Lease>(std::move(*p.regions[0]->try_lease(4096))),
                      start + seconds(1));
    p.peers[0]->move_on(start);
    p.peers[1]->move_on(start);
    EXPECT_LE(p.peers[0]->next_deadline(), start + seconds(1));
    p.peers[0]->move_on(start + seconds(1));
    EXPECT_EQ(p.regions[0]->stats().leased_bytes, 0U);
    EXPECT_NE(p.peers[1]->find(p.name_space, id), nullptr);
    p.peers[1]->move_on(start + seconds(10));
    EXPECT_EQ(p.peers[1]->find(p.name_space, id), nullptr);
    EXPECT_EQ(p.peers[1]->next_deadline(), steady_clock::time_point::max());
}

TEST(PeerReads, MoreThanAQueueHoldsIsSentALittleLater) {
    Pair p;
    const ObjectId id = p.of(0);
    const auto now = steady_clock::now();
    for (int i = 0; i < 2000; ++i) {  // a datagram each, and nobody receives
        p.peers[0]->offer(p.name_space, {hash_of(static_cast<std::size_t>(i)), 0}, nullptr, now);
        p.peers[0]->move_on(now);
    }
    EXPECT_LT(p.peers[0]->next_deadline(), steady_clock::now() + seconds(1));
    p.peers[0]->offer(p.name_space, id, nullptr, now);
    for (int i = 0; i < 1000; ++i) {
        p.peers[1]->move_on(now);
        p.peers[0]->move_on(now);
    }
    EXPECT_NE(p.peers[1]->find(p.name_space, id), nullptr);
    EXPECT_NE(p.peers[1]->find(p.name_space, {hash_of(1999), 0}), nullptr);
    EXPECT_EQ(p.peers[0]->next_deadline(), steady_clock::time_point::max());
}

TEST(PeerReads, WhatWontComeIsDeclined) {
    Pair p;
    const ObjectId id = p.of(0);
    p.peers[0]->offer(p.name_space, id, nullptr, steady_clock::time_point::max());
    p.peers[0]->move_on(steady_clock::now());
    p.peers[1]->move_on(steady_clock::now());
    ASSERT_NE(p.peers[1]->find(p.name_space, id), nullptr);
    EXPECT_TRUE(p.peers[1]->find(p.name_space, id)->object.empty());
}

TEST(PeerReads, ARankThatIsNotOnThisHostReadsNothingForIt) {
    const auto region = small_region();
    auto alone = PeerReads::open(fresh_name(), 1, 4, region);
    ASSERT_TRUE(alone);
    for (std::size_t number = 0; number < 100; ++number) EXPECT_FALSE((*alone)->read_elsewhere({hash_of(number), 0}));
}

TEST(PeerReads, NonsenseFromElsewhereIsIgnored) {
    Pair p;
    p.of(0);
    for (std::uint32_t i = 0; i < 2; ++i) p.peers[i]->move_on(steady_clock::now());
    auto stranger = PeerReads::open(fresh_name(), 0, 1, small_region());
    // Any datagram that reaches the socket: sizes that are no message, and messages from nobody.
    const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    socklen_t size = sizeof address;
    ASSERT_EQ(::getsockname(p.peers[1]->fd(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    for (const std::size_t bytes : {1, 7, 150, 151, 152, 400})
        ::sendto(socket, std::string(bytes, '\xff').data(), bytes, 0, reinterpret_cast<sockaddr*>(&address), size);
    ::close(socket);
    p.peers[1]->move_on(steady_clock::now());
    EXPECT_EQ(p.peers[1]->next_deadline(), steady_clock::time_point::max());
}

// --- Loaders

struct Ranks {
    explicit Ranks(std::chrono::milliseconds stall = testing::no_stall) {
        const std::string name = fresh_name();
        for (std::uint32_t i = 0; i < 3; ++i) {
            rank[i] = std::make_unique<LoadFixture>(16, stall);
            auto peers = PeerReads::open(name, i, 3, rank[i]->staging);
            EXPECT_TRUE(peers);
            rank[i]->loader->share(std::move(*peers), {true});
            rank[i]->put(6);
            rank[i]->scrub();
        }
    }
    std::uint64_t reads() const {
        std::uint64_t sum = 0;
        for (const auto& each : rank) sum += each->store.count(OpKind::get);
        return sum;
    }
    std::uint64_t taken() const {
        std::uint64_t sum = 0;
        for (const auto& each : rank) sum += each->counters.peer_reads;
        return sum;
    }
    bool at_rest() const {
        return std::all_of(std::begin(rank), std::end(rank), [](const auto& each) {
            return each->staging->stats().leased_bytes + each->staging->stats().quarantined_bytes == 0;
        });
    }
    std::unique_ptr<LoadFixture> rank[3];
};

TEST(LoadersOfOneHost, ReadEachObjectOnce) {
    Ranks ranks;
    for (auto& each : ranks.rank) each->load("a", 0, 6, 10);
    for (auto& each : ranks.rank) {
        EXPECT_TRUE(each->reported(1).failed.empty());
        EXPECT_TRUE(each->holds(0, 6, 10));
    }
    // On a machine that is too busy a rank may lose its patience and read for itself.
    EXPECT_EQ(ranks.reads() + ranks.taken(), 18U);
    EXPECT_GE(ranks.taken(), 1U);
    EXPECT_TRUE(eventually([&] { return ranks.at_rest(); }));
}

TEST(LoadersOfOneHost, OneThatComesLateFindsTheOffers) {
    Ranks ranks;
    ranks.rank[0]->load("a", 0, 6, 10);
    ranks.rank[1]->load("a", 0, 6, 10);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ranks.rank[2]->load("a", 0, 6, 10);
    for (auto& each : ranks.rank) {
        EXPECT_TRUE(each->reported(1).failed.empty());
        EXPECT_TRUE(each->holds(0, 6, 10));
    }
    EXPECT_EQ(ranks.reads() + ranks.taken(), 18U);
}

TEST(LoadersOfOneHost, ReadForThemselvesWhatTheOthersDoNot) {
    Ranks ranks(std::chrono::milliseconds(400));
    ranks.rank[0]->load("alone", 0, 6, 10);  // the other ranks never get this load
    EXPECT_TRUE(ranks.rank[0]->reported(1).failed.empty());
    EXPECT_TRUE(ranks.rank[0]->holds(0, 6, 10));
    EXPECT_EQ(ranks.reads(), 6U);
    EXPECT_TRUE(eventually([&] { return ranks.at_rest(); })) << "nobody released what was offered";
}

TEST(LoadersOfOneHost, ABrokenReadOfOneIsReadAgainByTheOthers) {
    Ranks ranks;
    for (std::size_t chunk = 0; chunk < 6; ++chunk) ranks.rank[1]->damage(chunk, 5000);
    for (auto& each : ranks.rank) each->load("a", 0, 6, 10);
    for (int i : {0, 2}) {
        EXPECT_TRUE(ranks.rank[i]->reported(1).failed.empty());
        EXPECT_TRUE(ranks.rank[i]->holds(0, 6, 10));
    }
    const auto& broken = ranks.rank[1]->reported(1);
    EXPECT_EQ(broken.failed.empty(), broken.bad_blocks.empty());
    for (auto& each : ranks.rank) EXPECT_EQ(each->failures(LoadFailure::stall), 0U) << "declined, not waited for";
}

TEST(LoadersOfOneHost, AStalledReadOfOneEndsInTheOthersOwn) {
    Ranks ranks(std::chrono::milliseconds(300));
    ranks.rank[1]->store.hold(testing::of_kind(OpKind::get));
    for (auto& each : ranks.rank) each->load("a", 0, 6, 10);
    for (int i : {0, 2}) {
        EXPECT_TRUE(ranks.rank[i]->reported(1).failed.empty());
        EXPECT_TRUE(ranks.rank[i]->holds(0, 6, 10));
    }
    ranks.rank[1]->reported(1);
    ranks.rank[1]->store.release();
    EXPECT_TRUE(eventually([&] { return ranks.at_rest(); }));
}

// Ranks whose memory is on a device, with the smallest staging: what another rank has read needs room in it too.
struct RanksOnDevices {
    RanksOnDevices() {
        const std::string name = fresh_name();
        for (std::uint32_t i = 0; i < 3; ++i) {
            rank[i] = std::make_unique<LoadFixture>(2);
            rank[i]->end();
            memory[i] = rank[i]->kv.worker();
            memory[i].on_device = true;
            for (LayerMemory& layer : memory[i].groups[0].layers) layer.base = nullptr;
            Loader::Settings settings;
            settings.stall = testing::no_stall;
            rank[i]->loader =
                std::make_unique<Loader>(store[i], rank[i]->staging, memory[i], rank[i]->counters, settings);
            auto peers = PeerReads::open(name, i, 3, rank[i]->staging);
            EXPECT_TRUE(peers);
            rank[i]->loader->share(std::move(*peers), {true});
            for (std::size_t chunk = 0; chunk < 8; ++chunk)
                store[i].set_value(rank[i]->key(chunk), rank[i]->object(chunk));
        }
    }
    ~RanksOnDevices() {
        for (std::uint32_t i = 0; i < 3; ++i) {
            rank[i]->loader->stop();
            store[i].close(std::chrono::seconds(1));
            rank[i]->loader.reset();
        }
    }
    void make_copies() {
        for (auto& each : rank) {
            std::vector<std::uint64_t> tickets;
            for (const DeviceCopy& copy : each->loader->take_copies()) tickets.push_back(copy.ticket);
            each->loader->copied(std::move(tickets));
            each->collect();
        }
    }
    testing::ScriptedStore store[3];
    WorkerMemory memory[3];
    std::unique_ptr<LoadFixture> rank[3];
};

TEST(LoadersOfOneHost, OnDevicesDoNotWaitForEachOthersStaging) {
    RanksOnDevices ranks;
    for (auto& each : ranks.store) each.hold(testing::of_kind(OpKind::get));
    for (auto& each : ranks.rank) each->load("a", 0, 8, 10);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // until each has begun all that it can
    const auto begin = steady_clock::now();
    for (auto& each : ranks.store) each.hold({});
    for (auto& each : ranks.store) each.release();
    EXPECT_TRUE(eventually([&] {
        ranks.make_copies();
        return std::all_of(std::begin(ranks.rank), std::end(ranks.rank),
                           [](const auto& each) { return each->all.requests.size() == 1; });
    }));
    for (auto& each : ranks.rank) EXPECT_TRUE(each->all.failed.empty());
    EXPECT_LT(steady_clock::now() - begin, 3 * limits::peer_read_wait);  // a wait for staging ends by itself only
}

}  // namespace
}  // namespace kvern
