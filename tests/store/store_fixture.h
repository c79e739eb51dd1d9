// SPDX-License-Identifier: Apache-2.0
// What the store tests share: unique folders, page-aligned memory with a known pattern, short forms of the operations.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "kvern/limits.h"
#include "kvern/store.h"
#include "store/uring_reader.h"

namespace kvern::testing {

// A folder of its own below $TMPDIR or /tmp (or `base`), removed at the end.
class TempFolder {
  public:
    explicit TempFolder(const std::string& base = std::getenv("TMPDIR") ? std::getenv("TMPDIR") : "/tmp") {
        auto text = base + "/kvern-store-test-XXXXXX";
        if (mkdtemp(text.data()) == nullptr) ADD_FAILURE() << "mkdtemp " << text;
        path_ = text;
    }
    ~TempFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    TempFolder(const TempFolder&) = delete;
    TempFolder& operator=(const TempFolder&) = delete;
    const std::string& path() const { return path_; }

  private:
    std::string path_;
};

// Page-aligned memory. `lead` shifts the start, to get an unaligned buffer.
class Memory {
  public:
    // Where Memory comes from, if it is not to be the heap's: a region that the store was given.
    static std::shared_ptr<Region>& source() {
        static std::shared_ptr<Region> region;
        return region;
    }

    explicit Memory(std::size_t size_bytes, std::size_t lead = 0) : size_bytes_(size_bytes), lead_(lead) {
        const auto whole =
            (lead + size_bytes + guard_bytes + limits::page_bytes) / limits::page_bytes * limits::page_bytes;
        if (auto lease = source() ? source()->try_lease(whole) : std::nullopt) {
            start_ = {lease->data(), [](std::byte*) {}};
            lease_ = std::move(*lease);
        } else {
            start_ = {static_cast<std::byte*>(std::aligned_alloc(limits::page_bytes, whole)),
                      [](std::byte* memory) { std::free(memory); }};
        }
        std::memset(start_.get(), guard, lead + size_bytes + guard_bytes);
    }
    std::byte* data() const { return start_.get() + lead_; }
    std::size_t size_bytes() const { return size_bytes_; }
    Buffer buffer() const { return {data(), size_bytes_}; }
    Buffer part(std::size_t offset, std::size_t size_bytes) const { return {data() + offset, size_bytes}; }
    std::string text() const { return {reinterpret_cast<const char*>(data()), size_bytes_}; }
    // Whether nothing was written before or behind.
    bool guards_intact() const {
        const auto* bytes = reinterpret_cast<const unsigned char*>(start_.get());
        for (std::size_t i = 0; i < lead_; ++i) {
            if (bytes[i] != guard) return false;
        }
        for (std::size_t i = 0; i < guard_bytes; ++i) {
            if (bytes[lead_ + size_bytes_ + i] != guard) return false;
        }
        return true;
    }
    void fill(std::uint64_t seed) const {
        std::mt19937_64 random(seed);
        std::size_t i = 0;
        for (; i + 8 <= size_bytes_; i += 8) {
            const auto word = random();
            std::memcpy(data() + i, &word, 8);
        }
        for (; i < size_bytes_; ++i) data()[i] = static_cast<std::byte>(random());
    }

  private:
    static constexpr unsigned char guard = 0xA5;
    static constexpr std::size_t guard_bytes = 64;
    Lease lease_;
    std::unique_ptr<std::byte, void (*)(std::byte*)> start_{nullptr, [](std::byte*) {}};
    std::size_t size_bytes_;
    std::size_t lead_;
};

inline Memory filled(std::size_t size_bytes, std::uint64_t seed, std::size_t lead = 0) {
    Memory memory(size_bytes, lead);
    memory.fill(seed);
    return memory;
}

inline Op put_op(std::string key, const Memory& memory, Condition condition = Condition::any) {
    Op op;
    op.kind = OpKind::put;
    op.key = std::move(key);
    op.buffers = {memory.buffer()};
    op.condition = condition;
    return op;
}

inline Op get_op(std::string key, std::vector<Buffer> buffers, std::uint64_t offset = 0,
                 std::uint64_t length = whole_value) {
    Op op;
    op.kind = OpKind::get;
    op.key = std::move(key);
    op.buffers = std::move(buffers);
    op.offset = offset;
    op.length = length;
    return op;
}

inline Op plain_op(OpKind kind, std::string key = {}) {
    Op op;
    op.kind = kind;
    op.key = std::move(key);
    return op;
}

// A stat or get that asks for the metadata too.
inline Op with_metadata(Op op) {
    op.with_metadata = true;
    return op;
}

inline Op upload_op(OpKind kind, std::uint64_t upload, std::vector<Buffer> buffers = {}) {
    Op op;
    op.kind = kind;
    op.upload = upload;
    op.buffers = std::move(buffers);
    return op;
}

// Why a store with these parameters can't be tested here, or nothing: io=uring is forbidden in many containers.
inline std::string untestable_why(std::string_view uri) {
    return uri.find("io=uring") == std::string_view::npos ? std::string() : UringReader::unusable_why();
}

inline std::unique_ptr<Store> open_or_fail(const std::string& uri) {
    auto store = open_store(uri);
    if (!store) {
        ADD_FAILURE() << uri << ": " << store.error().message;
        std::abort();
    }
    return std::move(*store);
}

// All completions of `count` operations, by tag.
inline std::vector<Completion> collect(CompletionQueue& queue, std::size_t count) {
    std::vector<Completion> all;
    while (all.size() < count) {
        if (!queue.wait(std::chrono::seconds(60))) {
            ADD_FAILURE() << "only " << all.size() << " of " << count << " completions came";
            break;
        }
        for (auto& completion : queue.drain()) all.push_back(std::move(completion));
    }
    return all;
}

// The seed of this run: KVERN_TEST_SEED, or another each time; printed.
inline std::uint64_t test_seed() {
    static const std::uint64_t seed = [] {
        const char* given = std::getenv("KVERN_TEST_SEED");
        const std::uint64_t value = given != nullptr ? std::stoull(given) : std::random_device{}();
        printf("KVERN_TEST_SEED=%llu\n", static_cast<unsigned long long>(value));
        return value;
    }();
    return seed;
}

#define EXPECT_OK(op, outcome) EXPECT_EQ((outcome).status, ::kvern::Status::ok) << ::kvern::explain(op, outcome)
#define ASSERT_OK(op, outcome) ASSERT_EQ((outcome).status, ::kvern::Status::ok) << ::kvern::explain(op, outcome)
#define EXPECT_FAILED(expression, expected)                                             \
    do {                                                                                \
        const auto failed_outcome = (expression);                                       \
        EXPECT_EQ(failed_outcome.status, ::kvern::Status::failed);                      \
        EXPECT_EQ(failed_outcome.error.code, expected) << failed_outcome.error.message; \
    } while (false)

}  // namespace kvern::testing
