// SPDX-License-Identifier: Apache-2.0
// Usage and quotas, and scans of a store in memory.
#include "server/usage.h"

#include <gtest/gtest.h>

#include <string>

#include "../http/http_fixture.h"
#include "server/buckets.h"
#include "store/mem_store.h"

namespace kvern::server {
namespace {

TEST(Quota, IsThatOfTheBucketElseThatOfAll) {
    const Usage usage({{"cache", 100}, {"free", 0}}, 50);
    EXPECT_EQ(usage.quota("cache"), 100U);
    EXPECT_EQ(usage.quota("other"), 50U);
    EXPECT_EQ(usage.quota("free"), 0U);
    EXPECT_EQ(Usage({}, 0).quota("cache"), 0U);
}

TEST(Quota, LetsABucketGrowUpToItAndNotBeyond) {
    Usage usage({{"cache", 100}}, 0);
    EXPECT_TRUE(usage.take("cache", 60));
    EXPECT_TRUE(usage.take("cache", 40));
    const auto refused = usage.take("cache", 1);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, http::S3Code::insufficient_storage);
    EXPECT_NE(refused.error().message.find("'cache' may hold 100 B (--quota), and holds 100 B"), std::string::npos);
    EXPECT_EQ(usage.all()["cache"].bytes, 100) << "what is refused is not taken";
    EXPECT_TRUE(usage.take("cache", 0)) << "what is empty always fits";
    usage.give("cache", 30);
    EXPECT_TRUE(usage.take("cache", 30));
    EXPECT_TRUE(usage.take("unbounded", std::uint64_t{1} << 50));
}

TEST(Quota, StillLetsGoWhereMoreIsThereThanMayBe) {
    Usage usage({{"cache", 100}}, 0);
    usage.give("cache", 0);
    EXPECT_TRUE(usage.take("cache", 100));
    EXPECT_FALSE(usage.take("cache", 200));
    usage.give("cache", 100);
    EXPECT_EQ(usage.all()["cache"].bytes, 0);
}

TEST(Usage, CountsObjects) {
    Usage usage({}, 0);
    usage.stored("cache", 1);
    usage.stored("cache", 1);
    usage.stored("cache", -1);
    EXPECT_EQ(usage.all()["cache"].objects, 1);
    EXPECT_EQ(usage.scanned_ns(), 0);
}

// A loop and a store in memory with a bucket "cache".
class UsageScan : public ::testing::Test {
  public:
    UsageScan() : store_(make_mem_store(64 << 20, WallClock::system())), loop_("test") {
        http::testing::await(loop_, [](UsageScan& self) -> http::Task<int> {
            self.port_ = std::make_unique<StorePort>(self.loop_, *self.store_, self.metrics_);
            Buckets buckets;
            const auto made = co_await buckets.create(*self.port_, "cache", 1);
            EXPECT_TRUE(made);
            co_return 0;
        }(*this));
    }
    ~UsageScan() override {
        loop_.stop();
        store_->close(std::chrono::seconds(1));
    }
    void put(const std::string& key, const std::string& value, const std::string& bucket = "cache") {
        auto copy = value;
        Op op;
        op.kind = OpKind::put;
        op.key = object_key(bucket, key);
        op.buffers.push_back({reinterpret_cast<std::byte*>(copy.data()), copy.size()});
        EXPECT_EQ(run(*store_, op, std::chrono::seconds(5)).status, Status::ok);
    }
    void scan(Usage& usage) {
        http::testing::await(loop_, [](UsageScan& self, Usage& scanned) -> http::Task<int> {
            co_await scanned.scan(*self.port_);
            co_return 0;
        }(*this, usage));
    }

    Metrics metrics_;
    std::unique_ptr<Store> store_;
    http::Loop loop_;
    std::unique_ptr<StorePort> port_;
};

TEST_F(UsageScan, FindsWhatIsThereAndReplacesWhatWasGuessed) {
    Usage usage({}, 0);
    EXPECT_TRUE(usage.take("cache", 5000));
    usage.stored("cache", 7);
    put("a", std::string(100, 'a'));
    put("b/c", std::string(200, 'b'));
    scan(usage);
    const auto found = usage.all().at("cache");
    EXPECT_EQ(found.bytes, 300);
    EXPECT_EQ(found.objects, 2);
    EXPECT_TRUE(found.bytes_by_label.empty());
    EXPECT_GT(usage.scanned_ns(), 0);
    scan(usage);
    EXPECT_EQ(usage.all().at("cache").bytes, 300) << "scanned twice is not counted twice";
}

TEST_F(UsageScan, AddsUpByTheLabelsThatTheCacheLeft) {
    put("ns1/label", "some/model\r\nanother line");
    put("ns1/aa/x", std::string(1000, 'x'));
    put("tenant/ns2/label", "some/model");
    put("tenant/ns2/bb/y", std::string(500, 'y'));
    put("ns3/label", "");
    put("ns3/cc/z", std::string(70, 'z'));
    put("other", std::string(5, 'o'));
    put("ns4/label", std::string(5000, 'l'));  // too long to be one
    Usage usage({}, 0);
    scan(usage);
    const auto labels = usage.all().at("cache").bytes_by_label;
    const std::map<std::string, std::int64_t> expected{{"some/model", 24 + 1000 + 10 + 500}, {"ns3", 70}};
    EXPECT_EQ(labels, expected);
}

TEST_F(UsageScan, ListsEveryBucketAndMoreThanOnePage) {
    http::testing::await(loop_, [](UsageScan& self) -> http::Task<int> {
        Buckets buckets;
        EXPECT_TRUE(co_await buckets.create(*self.port_, "second", 1));
        co_return 0;
    }(*this));
    for (int i = 0; i < 2500; ++i) put(std::to_string(i), "12");
    put("one", "1", "second");
    Usage usage({}, 0);
    scan(usage);
    EXPECT_EQ(usage.all().at("cache").objects, 2500);
    EXPECT_EQ(usage.all().at("cache").bytes, 5000);
    EXPECT_EQ(usage.all().at("second").objects, 1);
}

}  // namespace
}  // namespace kvern::server
