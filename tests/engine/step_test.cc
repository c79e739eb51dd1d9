// SPDX-License-Identifier: Apache-2.0
#include "engine/step.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace kvern {
namespace {

std::string random_bytes(std::size_t from, std::size_t to) {
    const auto size = *rc::gen::inRange<std::size_t>(from, to);
    return *rc::gen::container<std::string>(size, rc::gen::arbitrary<char>());
}

ChunkBlocks random_chunk() {
    return {*rc::gen::arbitrary<std::uint32_t>(),
            {ChunkHash(random_bytes(1, limits::hash_bytes_max + 1)), *rc::gen::arbitrary<std::uint64_t>()},
            *rc::gen::arbitrary<std::vector<std::int32_t>>()};
}

Step random_step() {
    Step step;
    step.sequence = *rc::gen::arbitrary<std::uint64_t>();
    for (auto& byte : step.name_space) byte = *rc::gen::arbitrary<std::uint8_t>();
    step.ended = *rc::gen::arbitrary<std::vector<std::uint64_t>>();
    for (int loads = *rc::gen::inRange(0, 4); loads > 0; --loads) {
        LoadJob& load = step.loads.emplace_back();
        load.request = random_bytes(0, 20);
        load.refused = *rc::gen::arbitrary<bool>();
        load.whole = *rc::gen::arbitrary<bool>();
        for (int chunks = *rc::gen::inRange(0, 4); chunks > 0; --chunks) load.chunks.push_back(random_chunk());
    }
    for (int stores = *rc::gen::inRange(0, 4); stores > 0; --stores)
        step.stores.push_back({*rc::gen::arbitrary<std::uint64_t>(), random_chunk(), *rc::gen::arbitrary<bool>()});
    return step;
}

bool same(const ChunkBlocks& a, const ChunkBlocks& b) {
    return a.group == b.group && a.chunk == b.chunk && a.blocks == b.blocks;
}

bool same(const Step& a, const Step& b) {
    if (a.sequence != b.sequence || a.name_space != b.name_space || a.ended != b.ended ||
        a.loads.size() != b.loads.size() || a.stores.size() != b.stores.size())
        return false;
    for (std::size_t i = 0; i < a.loads.size(); ++i) {
        const LoadJob &x = a.loads[i], &y = b.loads[i];
        if (x.request != y.request || x.refused != y.refused || x.whole != y.whole ||
            x.chunks.size() != y.chunks.size())
            return false;
        for (std::size_t j = 0; j < x.chunks.size(); ++j)
            if (!same(x.chunks[j], y.chunks[j])) return false;
    }
    for (std::size_t i = 0; i < a.stores.size(); ++i)
        if (a.stores[i].incarnation != b.stores[i].incarnation || a.stores[i].fleeting != b.stores[i].fleeting ||
            !same(a.stores[i].object, b.stores[i].object))
            return false;
    return true;
}

TEST(Step, RoundTrip) {
    EXPECT_TRUE(rc::check("decode(encode(x)) == x", [] {
        const Step step = random_step();
        const auto decoded = Step::decode(step.encode());
        RC_ASSERT(decoded.has_value());
        RC_ASSERT(same(*decoded, step));
        RC_ASSERT(decoded->idle() == (step.ended.empty() && step.loads.empty() && step.stores.empty()));
    }));
}

TEST(Step, EveryTruncationIsRefused) {
    EXPECT_TRUE(rc::check("decode(prefix of encode(x)) is refused", [] {
        const std::string bytes = random_step().encode();
        for (std::size_t size = 0; size < bytes.size(); ++size)
            RC_ASSERT(!Step::decode(std::string(bytes, 0, size)));  // a copy: a sanitizer sees what is read beyond it
        RC_ASSERT(!Step::decode(bytes + '\0'));
    }));
}

// No checksum guards it (it goes between processes of one engine): a changed number is another number. But nothing is
// read beyond the end, no count is believed that the bytes can't hold, and what decodes is well-formed.
TEST(Step, CorruptionIsRefusedOrDecodesToAnotherWellFormedStep) {
    EXPECT_TRUE(rc::check("decode(corrupt(x)) is refused or encodes to what decodes the same", [] {
        std::string bytes = random_step().encode();
        for (int flips = *rc::gen::inRange(1, 5); flips > 0; --flips)
            bytes[*rc::gen::inRange<std::size_t>(0, bytes.size())] = *rc::gen::arbitrary<char>();
        const auto decoded = Step::decode(bytes);
        if (!decoded) return;
        const auto again = Step::decode(decoded->encode());
        RC_ASSERT(again.has_value());
        RC_ASSERT(same(*again, *decoded));
        for (const auto& load : decoded->loads)
            for (const auto& chunk : load.chunks) RC_ASSERT(ChunkHash::valid(chunk.chunk.hash.bytes()));
    }));
    EXPECT_TRUE(rc::check("decode(anything) is refused", [] {
        RC_ASSERT(!Step::decode(random_bytes(0, 300)));
        RC_ASSERT(!Step::decode("KVP2" + std::string(200, '\xff')));
    }));
}

TEST(Step, ErrorsSayWhichKind) {
    EXPECT_EQ(Step::decode("").error().message, "step metadata: no magic at its start");
    EXPECT_EQ(Step::decode(std::string("KVP2")).error().message, "step metadata: its length does not fit its content");
}

}  // namespace
}  // namespace kvern
