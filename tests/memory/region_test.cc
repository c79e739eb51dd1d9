// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <latch>
#include <thread>
#include <vector>

#include "kvern/limits.h"
#include "kvern/memory.h"

namespace kvern {
namespace {

constexpr std::size_t page = limits::page_bytes;
constexpr std::size_t mib = std::size_t{1} << 20;
using std::chrono::seconds;

std::shared_ptr<Region> make(std::size_t size_bytes, bool touch = true) {
    auto region = Region::create({.name = "test", .size_bytes = size_bytes, .touch_in_background = touch});
    if (!region) {
        ADD_FAILURE() << region.error().message;
        std::abort();
    }
    return *region;
}

TEST(Region, LeasesAreRoundedAlignedAndLowestFirst) {
    const auto region = make(mib);
    auto first = region->try_lease(1);
    auto second = region->try_lease(page + 1);
    ASSERT_TRUE(first && second);
    EXPECT_EQ(first->data(), region->base());
    EXPECT_EQ(first->size_bytes(), page);
    EXPECT_EQ(second->data(), region->base() + page);
    EXPECT_EQ(second->size_bytes(), 2 * page);
    EXPECT_EQ(first->region(), region.get());
    first.reset();
    EXPECT_EQ(region->try_lease(page)->data(), region->base());
}

TEST(Region, GivesNothingWhenNothingFits) {
    const auto region = make(4 * page);
    EXPECT_FALSE(region->try_lease(0));
    EXPECT_FALSE(region->try_lease(5 * page));
    EXPECT_FALSE(region->try_lease(~std::size_t{0}));
    const auto all = region->try_lease(4 * page);
    ASSERT_TRUE(all);
    EXPECT_FALSE(region->try_lease(1));
    EXPECT_EQ(region->stats().largest_free_bytes, 0U);
}

TEST(Region, RoundsItsSizeUpToPages) {
    EXPECT_EQ(make(page + 1)->size_bytes(), 2 * page);
}

TEST(Region, CountsWhatIsLeased) {
    const auto region = make(mib);
    {
        const auto lease = region->try_lease(10 * page);
        EXPECT_EQ(region->stats().leased_bytes, 10 * page);
        EXPECT_EQ(region->stats().largest_free_bytes, mib - 10 * page);
    }
    EXPECT_EQ(region->stats().leased_bytes, 0U);
    EXPECT_EQ(region->stats().largest_free_bytes, mib);
    EXPECT_EQ(region->stats().size_bytes, mib);
}

TEST(Lease, MovesOwnershipAndReturnsOnce) {
    const auto region = make(mib);
    auto lease = std::move(*region->try_lease(page));
    auto other = std::move(*region->try_lease(page));
    lease = std::move(other);  // the first is returned
    EXPECT_FALSE(other);       // NOLINT: what a move leaves is part of the contract
    EXPECT_EQ(lease.data(), region->base() + page);
    EXPECT_EQ(region->stats().leased_bytes, page);
    auto& same = lease;
    lease = std::move(same);
    EXPECT_TRUE(lease);
    lease.release();
    lease.release();
    EXPECT_FALSE(lease);
    EXPECT_EQ(region->stats().leased_bytes, 0U);
}

TEST(Lease, KeepsItsRegionAlive) {
    Lease lease;
    {
        const auto region = make(mib);
        lease = std::move(*region->try_lease(page));
    }
    std::memset(lease.data(), 1, page);
    EXPECT_NE(lease.region(), nullptr);
}

TEST(Quarantine, HoldsMemoryBackUntilItsEnd) {
    const auto region = make(4 * page);
    const auto id = region->quarantine(std::move(*region->try_lease(page)));
    EXPECT_EQ(region->stats().quarantined_bytes, page);
    EXPECT_EQ(region->stats().leased_bytes, 0U);
    EXPECT_EQ(region->try_lease(page)->data(), region->base() + page);
    region->release_expired(Region::TimePoint::max() - std::chrono::nanoseconds(1));
    EXPECT_EQ(region->stats().quarantined_bytes, page);
    region->end_quarantine(id + 1);  // unknown: nothing
    EXPECT_EQ(region->stats().quarantined_bytes, page);
    region->end_quarantine(id);
    region->end_quarantine(id);
    EXPECT_EQ(region->stats().quarantined_bytes, 0U);
    EXPECT_EQ(region->try_lease(page)->data(), region->base());
}

TEST(Quarantine, EndsAtItsTime) {
    const auto region = make(4 * page);
    const Region::TimePoint start(std::chrono::hours(1));
    region->quarantine(std::move(*region->try_lease(page)), start + seconds(10));
    region->quarantine(std::move(*region->try_lease(page)), start + seconds(20));
    region->release_expired(start + seconds(9));
    EXPECT_EQ(region->stats().quarantined_bytes, 2 * page);
    region->release_expired(start + seconds(10));
    EXPECT_EQ(region->stats().quarantined_bytes, page);
    region->release_expired(start + seconds(30));
    EXPECT_EQ(region->stats().quarantined_bytes, 0U);
    EXPECT_EQ(region->stats().largest_free_bytes, 4 * page);
}

TEST(Quarantine, StopsLoadsBeyondItsPartOfTheRegion) {
    const auto region = make(8 * page);
    EXPECT_TRUE(region->accepts_loads());
    region->quarantine(std::move(*region->try_lease(2 * page)));
    EXPECT_TRUE(region->accepts_loads());  // a quarter exactly
    const auto id = region->quarantine(std::move(*region->try_lease(page)));
    EXPECT_FALSE(region->accepts_loads());
    region->end_quarantine(id);
    EXPECT_TRUE(region->accepts_loads());
}

TEST(Quarantine, OfNothingIsNothing) {
    const auto region = make(page);
    EXPECT_EQ(region->quarantine(Lease()), 0U);
    EXPECT_EQ(region->stats().quarantined_bytes, 0U);
}

TEST(Quarantine, OutlivesTheRegionSoThatLateWritesHitNobody) {
    std::byte* base = nullptr;
    {
        const auto region = make(4 * page);
        base = region->base();
        region->quarantine(std::move(*region->try_lease(page)));
    }
    std::memset(base, 1, page);  // would crash if the addresses had been given up
    munmap(base, 4 * page);
}

TEST(Region, CanNeitherShrinkNorGrow) {
    const auto region = make(mib);
    EXPECT_NE(ftruncate(region->memfd(), 0), 0);
    EXPECT_EQ(errno, EPERM);
    EXPECT_NE(ftruncate(region->memfd(), 2 * mib), 0);
    const int seals = fcntl(region->memfd(), F_GET_SEALS);
    EXPECT_EQ(seals, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    EXPECT_NE(fcntl(region->memfd(), F_ADD_SEALS, F_SEAL_WRITE), 0);
}

TEST(Region, IsSharedThroughItsDescriptor) {
    const auto region = make(mib);
    const auto lease = region->try_lease(page);
    void* other = mmap(nullptr, mib, PROT_READ, MAP_SHARED, region->memfd(), 0);
    ASSERT_NE(other, MAP_FAILED);
    std::memcpy(lease->data(), "hello", 5);
    EXPECT_EQ(std::memcmp(other, "hello", 5), 0);
    munmap(other, mib);
}

TEST(Touch, EndsAndKeepsBytesThatAreAlreadyThere) {
    const auto region = make(64 * mib);
    const auto lease = region->try_lease(64 * mib);
    for (std::size_t i = 0; i < 64 * mib; i += page) lease->data()[i] = std::byte{0x5A};  // races with the touch
    EXPECT_TRUE(region->wait_touched(seconds(60)));
    EXPECT_TRUE(region->touched());
    for (std::size_t i = 0; i < 64 * mib; i += page) ASSERT_EQ(lease->data()[i], std::byte{0x5A});
}

TEST(Touch, SuppliesEveryPage) {
    const auto region = make(16 * mib);
    ASSERT_TRUE(region->wait_touched(seconds(60)));
    std::vector<unsigned char> resident(16 * mib / page);
    ASSERT_EQ(mincore(region->base(), 16 * mib, resident.data()), 0);
    for (const auto one : resident) EXPECT_EQ(one & 1, 1);
}

TEST(Touch, StopsWhenTheRegionEnds) {
    const auto started = std::chrono::steady_clock::now();
    for (int i = 0; i < 5; ++i) make(512 * mib);
    EXPECT_LT(std::chrono::steady_clock::now() - started, seconds(20));
}

TEST(Touch, DoesNotHappenUnasked) {
    const auto region = make(mib, false);
    EXPECT_FALSE(region->wait_touched(seconds(0)));
    EXPECT_FALSE(region->wait_touched(std::chrono::milliseconds::max()));
    EXPECT_FALSE(region->touched());
}

TEST(Region, RefusesImpossibleSizesWithARemedy) {
    const auto none = Region::create({.name = "empty", .size_bytes = 0});
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(none.error().message.find("'empty'"), std::string::npos);
    const auto huge = Region::create({.name = "huge", .size_bytes = std::size_t{1} << 50});
    ASSERT_FALSE(huge);
    EXPECT_EQ(huge.error().code, ErrorCode::resource);
    EXPECT_NE(huge.error().message.find("choose a smaller size"), std::string::npos);
}

TEST(HugePages, AreParsed) {
    EXPECT_EQ(parse_hugepages("off").value(), HugePages::off);
    EXPECT_EQ(parse_hugepages("try").value(), HugePages::attempt);
    EXPECT_EQ(parse_hugepages("require").value(), HugePages::require);
    const auto wrong = parse_hugepages("of");
    ASSERT_FALSE(wrong);
    EXPECT_NE(wrong.error().message.find("'off'"), std::string::npos) << wrong.error().message;
}

TEST(HugePages, RequiredAndMissingIsAnErrorWithARemedy) {
    const auto region = Region::create({.name = "huge", .size_bytes = 8 * mib, .hugepages = HugePages::require});
    if (region) {
        EXPECT_EQ((*region)->stats().pages, "2 MiB (hugetlb)");
        std::memset((*region)->base(), 1, mib);
        return;
    }
    EXPECT_EQ(region.error().code, ErrorCode::resource);
    EXPECT_NE(region.error().message.find("vm.nr_hugepages"), std::string::npos) << region.error().message;
}

TEST(HugePages, TriedSaysWhatWasGot) {
    const auto region = Region::create({.name = "try", .size_bytes = 3 * mib, .hugepages = HugePages::attempt});
    ASSERT_TRUE(region) << region.error().message;
    EXPECT_EQ((*region)->size_bytes(), 4 * mib);
    std::ifstream file("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
    std::string line;
    std::getline(file, line);
    const auto pages = (*region)->stats().pages;
    if (line.find("[never]") != std::string::npos) {
        EXPECT_NE(pages.find("4 KiB"), std::string::npos) << pages;
        EXPECT_NE(pages.find("never"), std::string::npos) << pages;
    } else {
        EXPECT_FALSE(pages.empty());
    }
    EXPECT_EQ(make(mib)->stats().pages, "4 KiB");
}

TEST(Region, IsThreadSafe) {
    const auto region = make(4 * mib);
    constexpr int thread_count = 4;
    std::latch start(thread_count);
    std::vector<std::thread> threads;
    for (int t = 0; t < thread_count; ++t) {
        threads.emplace_back([&, t] {
            start.arrive_and_wait();
            std::vector<Lease> leases;
            for (int i = 0; i < 3000; ++i) {
                if (auto lease = region->try_lease(static_cast<std::size_t>(1 + (i * 7 + t) % 9) * page)) {
                    std::memset(lease->data(), t + 1, lease->size_bytes());
                    leases.push_back(std::move(*lease));
                }
                if (leases.size() < 20 && i % 3 != 0) continue;
                if (leases.empty()) continue;
                auto lease = std::move(leases[static_cast<std::size_t>(i) % leases.size()]);
                std::swap(leases[static_cast<std::size_t>(i) % leases.size()], leases.back());
                leases.pop_back();
                if (!lease) continue;
                EXPECT_EQ(lease.data()[0], static_cast<std::byte>(t + 1));
                EXPECT_EQ(lease.data()[lease.size_bytes() - 1], static_cast<std::byte>(t + 1));
                if (i % 50 == 0) region->end_quarantine(region->quarantine(std::move(lease)));
            }
        });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(region->stats().leased_bytes, 0U);
    EXPECT_EQ(region->stats().largest_free_bytes, 4 * mib);
}

}  // namespace
}  // namespace kvern
