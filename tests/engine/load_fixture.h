// SPDX-License-Identifier: Apache-2.0
// A Loader over a scripted store, for the tests of loads.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/text.h"
#include "engine/kv_memory.h"
#include "engine/loader.h"

namespace kvern::testing {

inline constexpr std::chrono::milliseconds short_stall{60}, no_stall{600 * 1000};

// Chunk n of every test lies in the store as the content of blocks 2n and 2n + 1 of an engine that had them in order.
class LoadFixture {
  public:
    explicit LoadFixture(std::size_t staging_objects = 16, std::chrono::milliseconds stall = no_stall,
                         bool may_write = true) {
        RegionOptions options;
        options.size_bytes = staging_objects * object_bytes();
        staging = Region::create(options).value();
        Loader::Settings settings;
        settings.stall = stall;
        settings.may_write = may_write;
        loader = std::make_unique<Loader>(store, staging, kv.worker(), counters, settings);
    }
    ~LoadFixture() { end(); }
    void end() {
        if (!loader) return;
        loader->stop();
        store.close(std::chrono::seconds(1));
        loader.reset();
    }

    std::size_t object_bytes() const { return kv.group().object_layout().object_bytes; }
    std::string key(std::size_t chunk) const {
        return object_key(to_hex(name_space), {hash_of(chunk), 0}, 0, kv.group().shard.text());
    }
    OpFilter of(OpKind kind, std::size_t chunk) const {
        return [kind, key = key(chunk)](const Op& op) { return op.kind == kind && op.key == key; };
    }
    std::string object(std::size_t chunk) const {
        const auto first = static_cast<std::int32_t>(2 * chunk);
        return source.object(hash_of(chunk), {first, first + 1}, name_space);
    }
    void put(std::size_t chunks) {
        for (std::size_t i = 0; i < chunks; ++i) store.set_value(key(i), object(i));
    }
    void damage(std::size_t chunk, std::size_t at) {
        std::string bytes = store.values()[key(chunk)];
        bytes[at] = static_cast<char>(bytes[at] ^ 1);
        store.set_value(key(chunk), bytes);
    }

    // A load of chunks [from, to) into the blocks from `block` on.
    LoadJob job(const std::string& request, std::size_t from, std::size_t to, std::int32_t block) const {
        LoadJob made;
        made.request = request;
        for (std::size_t chunk = from; chunk < to; ++chunk, block += 2)
            made.chunks.push_back({0, {hash_of(chunk), 0}, {block, block + 1}});
        return made;
    }
    void load(const std::string& request, std::size_t from, std::size_t to, std::int32_t block) {
        loader->submit({job(request, from, to, block)}, name_space);
    }

    // Waits for the reports of so many loads (all together since the start) and returns all that was reported.
    FinishedLoads reported(std::size_t loads) {
        EXPECT_TRUE(eventually([&] {
            collect();
            return all.requests.size() >= loads;
        })) << "only "
            << all.requests.size() << " of " << loads << " loads were reported";
        EXPECT_EQ(all.requests.size(), loads);
        return all;
    }
    void collect() {
        FinishedLoads more = loader->take_finished();
        all.requests.insert(all.requests.end(), more.requests.begin(), more.requests.end());
        all.bad_blocks.insert(all.bad_blocks.end(), more.bad_blocks.begin(), more.bad_blocks.end());
        all.failed.insert(all.failed.end(), more.failed.begin(), more.failed.end());
        all.troubled.insert(all.troubled.end(), more.troubled.begin(), more.troubled.end());
    }
    // Whether the blocks from `block` on hold chunks [from, to).
    bool holds(std::size_t from, std::size_t to, std::uint32_t block) const {
        for (std::size_t content = 2 * from; content < 2 * to; ++content, ++block)
            if (!kv.holds(block, content)) return false;
        return true;
    }
    void scrub() {
        for (std::uint32_t block = 0; block < kv.worker().num_blocks; ++block) kv.fill(block, 1000 + block);
    }
    bool untouched(std::uint32_t from, std::uint32_t to) const {
        for (std::uint32_t block = from; block < to; ++block)
            if (!kv.holds(block, 1000 + block)) return false;
        return true;
    }
    std::uint64_t failures(LoadFailure reason) const { return counters.failed_loads[static_cast<std::size_t>(reason)]; }

    const KvMemory source;
    KvMemory kv;
    ScriptedStore store;
    WorkerCounters counters;
    Digest name_space = namespace_of("{}");
    std::shared_ptr<Region> staging;
    std::unique_ptr<Loader> loader;
    FinishedLoads all;
};

inline std::vector<std::int32_t> range(std::int32_t from, std::int32_t to) {
    std::vector<std::int32_t> list;
    for (; from < to; ++from) list.push_back(from);
    return list;
}

}  // namespace kvern::testing
