// SPDX-License-Identifier: Apache-2.0
// What an s3: store asks a server for, and what it makes of its answers, good and bad.
#include <set>

#include "http/test_certificate.h"
#include "store/fake_s3.h"

namespace kvern::testing {
namespace {

using Kind = Fault::Kind;
using std::chrono::milliseconds;
constexpr std::size_t mib = std::size_t{1} << 20;

class S3 : public ::testing::Test {
  protected:
    void open(const std::string& more = {}, const std::string& prefix = "/p") {
        store_ = open_s3(s3_.uri(more, prefix), keys_environment(), clock_);
    }
    void SetUp() override { open("&connect_timeout=2s"); }
    void TearDown() override {
        EXPECT_TRUE(store_->close(std::chrono::seconds(20)));
        EXPECT_EQ(s3_.wrong_signature(), "");
    }
    Outcome put(const std::string& key, const Memory& memory, Condition condition = Condition::any) {
        return run(*store_, put_op(key, memory, condition));
    }
    Outcome get(const std::string& key, const Memory& memory) { return run(*store_, get_op(key, {memory.buffer()})); }
    Outcome stat(const std::string& key) { return run(*store_, plain_op(OpKind::stat, key)); }

    FakeClock clock_;
    FakeS3 s3_;
    std::unique_ptr<Store> store_;
};

TEST_F(S3, KeepsValuesUnderThePrefix) {
    const auto value = filled(100000, 1);
    ASSERT_EQ(put("a/b c+d", value).status, Status::ok);
    ASSERT_EQ(s3_.objects().count("p/a/b c+d"), 1U);
    EXPECT_EQ(s3_.objects()["p/a/b c+d"].bytes, value.text());
    const Memory back(100000);
    const auto outcome = get("a/b c+d", back);
    ASSERT_EQ(outcome.status, Status::ok) << outcome.error.message;
    EXPECT_EQ(back.text(), value.text());
    EXPECT_EQ(outcome.stat.mtime_ns, 1764547200LL * 1'000'000'000);
    EXPECT_EQ(s3_.count("PUT /bucket/p/a/b%20c%2Bd"), 1U);
}

TEST_F(S3, ReadsRangesWithARange) {
    const auto value = filled(10000, 2);
    ASSERT_EQ(put("k", value).status, Status::ok);
    const Memory back(1000);
    for (const auto& [offset, length] : std::vector<std::pair<std::uint64_t, std::uint64_t>>{
             {0, 1000}, {5000, 1000}, {9000, whole_value}, {9999, 1}, {10000, whole_value}, {5, 0}}) {
        const auto op = get_op("k", {back.buffer()}, offset, length);
        const auto outcome = run(*store_, op);
        ASSERT_OK(op, outcome);
        EXPECT_EQ(outcome.stat.size_bytes, 10000U);
        EXPECT_EQ(back.text().substr(0, outcome.bytes), value.text().substr(offset, outcome.bytes));
        EXPECT_TRUE(back.guards_intact());
    }
    EXPECT_FAILED(run(*store_, get_op("k", {back.buffer()}, 10001)), ErrorCode::invalid_argument);
    const auto beyond = run(*store_, get_op("k", {back.buffer()}, 9500, 1000));
    EXPECT_FAILED(beyond, ErrorCode::io);
    EXPECT_EQ(beyond.stat.size_bytes, 10000U);
    const auto small = run(*store_, get_op("k", {back.buffer()}));
    EXPECT_FAILED(small, ErrorCode::io);
    EXPECT_EQ(small.stat.size_bytes, 10000U) << "the head tells it although the body was refused";
    EXPECT_FALSE(small.stat.etag.empty());
}

TEST_F(S3, TellsMetadataOnlyWhereAskedFor) {
    auto op = put_op("m", filled(10, 1));
    const auto value = filled(10, 1);
    op.buffers = {value.buffer()};
    op.metadata = std::string("\0\xff", 2) + std::string(1500, 'm');
    ASSERT_OK(op, run(*store_, op));
    EXPECT_EQ(run(*store_, with_metadata(plain_op(OpKind::stat, "m"))).stat.metadata, op.metadata);
    EXPECT_EQ(stat("m").stat.metadata, "");
    op.metadata.resize(store_->capabilities().metadata_bytes_max + 1);
    EXPECT_FAILED(run(*store_, op), ErrorCode::not_supported);
}

TEST_F(S3, MarksAreSignedHeaders) {
    ASSERT_EQ(put("k", filled(10, 1)).status, Status::ok);
    const Memory back(10);
    auto op = get_op("k", {back.buffer()});
    op.mark_used = true;
    EXPECT_OK(op, run(*store_, op));  // every x-amz- header and these are verified by the fake
}

// ---------------------------------------------------------------------------------------------------------- throttling

TEST_F(S3, TriesAgainWhatIsThrottledOrBroken) {
    const auto value = filled(1000, 1);
    for (const auto& [status, code] : std::vector<std::pair<unsigned, std::string>>{
             {503, "SlowDown"}, {500, "InternalError"}, {429, "TooManyRequests"}, {400, "RequestTimeout"}, {502, ""}}) {
        s3_.fault({.method = "PUT", .times = 2, .status = status, .code = code});
        s3_.forget_requests();
        EXPECT_EQ(put("k", value).status, Status::ok) << status;
        EXPECT_EQ(s3_.count("PUT"), 3U);
    }
}

TEST_F(S3, WhatTheServerKnowsToBeDamagedIsCorruptAndNotAskedForAgain) {
    ASSERT_EQ(put("k", filled(10, 1)).status, Status::ok);
    const std::vector<std::pair<std::string, std::string>> etag{{"ETag", "\"version-1\""}};
    s3_.fault({.method = "GET", .status = 500, .code = "ObjectDamaged", .headers = etag});
    s3_.forget_requests();
    const Memory back(10);
    const auto got = run(*store_, get_op("k", {back.buffer()}));
    EXPECT_FAILED(got, ErrorCode::corrupt);
    EXPECT_EQ(got.stat.etag, "version-1");
    EXPECT_EQ(s3_.count("GET"), 1U);
    // An answer to HEAD has no document; this header tells the code instead.
    s3_.fault({.method = "HEAD", .status = 500, .headers = {{"x-kvern-error", "ObjectDamaged"}}});
    EXPECT_FAILED(stat("k"), ErrorCode::corrupt);
    EXPECT_EQ(s3_.count("HEAD"), 1U);
    EXPECT_EQ(stat("k").status, Status::ok);
}

TEST_F(S3, ThrottledForTooLongIsBusyAndBrokenIsUnavailable) {
    s3_.fault({.method = "PUT", .times = 100});
    const auto busy = put("k", filled(10, 1));
    EXPECT_EQ(busy.status, Status::busy);
    EXPECT_NE(busy.error.message.find("SlowDown says the fake"), std::string::npos) << busy.error.message;
    EXPECT_EQ(s3_.count("PUT"), limits::s3_attempts_max);
    s3_.fault({.method = "HEAD", .times = 100, .status = 500, .code = ""});
    EXPECT_FAILED(stat("k"), ErrorCode::unavailable);
}

TEST_F(S3, ABrokenServerIsLeftAloneAndTriedAgainLater) {
    ASSERT_EQ(put("k", filled(10, 1)).status, Status::ok);
    s3_.fault({.method = "HEAD", .times = 1000, .status = 500, .code = ""});
    for (unsigned i = 0; i < limits::breaker_failures; ++i) EXPECT_FAILED(stat("k"), ErrorCode::unavailable);
    const auto asked = s3_.requests().size();
    const auto begin = std::chrono::steady_clock::now();
    constexpr int count = 1000;
    for (int i = 0; i < count; ++i) EXPECT_EQ(stat("k").status, Status::failed);
    const auto each = (std::chrono::steady_clock::now() - begin) / count;
    EXPECT_LT(each, milliseconds(1));
    EXPECT_EQ(s3_.requests().size(), asked) << "nothing was sent";
    // One probe, one attempt, and then a longer pause.
    clock_.advance(limits::breaker_open);
    EXPECT_FAILED(stat("k"), ErrorCode::unavailable);
    EXPECT_EQ(s3_.requests().size(), asked + 1);
    EXPECT_FAILED(stat("k"), ErrorCode::unavailable);
    EXPECT_EQ(s3_.requests().size(), asked + 1);
}

TEST_F(S3, ABudgetBoundsTheRetriesOfAStorm) {
    s3_.fault({.method = "HEAD", .times = 100000});
    constexpr std::size_t count = 400;
    std::vector<Op> ops(count);
    for (std::size_t i = 0; i < count; ++i) ops[i] = plain_op(OpKind::stat, "k" + std::to_string(i));
    CompletionQueue queue;
    store_->submit(ops, queue);
    for (const auto& completion : collect(queue, count)) EXPECT_NE(completion.outcome.status, Status::ok);
    const auto most = count + limits::s3_retries_saved_max + limits::s3_retry_share * count + 1;
    EXPECT_LE(static_cast<double>(s3_.requests().size()), most);
}

// ------------------------------------------------------------------------------------------------- broken connections

TEST_F(S3, ReadsAgainWhatWasCut) {
    open("&stall_timeout=500ms");
    const auto value = filled(3 * mib, 3);
    ASSERT_EQ(put("k", value).status, Status::ok);
    for (const auto kind : {Kind::drop, Kind::reset_body, Kind::stall_body}) {
        s3_.fault({.kind = kind, .method = "GET"});
        const Memory back(3 * mib);
        const auto outcome = get("k", back);
        ASSERT_EQ(outcome.status, Status::ok) << outcome.error.message;
        EXPECT_EQ(back.text(), value.text());
        EXPECT_TRUE(back.guards_intact());
    }
}

TEST_F(S3, ABodyThatIsAlwaysCutStillTellsTheSize) {
    ASSERT_EQ(put("k", filled(100000, 3)).status, Status::ok);
    s3_.fault({.kind = Kind::reset_body, .method = "GET", .times = 10});
    const Memory back(100000);
    const auto outcome = get("k", back);
    EXPECT_FAILED(outcome, ErrorCode::unavailable);
    EXPECT_EQ(outcome.stat.size_bytes, 100000U);
    EXPECT_NE(outcome.error.message.find("key 'p/k' of bucket 'bucket' at " + s3_.url()), std::string::npos)
        << outcome.error.message;
}

TEST_F(S3, AConnectionThatTheServerHasClosedIsReplacedAtNoCost) {
    ASSERT_EQ(put("k", filled(10, 1)).status, Status::ok);
    s3_.fault({.kind = Kind::drop, .method = "HEAD"});
    EXPECT_EQ(stat("k").status, Status::ok);
    EXPECT_EQ(s3_.count("HEAD"), 2U);
}

TEST_F(S3, AnEarlyRefusalIsHeardWhileTheBodyIsStillBeingSent) {
    s3_.fault({.kind = Kind::early, .method = "PUT", .times = 1, .status = 403, .code = "AccessDenied"});
    const auto outcome = put("k", filled(20 * mib, 1));
    EXPECT_FAILED(outcome, ErrorCode::permission);
    EXPECT_NE(outcome.error.message.find("AccessDenied"), std::string::npos) << outcome.error.message;
}

// --------------------------------------------------------------------------------------------------- wrong answers

TEST_F(S3, WrongBytesAreNeverASuccess) {
    const auto value = filled(10000, 4);
    ASSERT_EQ(put("k", value).status, Status::ok);
    const Memory back(10000);
    s3_.fault({.kind = Kind::wrong_sum, .method = "GET"});
    EXPECT_FAILED(get("k", back), ErrorCode::corrupt);
    s3_.change("p/k", [](auto& object) { object.bytes[5000] ^= 1; });
    EXPECT_FAILED(get("k", back), ErrorCode::corrupt);
    s3_.fault({.kind = Kind::wrong_range, .method = "GET"});
    EXPECT_FAILED(run(*store_, get_op("k", {back.buffer()}, 100, 100)), ErrorCode::io);
    s3_.fault({.kind = Kind::whole, .method = "GET"});
    EXPECT_FAILED(run(*store_, get_op("k", {back.buffer()}, 100, 100)), ErrorCode::io);
    s3_.fault({.kind = Kind::whole, .method = "GET"});
    EXPECT_FAILED(run(*store_, get_op("k", {back.buffer()}, 100)), ErrorCode::io);
    EXPECT_TRUE(back.guards_intact());
}

TEST_F(S3, WithoutChecksumsNothingIsSummed) {
    open("&checksum=none");
    ASSERT_EQ(put("k", filled(100, 4)).status, Status::ok);
    s3_.change("p/k", [](auto& object) { object.bytes[50] ^= 1; });
    EXPECT_EQ(get("k", Memory(100)).status, Status::ok);
}

TEST_F(S3, ErrorsNameTheBucketAndWhatToDo) {
    s3_.fault({.method = "GET", .status = 404, .code = "NoSuchBucket"});
    const auto outcome = get("k", Memory(10));
    EXPECT_FAILED(outcome, ErrorCode::invalid_argument);
    EXPECT_NE(outcome.error.message.find("bucket 'bucket' does not exist"), std::string::npos);
    EXPECT_EQ(stat("k").status, Status::miss);
}

TEST_F(S3, AKeyTooLongForS3IsNotSupported) {
    std::string key;
    while (key.size() < 1100) key += "component/";
    key += "x";
    EXPECT_FAILED(stat(key), ErrorCode::not_supported);
}

// ---------------------------------------------------------------------------------------------------- what is adopted

TEST_F(S3, AdoptsTheServersClock) {
    FakeWallClock past;  // years ago
    const auto store = open_s3(s3_.uri(), keys_environment(), clock_, past);
    const auto value = filled(10, 1);
    EXPECT_EQ(run(*store, put_op("k", value)).status, Status::ok);
    EXPECT_EQ(s3_.count("PUT"), 2U);
    EXPECT_EQ(run(*store, put_op("l", value)).status, Status::ok);
    EXPECT_EQ(s3_.count("PUT"), 3U) << "it is known now";
    const auto other = open_s3(s3_.uri(), keys_environment(), clock_, past);
    EXPECT_EQ(run(*other, plain_op(OpKind::stat, "k")).status, Status::ok) << "HEAD has no document that says why";
}

TEST(S3Adopts, TheBucketsRegion) {
    FakeS3 s3;
    s3.region = "eu-west-3";
    const auto store = open_s3(s3.uri());
    const auto value = filled(10, 1);
    EXPECT_EQ(run(*store, put_op("k", value)).status, Status::ok);
    EXPECT_EQ(run(*store, put_op("l", value)).status, Status::ok);
    EXPECT_EQ(s3.count("PUT"), 3U);
}

TEST_F(S3, ARegionThatIsNoneIsNotAdopted) {
    s3_.fault({.method = "PUT", .status = 400, .code = "AuthorizationHeaderMalformed", .region = "evil\r\nx: y"});
    EXPECT_FAILED(put("k", filled(10, 1)), ErrorCode::invalid_argument);
}

// --------------------------------------------------------------------------------------------------------- conditions

TEST_F(S3, ConditionsAreFoundOutOnceAndWithoutRisk) {
    const auto value = filled(10, 1);
    EXPECT_NE(store_->describe().find("conditional put: not known yet"), std::string::npos) << store_->describe();
    ASSERT_EQ(put("k", value, Condition::absent).status, Status::ok);
    EXPECT_EQ(s3_.count("PUT /bucket/p/.kvern-probe/"), 3U);
    EXPECT_EQ(s3_.count("PUT /bucket/p/k"), 1U);
    EXPECT_EQ(s3_.objects().size(), 1U) << "the probe is removed";
    const auto again = put("k", filled(20, 2), Condition::absent);
    EXPECT_FAILED(again, ErrorCode::precondition);
    EXPECT_EQ(again.stat.size_bytes, 10U);
    EXPECT_EQ(s3_.count("PUT /bucket/p/.kvern-probe/"), 3U);
    EXPECT_NE(store_->describe().find("conditional put: yes"), std::string::npos) << store_->describe();
    EXPECT_TRUE(store_->capabilities().conditional_put);
}

TEST_F(S3, IgnoredConditionsAreLookedUpBefore) {
    s3_.honours_conditions = false;
    const auto first = filled(10, 1);
    ASSERT_EQ(put("k", first, Condition::absent).status, Status::ok);
    const auto again = put("k", filled(20, 2), Condition::absent);
    EXPECT_FAILED(again, ErrorCode::precondition);
    EXPECT_EQ(again.stat.size_bytes, 10U);
    EXPECT_EQ(s3_.objects()["p/k"].bytes, first.text());
    EXPECT_FALSE(store_->capabilities().conditional_put);
    auto op = put_op("k", first, Condition::etag);
    op.etag = again.stat.etag;
    EXPECT_OK(op, run(*store_, op));
    EXPECT_FAILED(run(*store_, op), ErrorCode::precondition);
}

TEST_F(S3, ManyFirstConditionalPutsProbeOnce) {
    std::vector<Op> ops;
    const auto value = filled(10, 1);
    for (int i = 0; i < 40; ++i) ops.push_back(put_op("k" + std::to_string(i), value, Condition::absent));
    CompletionQueue queue;
    store_->submit(ops, queue);
    for (const auto& completion : collect(queue, 40)) EXPECT_EQ(completion.outcome.status, Status::ok);
    EXPECT_EQ(s3_.count("PUT /bucket/p/.kvern-probe/"), 3U);
}

TEST_F(S3, APutWhoseAnswerWasLostIsKnownAgain) {
    const auto value = filled(5000, 1);
    ASSERT_EQ(put("other", value, Condition::absent).status, Status::ok);
    // Once on the kept connection, which is replaced as a dead one would be; then on a fresh one as well.
    for (const unsigned times : {1U, 2U}) {
        const auto key = "k" + std::to_string(times);
        s3_.fault({.kind = Kind::lose_answer, .method = "PUT", .target_part = "/p/" + key, .times = times});
        const auto outcome = put(key, value, Condition::absent);
        EXPECT_EQ(outcome.status, Status::ok) << outcome.error.message;
        EXPECT_EQ(outcome.stat.etag, s3_.objects()["p/" + key].etag);
    }
    // Somebody else's value of the same size is not.
    s3_.fault({.kind = Kind::lose_answer, .method = "PUT", .target_part = "/p/other", .times = 2});
    EXPECT_FAILED(put("other", filled(5000, 2), Condition::absent), ErrorCode::precondition);
}

TEST_F(S3, AConflictIsBusy) {
    const auto value = filled(10, 1);
    ASSERT_EQ(put("warm", value, Condition::absent).status, Status::ok);
    s3_.fault({.method = "PUT", .status = 409, .code = "ConditionalRequestConflict"});
    EXPECT_EQ(put("k", value, Condition::absent).status, Status::busy);
}

// -------------------------------------------------------------------------------------------------------------- parts

TEST_F(S3, LargeValuesGoInPartsWithOneChecksum) {
    open("&multipart=8MiB");
    const auto value = filled(40 * mib + 17, 5);
    auto op = put_op("large", value, Condition::absent);
    op.metadata = "label";
    const auto outcome = run(*store_, op);
    ASSERT_OK(op, outcome);
    EXPECT_EQ(outcome.stat.size_bytes, value.size_bytes());
    EXPECT_EQ(s3_.objects()["p/large"].bytes.size(), value.size_bytes());
    EXPECT_EQ(s3_.objects()["p/large"].etag, outcome.stat.etag);
    EXPECT_EQ(s3_.open_uploads(), 0U);
    const Memory back(value.size_bytes());
    EXPECT_EQ(get("large", back).status, Status::ok);
    EXPECT_EQ(back.text(), value.text());
    EXPECT_EQ(run(*store_, with_metadata(plain_op(OpKind::stat, "large"))).stat.metadata, "label");
    EXPECT_FAILED(run(*store_, op), ErrorCode::precondition);
    EXPECT_EQ(s3_.open_uploads(), 0U);
}

TEST_F(S3, AFailedPartLeavesNothing) {
    open("&multipart=8MiB");
    s3_.fault({.method = "PUT", .target_part = "partNumber=2", .status = 403, .code = "AccessDenied"});
    EXPECT_FAILED(put("large", filled(40 * mib, 5)), ErrorCode::permission);
    EXPECT_EQ(s3_.open_uploads(), 0U);
    EXPECT_EQ(stat("large").status, Status::miss);
}

TEST_F(S3, ALostAnswerToTheCompletionIsKnownAgain) {
    open("&multipart=8MiB");
    s3_.fault({.kind = Kind::lose_answer, .method = "POST", .target_part = "uploadId", .times = 1});
    s3_.fault({.kind = Kind::lose_answer, .method = "POST", .target_part = "uploadId", .times = 1});
    const auto value = filled(20 * mib, 6);
    const auto outcome = put("large", value);
    EXPECT_EQ(outcome.status, Status::ok) << outcome.error.message;
    EXPECT_EQ(outcome.stat.etag, s3_.objects()["p/large"].etag);
}

TEST_F(S3, AppendsBecomePartsOrOnePut) {
    for (const std::size_t total : {std::size_t{0}, std::size_t{1000}, 20 * mib + 5, 33 * mib}) {
        SCOPED_TRACE(total);
        s3_.forget_requests();
        const auto value = filled(total, total);
        const auto upload = run(*store_, plain_op(OpKind::begin, "long")).upload;
        std::vector<Op> ops;
        for (std::size_t at = 0; at < total; at += 3 * mib + 11) {
            ops.push_back(upload_op(OpKind::append, upload, {value.part(at, std::min(3 * mib + 11, total - at))}));
        }
        ops.push_back(upload_op(OpKind::commit, upload));
        const auto count = ops.size();
        CompletionQueue queue;
        store_->submit(ops, queue);
        for (const auto& completion : collect(queue, count)) {
            EXPECT_EQ(completion.outcome.status, Status::ok) << completion.outcome.error.message;
        }
        EXPECT_TRUE(s3_.objects()["p/long"].bytes == value.text());
        EXPECT_EQ(s3_.count("POST"), total > 8 * mib ? 2U : 0U);
    }
}

TEST_F(S3, OpenUploadsEndWithTheStore) {
    const auto upload = run(*store_, plain_op(OpKind::begin, "long")).upload;
    const auto value = filled(10 * mib, 1);
    EXPECT_EQ(run(*store_, upload_op(OpKind::append, upload, {value.buffer()})).status, Status::ok);
    EXPECT_EQ(s3_.open_uploads(), 1U);
    EXPECT_TRUE(store_->close(std::chrono::seconds(20)));
    EXPECT_EQ(s3_.open_uploads(), 0U);
}

// -------------------------------------------------------------------------------------------------------------- looks

TEST_F(S3, StatsOfOthersServersAreHeadsSideBySide) {
    ASSERT_EQ(put("k1", filled(10, 1)).status, Status::ok);
    s3_.fault({.kind = Kind::delay, .method = "HEAD", .times = 16, .ms = 200});
    std::vector<Op> ops;
    for (int i = 0; i < 16; ++i) ops.push_back(plain_op(OpKind::stat, "k" + std::to_string(i)));
    CompletionQueue queue;
    const auto begin = std::chrono::steady_clock::now();
    store_->submit(ops, queue);
    std::size_t there = 0;
    for (const auto& completion : collect(queue, 16)) there += completion.outcome.status == Status::ok;
    EXPECT_EQ(there, 1U);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(200 * 8));
}

TEST(S3Kvern, ManyStatsAreOneRequest) {
    FakeS3 s3;
    s3.kvern = true;
    const auto store = open_s3(s3.uri());
    const auto value = filled(10, 1);
    for (int i = 0; i < 50; ++i) {
        EXPECT_EQ(run(*store, put_op("k/" + std::to_string(2 * i), value)).status, Status::ok);
    }
    s3.forget_requests();
    std::vector<Op> ops;
    for (int i = 0; i < 100; ++i) {
        ops.push_back(plain_op(OpKind::stat, "k/" + std::to_string(i)));
        ops.back().tag = static_cast<std::uint64_t>(i);
    }
    CompletionQueue queue;
    store->submit(ops, queue);
    for (const auto& completion : collect(queue, 100)) {
        const bool there = completion.tag % 2 == 0;
        EXPECT_EQ(completion.outcome.status, there ? Status::ok : Status::miss);
        EXPECT_EQ(completion.outcome.stat.size_bytes, there ? 10U : 0U);
        EXPECT_EQ(completion.outcome.stat.mtime_ns % 1'000'000'000, 0);
    }
    EXPECT_EQ(s3.requests(), std::vector<std::string>{"POST /bucket?kvern-exists="});
    // Another server behind the same address.
    s3.fault({.method = "POST", .status = 501, .code = "NotImplemented"});
    for (int i = 0; i < 100; ++i) ops[static_cast<std::size_t>(i)] = plain_op(OpKind::stat, "k/" + std::to_string(i));
    store->submit(ops, queue);
    std::size_t there = 0;
    for (const auto& completion : collect(queue, 100)) there += completion.outcome.status == Status::ok;
    EXPECT_EQ(there, 50U);
    const auto space = run(*store, plain_op(OpKind::space));
    EXPECT_EQ(space.status, Status::ok) << space.error.message;
    EXPECT_EQ(space.space.free_bytes, 400U);
    EXPECT_EQ(space.space.quota_bytes, 900U);
}

TEST_F(S3, OtherServersTellNoSpace) {
    EXPECT_FAILED(run(*store_, plain_op(OpKind::space)), ErrorCode::not_supported);
    const auto asked = s3_.requests().size();
    EXPECT_FAILED(run(*store_, plain_op(OpKind::space)), ErrorCode::not_supported);
    EXPECT_EQ(s3_.requests().size(), asked) << "asked once";
}

TEST_F(S3, RemovesTellWhatWasThere) {
    const auto value = filled(10, 1);
    for (const auto* const key : {"a", "b", "c/locked", "u\xc3\xa4", "x<&>y"})
        ASSERT_EQ(put(key, value).status, Status::ok);
    std::vector<Op> ops;
    for (const auto* const key : {"a", "b", "missing", "c/locked", "u\xc3\xa4", "x<&>y"}) {
        ops.push_back(plain_op(OpKind::remove, key));
        ops.back().tag = ops.size();
    }
    CompletionQueue queue;
    store_->submit(ops, queue);
    std::map<std::uint64_t, Outcome> outcomes;
    for (auto& completion : collect(queue, 6)) outcomes[completion.tag] = std::move(completion.outcome);
    EXPECT_EQ(outcomes[1].status, Status::ok);
    EXPECT_EQ(outcomes[2].status, Status::ok);
    EXPECT_EQ(outcomes[3].status, Status::miss);
    EXPECT_FAILED(outcomes[4], ErrorCode::permission);
    EXPECT_EQ(outcomes[5].status, Status::ok);
    EXPECT_EQ(s3_.count("POST /bucket?delete"), 1U);
    EXPECT_EQ(s3_.count("DELETE"), 1U) << "a key that is no ASCII goes alone";
    EXPECT_EQ(run(*store_, plain_op(OpKind::remove, "a")).status, Status::miss);
}

TEST_F(S3, ListsPagesOfAnySizeWithoutProbesAndForeignNames) {
    open();
    std::vector<std::string> keys;
    for (int i = 0; i < 30; ++i) keys.push_back("l/" + std::to_string(100 + i) + " +ä");
    const auto value = filled(3, 1);
    for (const auto& key : keys) ASSERT_EQ(put(key, value).status, Status::ok);
    for (const std::string foreign : {"p/l/", "p/l/.kvern-probe/1", "p/l//x", "q/other"}) s3_.add(foreign, "foreign");
    s3_.page = 7;
    auto op = plain_op(OpKind::list, "l/");
    const auto all = run(*store_, op);
    ASSERT_OK(op, all);
    ASSERT_EQ(all.entries.size(), 30U);
    EXPECT_FALSE(all.more);
    for (std::size_t i = 0; i < 30; ++i) EXPECT_EQ(all.entries[i].key, keys[i]);
    op.limit = 4;
    op.after = keys[9];
    const auto some = run(*store_, op);
    ASSERT_EQ(some.entries.size(), 4U);
    EXPECT_EQ(some.entries[0].key, keys[10]);
    EXPECT_TRUE(some.more);
}

// -------------------------------------------------------------------------------------------------- several endpoints

TEST(S3Endpoints, EachKeyHasItsPlaceAndListsAreWhole) {
    FakeS3 one, two, three;
    const auto list = one.url() + "," + two.url() + "," + three.url();
    const auto store = open_s3("s3://bucket/p?endpoint=" + list);
    const auto value = filled(100, 1);
    std::set<std::string> keys;
    for (int i = 0; i < 300; ++i) {
        const auto key = "k/" + std::to_string(i);
        EXPECT_EQ(run(*store, put_op(key, value)).status, Status::ok);
        keys.insert(key);
    }
    for (const auto* const s3 : {&one, &two, &three}) EXPECT_GT(s3->objects().size(), 50U);
    EXPECT_EQ(one.objects().size() + two.objects().size() + three.objects().size(), 300U);
    one.page = two.page = three.page = 13;
    std::set<std::string> listed;
    auto op = plain_op(OpKind::list, "k/");
    op.limit = 50;
    for (bool more = true; more;) {
        const auto outcome = run(*store, op);
        ASSERT_OK(op, outcome);
        for (const auto& entry : outcome.entries) {
            EXPECT_GT(entry.key, op.after);
            op.after = entry.key;
            listed.insert(entry.key);
        }
        more = outcome.more;
    }
    EXPECT_EQ(listed, keys);
    // The order in which they are given does not matter.
    const auto other = open_s3("s3://bucket/p?endpoint=" + three.url() + "," + one.url() + "," + two.url());
    for (const auto& key : keys) EXPECT_EQ(run(*other, plain_op(OpKind::stat, key)).status, Status::ok);
}

TEST(S3Endpoints, ABrokenOneCostsOnlyItsOwnKeys) {
    FakeS3 alive;
    auto dead = std::make_unique<FakeS3>();
    const auto store = open_s3("s3://bucket/p?endpoint=" + alive.url() + "," + dead->url());
    dead.reset();
    const auto value = filled(100, 1);
    std::size_t good = 0, bad = 0;
    const auto attempt = [&](int i) {
        const auto outcome = run(*store, put_op("k/" + std::to_string(i), value));
        (outcome.status == Status::ok ? good : bad) += 1;
        EXPECT_TRUE(outcome.status == Status::ok || outcome.error.code == ErrorCode::unavailable);
    };
    for (int i = 0; i < 30; ++i) attempt(i);  // the breaker opens
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 400; ++i) attempt(i);
    EXPECT_LT((std::chrono::steady_clock::now() - begin) / 400, milliseconds(5));
    EXPECT_GT(good, 100U);
    EXPECT_GT(bad, 100U);
}

// ------------------------------------------------------------------------------------------------------------- the end

TEST_F(S3, ClosingCancelsWhatWaitsAndBreaksOffWhatHangs) {
    ASSERT_EQ(put("k", filled(10, 1)).status, Status::ok);
    s3_.fault({.kind = Kind::delay, .method = "HEAD", .times = 1000, .ms = 60000});
    open("&stall_timeout=60s");
    std::vector<Op> ops;
    for (int i = 0; i < 100; ++i) ops.push_back(plain_op(OpKind::stat, "k"));
    CompletionQueue queue;
    store_->submit(ops, queue);
    std::this_thread::sleep_for(milliseconds(50));
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_TRUE(store_->close(milliseconds(100)));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
    const auto completions = queue.drain();
    EXPECT_EQ(completions.size(), 100U);
    for (const auto& completion : completions) EXPECT_FAILED(completion.outcome, ErrorCode::cancelled);
}

TEST_F(S3, MoreThanTheQueueHoldsIsBusy) {
    s3_.fault({.kind = Kind::delay, .method = "HEAD", .times = 1000, .ms = 60000});
    open("&stall_timeout=60s");
    std::vector<Op> ops(limits::queued_ops_max + 10);
    for (auto& op : ops) op = plain_op(OpKind::stat, "k");
    CompletionQueue queue;
    store_->submit(ops, queue);
    const auto refused = queue.drain();
    EXPECT_EQ(refused.size(), 10U);
    for (const auto& completion : refused) EXPECT_EQ(completion.outcome.status, Status::busy);
    EXPECT_TRUE(store_->close(std::chrono::seconds(3)));
    EXPECT_EQ(queue.drain().size(), limits::queued_ops_max);
}

TEST_F(S3, SeveralThreadsShareTheWork) {
    if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "NOT TESTED: one core";
    open("&threads=2&connections=4");
    std::vector<Memory> values;
    std::vector<Op> ops;
    for (std::size_t i = 0; i < 200; ++i) {
        values.push_back(filled(i * 101, i));
        ops.push_back(put_op("k/" + std::to_string(i), values.back(), Condition::absent));
    }
    CompletionQueue queue;
    store_->submit(ops, queue);
    for (const auto& completion : collect(queue, 200)) EXPECT_EQ(completion.outcome.status, Status::ok);
    for (std::size_t i = 0; i < 200; ++i) {
        const Memory back(values[i].size_bytes());
        EXPECT_EQ(get("k/" + std::to_string(i), back).status, Status::ok);
        EXPECT_EQ(back.text(), values[i].text());
    }
}

TEST(S3Tls, TrustsTheRootsThatAreGiven) {
    TempFolder folder;
    const http::testing::TestCertificate certificate(folder.path());
    const auto tls = http::TlsContext::server(certificate.certificate_file, certificate.key_file);
    ASSERT_TRUE(tls) << tls.error().message;
    FakeS3 s3(*tls);
    const auto store = open_s3(s3.uri("&ca=" + certificate.certificate_file));
    const auto value = filled(5 * mib + 3, 1);
    const auto op = put_op("k", value);
    ASSERT_OK(op, run(*store, op));
    const Memory back(value.size_bytes());
    const auto get = get_op("k", {back.buffer()});
    ASSERT_OK(get, run(*store, get));
    EXPECT_EQ(back.text(), value.text());
    const auto stranger = open_s3(s3.uri());
    const auto outcome = run(*stranger, op);
    EXPECT_FAILED(outcome, ErrorCode::permission);
    EXPECT_NE(outcome.error.message.find("ca=FILE"), std::string::npos) << outcome.error.message;
}

TEST(S3Bucket, IsMade) {
    FakeS3 s3;
    S3Seams seams;
    seams.environment = keys_environment();
    const auto made = create_s3_bucket(*Uri::parse(s3.uri()), seams);
    EXPECT_TRUE(made) << made.error().message;
    EXPECT_EQ(s3.requests(), (std::vector<std::string>{"HEAD /bucket", "PUT /bucket"}));
}

}  // namespace
}  // namespace kvern::testing
