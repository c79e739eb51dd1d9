// SPDX-License-Identifier: Apache-2.0
// Transfers straight into regions: what is named to whom, and every way in which a server can fail to keep its word.
#include "store/fake_s3.h"

namespace kvern::testing {
namespace {

using std::chrono::milliseconds;
using Tokens = FakeS3::Tokens;
constexpr std::size_t mib = std::size_t{1} << 20;

bool eventually(const std::function<bool()>& holds) {
    for (int i = 0; i < 3000; ++i) {
        if (holds()) return true;
        std::this_thread::sleep_for(milliseconds(1));
    }
    return false;
}

class S3Windows : public ::testing::Test {
  protected:
    void SetUp() override {
        s3_.kvern = true;
        s3_.windows = host_.get();
        RegionOptions memory;
        memory.size_bytes = 64 * mib;
        memory.touch_in_background = false;
        region_ = *Region::create(memory);
        open("&rdma=local");
    }
    void open(const std::string& more) {
        store_ = open_s3(s3_.uri("&connect_timeout=2s&timeout=5s" + more), keys_environment(), clock_);
        store_->attach(region_);
        Memory::source() = region_;
    }
    void TearDown() override {
        EXPECT_TRUE(store_->close(std::chrono::seconds(20)));
        Memory::source().reset();
        EXPECT_EQ(s3_.wrong_signature(), "") << "the token is signed like everything else";
    }
    Outcome put(const std::string& key, const Memory& memory, Condition condition = Condition::any) {
        return run(*store_, put_op(key, memory, condition));
    }
    Outcome get(const std::string& key, const Memory& memory) { return run(*store_, get_op(key, {memory.buffer()})); }
    bool straight() const { return store_->describe().find("straight into memory") != std::string::npos; }

