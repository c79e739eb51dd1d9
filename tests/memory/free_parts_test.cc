// SPDX-License-Identifier: Apache-2.0
#include "memory/free_parts.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <map>
#include <random>

namespace kvern {
namespace {

// The same by a sorted map and a linear search.
class Model {
  public:
    explicit Model(std::size_t size) { parts_[0] = size; }
    std::optional<std::size_t> take(std::size_t size) {
        for (auto it = parts_.begin(); it != parts_.end(); ++it) {
            if (it->second < size) continue;
            const auto [offset, whole] = *it;
            parts_.erase(it);
            if (whole > size) parts_[offset + size] = whole - size;
            return offset;
        }
        return std::nullopt;
    }
    void give_back(std::size_t offset, std::size_t size) {
        auto it = parts_.emplace(offset, size).first;
        if (auto next = std::next(it); next != parts_.end() && it->first + it->second == next->first) {
            it->second += next->second;
            parts_.erase(next);
        }
        if (it != parts_.begin()) {
            auto before = std::prev(it);
            if (before->first + before->second == it->first) {
                before->second += it->second;
                parts_.erase(it);
            }
        }
    }
    std::size_t largest() const {
        std::size_t result = 0;
        for (const auto& [offset, size] : parts_) result = std::max(result, size);
        return result;
    }

  private:
    std::map<std::size_t, std::size_t> parts_;
};

TEST(FreeParts, TakesTheLowestThatFits) {
    FreeParts parts(100);
    EXPECT_EQ(parts.take(10), 0U);
    EXPECT_EQ(parts.take(20), 10U);
    EXPECT_EQ(parts.take(30), 30U);
    parts.give_back(0, 10);
    parts.give_back(30, 30);
    EXPECT_EQ(parts.take(15), 30U);
    EXPECT_EQ(parts.take(10), 0U);
}

TEST(FreeParts, TakesAllAndNoMore) {
    FreeParts parts(100);
    EXPECT_EQ(parts.take(101), std::nullopt);
    EXPECT_EQ(parts.take(0), std::nullopt);
    EXPECT_EQ(parts.take(100), 0U);
    EXPECT_EQ(parts.take(1), std::nullopt);
    EXPECT_EQ(parts.largest_bytes(), 0U);
    parts.give_back(0, 100);
    EXPECT_EQ(parts.largest_bytes(), 100U);
}

TEST(FreeParts, JoinsNeighboursInAnyOrderOfReturn) {
    EXPECT_TRUE(rc::check([] {
        FreeParts parts(64);
        std::vector<std::size_t> offsets;
        for (int i = 0; i < 64; ++i) offsets.push_back(*parts.take(1));
        std::shuffle(offsets.begin(), offsets.end(), std::mt19937_64(*rc::gen::arbitrary<unsigned>()));
        for (const auto offset : offsets) parts.give_back(offset, 1);
        RC_ASSERT(parts.largest_bytes() == 64U);
        RC_ASSERT(parts.take(64) == std::optional<std::size_t>(0));
    }));
}

TEST(FreeParts, BehavesAsALinearSearchDoes) {
    EXPECT_TRUE(rc::check([] {
        constexpr std::size_t size = 5000;
        FreeParts parts(size);
        Model model(size);
        std::vector<std::pair<std::size_t, std::size_t>> taken;
        const auto steps = *rc::gen::container<std::vector<unsigned>>(400, rc::gen::arbitrary<unsigned>());
        for (const auto step : steps) {
            if (step % 5 < 3 || taken.empty()) {
                const auto wanted = 1 + step / 5 % 120;
                const auto offset = parts.take(wanted);
                RC_ASSERT(offset == model.take(wanted));
                if (offset) taken.emplace_back(*offset, wanted);
            } else {
                std::swap(taken[step / 5 % taken.size()], taken.back());
                const auto [offset, part] = taken.back();
                taken.pop_back();
                parts.give_back(offset, part);
                model.give_back(offset, part);
            }
            RC_ASSERT(parts.largest_bytes() == model.largest());
        }
    }));
}

}  // namespace
}  // namespace kvern
