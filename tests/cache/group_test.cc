// SPDX-License-Identifier: Apache-2.0
#include "cache/group.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace kvern {
namespace {

TEST(GroupPlan, FullAttentionNeedsAllAndKeepsAll) {
    const GroupPlan plan{GroupKind::full, 16, 256, 0};
    EXPECT_EQ(plan.trailing_blocks(), 0U);
    EXPECT_EQ(plan.trailing_chunks(), 0U);
    EXPECT_EQ(plan.pages(), 16U);
}

TEST(GroupPlan, AStateIsOneBlockAtTheBoundary) {
    const GroupPlan plan{GroupKind::state, 256, 512, 0};
    EXPECT_EQ(plan.trailing_blocks(), 1U);
    EXPECT_EQ(plan.trailing_chunks(), 1U);
    EXPECT_EQ(plan.pages(), 1U);
}

TEST(GroupPlan, AWindowNeedsTheBlocksThatTheNextTokenSees) {
    EXPECT_TRUE(
        rc::check("trailing_blocks covers exactly the tokens before the boundary that the token at it sees", [] {
            GroupPlan plan{GroupKind::window, 0, 0, 0};
            plan.block_tokens = *rc::gen::inRange(1u, 40u);
            plan.chunk_tokens = plan.block_tokens * *rc::gen::inRange(1u, 9u);
            plan.window_tokens = *rc::gen::inRange(2u, 400u);
            const std::uint32_t seen = plan.window_tokens - 1;  // the token at the boundary is in its own block
            RC_ASSERT(plan.trailing_blocks() * plan.block_tokens >= seen);
            RC_ASSERT((plan.trailing_blocks() - 1) * plan.block_tokens < seen);
            RC_ASSERT(plan.trailing_chunks() * plan.blocks_per_chunk() >= plan.trailing_blocks());
            RC_ASSERT((plan.trailing_chunks() - 1) * plan.blocks_per_chunk() < plan.trailing_blocks());
            RC_ASSERT(plan.pages() == std::min(plan.blocks_per_chunk(), plan.trailing_blocks()));
        }));
}

TEST(GroupKind, NamesAreRead) {
    for (const GroupKind kind : {GroupKind::full, GroupKind::window, GroupKind::state})
        EXPECT_EQ(group_kind(to_string(kind)), kind);
    EXPECT_FALSE(group_kind("ful"));
}

}  // namespace
}  // namespace kvern