    FakeClock clock_;
    std::unique_ptr<fabric::LocalHost> host_ = *fabric::LocalHost::listen("");
    FakeS3 s3_;
    std::shared_ptr<Region> region_;
    std::unique_ptr<Store> store_;
};

TEST_F(S3Windows, MoveBytesWithoutBodies) {
    for (const std::size_t size : {std::size_t{1}, std::size_t{4096}, 3 * mib + 5}) {
        SCOPED_TRACE(size);
        const auto value = filled(size, size);
        const auto stored = put("k", value);
        ASSERT_EQ(stored.status, Status::ok) << stored.error.message;
        EXPECT_EQ(s3_.objects()["p/k"].bytes, value.text());
        const Memory back(size);
        const auto got = get("k", back);
        ASSERT_EQ(got.status, Status::ok) << got.error.message;
        EXPECT_EQ(got.bytes, size);
        EXPECT_EQ(got.stat.size_bytes, size);
        EXPECT_EQ(back.text(), value.text());
        EXPECT_TRUE(back.guards_intact());
    }
    EXPECT_TRUE(straight());
    EXPECT_EQ(host_->stats().windows, 1U) << "handed over once";
    EXPECT_EQ(s3_.count("GET /bucket?kvern-fabric"), 1U);
}

TEST_F(S3Windows, RangesAndWholeValuesIntoLargerBuffers) {
    const auto value = filled(100000, 1);
    ASSERT_EQ(put("k", value).status, Status::ok);
    const Memory back(200000);
    auto part = get_op("k", {back.part(10, 1000)}, 500, 1000);
    ASSERT_OK(part, run(*store_, part));
    EXPECT_EQ(back.text().substr(10, 1000), value.text().substr(500, 1000));
    const auto whole = get("k", back);
    ASSERT_EQ(whole.status, Status::ok) << whole.error.message;
    EXPECT_EQ(whole.bytes, 100000U);
    EXPECT_EQ(back.text().substr(0, 100000), value.text());
    const Memory small(10);
    const auto none = get("k", small);
    EXPECT_EQ(none.status, Status::failed);
    EXPECT_TRUE(small.guards_intact());
}

TEST_F(S3Windows, MemoryOfNobodyAndInPiecesGoesOverHttp) {
    const auto value = filled(10000, 1);
    ASSERT_EQ(put("k", value).status, Status::ok);
    const Memory first(5000), second(5000);
    auto op = get_op("k", {first.buffer(), second.buffer()});
    ASSERT_OK(op, run(*store_, op));
    EXPECT_EQ(first.text() + second.text(), value.text());
    Memory::source().reset();
    const Memory heap(10000);
    ASSERT_EQ(get("k", heap).status, Status::ok);
    EXPECT_EQ(heap.text(), value.text());
}

TEST_F(S3Windows, AreAskedForOnlyWhereTheyAreOffered) {
    s3_.windows = nullptr;
    open("&rdma=auto");
    const auto value = filled(1000, 1);
    ASSERT_EQ(put("k", value).status, Status::ok);
    ASSERT_EQ(put("k", value).status, Status::ok);
    EXPECT_EQ(s3_.count("GET /bucket?kvern-fabric"), 0U);
    s3_.windows = host_.get();
    ASSERT_EQ(put("k", value).status, Status::ok);  // its answer offers them
    ASSERT_EQ(put("k", value).status, Status::ok);
    EXPECT_TRUE(straight());
    open("&rdma=off");
    ASSERT_EQ(put("k", value).status, Status::ok);
    ASSERT_EQ(put("k", value).status, Status::ok);
    EXPECT_FALSE(straight());
}

TEST_F(S3Windows, ADeclinedPutIsSentWithItsBodyAndADeclinedGetHasOne) {
    const auto value = filled(50000, 1);
    ASSERT_EQ(put("k", value).status, Status::ok);
    s3_.tokens = Tokens::declined;
    const Memory back(50000);
    ASSERT_EQ(get("k", back).status, Status::ok);
    EXPECT_EQ(back.text(), value.text());
    EXPECT_FALSE(straight()) << "and it is left alone for a while";
    open("&rdma=local");
    ASSERT_EQ(put("other", value).status, Status::ok);
    EXPECT_EQ(s3_.objects()["p/other"].bytes, value.text());
    s3_.forget_requests();
    ASSERT_EQ(put("other", value).status, Status::ok);
    EXPECT_EQ(s3_.count("PUT"), 1U);
}

// The trap of the empty object: a server that knows no tokens stores nothing and says 200.
TEST_F(S3Windows, AServerThatIgnoresTokensNeverKeepsAnEmptyObject) {
    const auto value = filled(50000, 1);
    for (const auto how : {Tokens::blind, Tokens::blind_and_unsummed}) {
        open("&rdma=local");
        s3_.tokens = how;
        for (const auto condition : {Condition::any, Condition::absent}) {
            const auto key = "k" + std::to_string(static_cast<int>(how)) + std::to_string(static_cast<int>(condition));
            const auto stored = put(key, value, condition);
            ASSERT_EQ(stored.status, Status::ok) << stored.error.message;
            EXPECT_EQ(s3_.objects()["p/" + key].bytes, value.text());
            const Memory back(50000);
            ASSERT_EQ(get(key, back).status, Status::ok);
            EXPECT_EQ(back.text(), value.text());
        }
        EXPECT_FALSE(straight());
    }
}

TEST_F(S3Windows, BytesThatDidNotMoveAreNeverASuccess) {
    const auto value = filled(50000, 1);
    ASSERT_EQ(put("k", value).status, Status::ok);
    s3_.tokens = Tokens::claims;
    const Memory back(50000);
    const auto got = get("k", back);
    EXPECT_FAILED(got, ErrorCode::corrupt);
    s3_.tokens = Tokens::cuts_short;
    EXPECT_EQ(get("k", back).status, Status::failed);
    const auto stored = put("short", value);
    ASSERT_EQ(stored.status, Status::ok) << stored.error.message;
    EXPECT_EQ(s3_.objects()["p/short"].bytes, value.text()) << "sent again, over HTTP";
}

TEST_F(S3Windows, MissesAndRefusalsAreWhatTheyAreWithoutTokens) {
    const Memory back(1000);
    EXPECT_EQ(get("never", back).status, Status::miss);
    const auto value = filled(1000, 1);
    ASSERT_EQ(put("k", value).status, Status::ok);
    const auto again = put("k", value, Condition::absent);
    EXPECT_FAILED(again, ErrorCode::precondition);
    s3_.fault({.method = "GET", .times = 1, .status = 403, .code = "AccessDenied"});
    EXPECT_FAILED(get("k", back), ErrorCode::permission);
    s3_.fault({.method = "GET", .times = 1});  // SlowDown, once: tried again
    EXPECT_EQ(get("k", back).status, Status::ok);
    EXPECT_TRUE(straight());
}

// Until the server can't write any more, the operation has not ended, and its buffers belong to nobody else.
TEST_F(S3Windows, ATransferWithoutAnAnswerEndsOnlyWhenNothingCanArriveLate) {
    const auto value = filled(50000, 1);
    ASSERT_EQ(put("k", value).status, Status::ok);
    s3_.tokens = Tokens::never_answers;
    s3_.forget_requests();
    const Memory back(50000);
    CompletionQueue queue;
    auto op = get_op("k", {back.buffer()});
    store_->submit({&op, 1}, queue);
    EXPECT_FALSE(queue.wait(milliseconds(1000))) << "the server still has the window";
    EXPECT_EQ(s3_.count("GET /bucket/p/k"), 1U) << "and is not asked twice for the same memory";
    host_.reset();  // it dies
    ASSERT_TRUE(queue.wait(milliseconds(3000)));
    EXPECT_EQ(queue.drain().front().outcome.status, Status::failed);
    s3_.windows = nullptr;
    s3_.tokens = Tokens::honest;
    ASSERT_EQ(get("k", back).status, Status::ok);
    EXPECT_EQ(back.text(), value.text());
}

// Another request's trouble ends the way, not the danger.
TEST_F(S3Windows, ATransferWithoutAnAnswerOutlivesTheWayThatItTook) {
    const auto value = filled(50000, 1);
    ASSERT_EQ(put("k", value).status, Status::ok);
    s3_.tokens = Tokens::never_answers;
    const Memory back(50000), other(50000);
    CompletionQueue queue;
    auto op = get_op("k", {back.buffer()});
    store_->submit({&op, 1}, queue);
    ASSERT_TRUE(eventually([&] { return s3_.count("GET /bucket/p/k") == 1; }));
    s3_.tokens = Tokens::declined;
    ASSERT_EQ(get("k", other).status, Status::ok) << "with its body";
    EXPECT_FALSE(straight());
    EXPECT_FALSE(queue.wait(milliseconds(500)));
    host_.reset();
    ASSERT_TRUE(queue.wait(milliseconds(3000)));
    EXPECT_EQ(queue.drain().front().outcome.status, Status::failed);
}

TEST_F(S3Windows, AStoreIsNotClosedWhileAServerMayStillWrite) {
    auto own = open_s3(s3_.uri("&connect_timeout=2s&timeout=5s&rdma=local"), keys_environment(), clock_);
    own->attach(region_);
    const auto value = filled(50000, 1);
    ASSERT_EQ(run(*own, put_op("k", value)).status, Status::ok);
    s3_.tokens = Tokens::never_answers;
    const Memory back(50000);
    CompletionQueue queue;
    auto op = get_op("k", {back.buffer()});
    const auto holders = region_.use_count();
    own->submit({&op, 1}, queue);
    ASSERT_TRUE(eventually([&] { return s3_.count("GET /bucket/p/k") == 1; }));
    EXPECT_FALSE(own->close(milliseconds(100))) << "whoever gave the memory must not use it again";
    host_.reset();
    EXPECT_TRUE(eventually([&] { return region_.use_count() < holders; })) << "it ends by itself";
}

TEST_F(S3Windows, AServerThatWasStartedAnewGetsTheMemoryAgain) {
    const auto value = filled(50000, 1);
    ASSERT_EQ(put("k", value).status, Status::ok);
    host_.reset();
    host_ = *fabric::LocalHost::listen("");
    s3_.windows = host_.get();
    const Memory back(50000);
    ASSERT_EQ(get("k", back).status, Status::ok) << "declined, with the body";
    EXPECT_EQ(back.text(), value.text());
    ASSERT_EQ(get("k", back).status, Status::ok);
    EXPECT_EQ(host_->stats().windows, 1U);
    EXPECT_TRUE(straight());
}

}  // namespace
}  // namespace kvern::testing
