// SPDX-License-Identifier: Apache-2.0
// What every engine in every mode must do. A new engine adds one line to `engines`.
#include <fcntl.h>
#include <rapidcheck.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <latch>
#include <map>
#include <set>
#include <thread>

#include "store/mem_store.h"
#include "store/store_fixture.h"

namespace kvern::testing {
namespace {

constexpr std::size_t mib = std::size_t{1} << 20;

struct EngineCase {
    std::string name;
    std::function<std::string(const std::string& folder)> uri;  // for a fresh, empty store
};

void PrintTo(const EngineCase& one, std::ostream* out) {
    *out << one.name;
}

EngineCase file_case(const std::string& name, const std::string& params) {
    return {name, [params](const std::string& folder) { return "file://" + folder + "?" + params; }};
}

std::string faulty(const std::string& folder, const std::string& rule) {
    const auto control = folder + "/.kvern-faults.json";  // no key can have this name
    std::ofstream(control) << "{\"rules\": [" << rule << "]}";
    return "fault:" + control + "!file://" + folder;
}

std::vector<EngineCase> built_in_engines() {
    return {
        {"mem", [](const std::string&) { return std::string("mem:?size=256MiB"); }},
        file_case("file_auto", "io=auto"),
        file_case("file_uring_direct", "io=uring&direct=on"),
        file_case("file_uring_buffered", "io=uring&direct=off"),
        file_case("file_uring_depth_1", "io=uring&direct=auto&depth=1"),
        file_case("file_threads_direct", "io=threads&direct=on"),
        file_case("file_threads_buffered", "io=threads&direct=off"),
        file_case("file_threads_auto", "io=threads&direct=auto"),
        {"fault_without_rules_over_file",
         [](const std::string& folder) { return "fault:" + folder + "/.kvern-none!file://" + folder; }},
        // Faults that change nothing, so that every operation takes the way of one that does.
        {"fault_stalling_nothing", [](const auto& f) { return faulty(f, R"({"fault": "stall", "ms": 0})"); }},
        {"fault_dripping_fast",
         [](const auto& f) { return faulty(f, R"({"fault": "drip", "bytes_per_second": 1e15})"); }},
    };
}

// Or any store, such as one on a server that was started for it: KVERN_CONFORMANCE_URI, in which each test replaces
// "{}" by a name of its own.
const std::vector<EngineCase>& engines() {
    static const auto all = [] {
        auto engines = built_in_engines();
        if (const char* const given = std::getenv("KVERN_CONFORMANCE_URI")) {
            engines.push_back({"given", [uri = std::string(given)](const std::string& folder) {
                                   const auto name = folder.substr(folder.rfind('-') + 1);
                                   const auto at = uri.find("{}");
                                   return at == std::string::npos ? uri : std::string(uri).replace(at, 2, name);
                               }});
        }
        return engines;
    }();
    return all;
}

class StoreConformance : public ::testing::TestWithParam<EngineCase> {
  protected:
    void SetUp() override {
        test_seed();
        const auto uri = GetParam().uri(folder_.path());
        if (const auto why = untestable_why(uri); !why.empty()) GTEST_SKIP() << "NOT TESTED: " << why;
        store_ = open_or_fail(uri);
        if (std::getenv("KVERN_CONFORMANCE_WINDOWS") == nullptr) return;
        // Every buffer then lies in a region that the store knows, as an engine's do.
        RegionOptions memory;
        memory.size_bytes = 512 * mib;
        memory.touch_in_background = false;
        Memory::source() = *Region::create(memory);
        store_->attach(Memory::source());
    }
    void TearDown() override { Memory::source().reset(); }
    // A put tells its time and a look does; a store on a server tells both in whole seconds, of answer and of object.
    static std::int64_t times_apart_ns() { return GetParam().name == "given" ? 1'000'000'000 : 0; }

    Outcome put(const std::string& key, const Memory& memory, Condition condition = Condition::any) {
        return run(*store_, put_op(key, memory, condition));
    }
    std::string get(const std::string& key, std::size_t size_bytes) {
        const Memory memory(size_bytes);
        const auto op = get_op(key, {memory.buffer()});
        const auto outcome = run(*store_, op);
        EXPECT_OK(op, outcome);
        EXPECT_EQ(outcome.bytes, size_bytes);
        EXPECT_TRUE(memory.guards_intact());
        return memory.text();
    }
    std::vector<std::string> listed(const std::string& prefix, const std::string& after = {},
                                    std::size_t limit = 1000) {
        auto op = plain_op(OpKind::list, prefix);
        op.after = after;
        op.limit = limit;
        const auto outcome = run(*store_, op);
        EXPECT_OK(op, outcome);
        more_ = outcome.more;
        std::vector<std::string> keys;
        for (const auto& entry : outcome.entries) keys.push_back(entry.key);
        return keys;
    }

    TempFolder folder_;
    std::unique_ptr<Store> store_;
    bool more_ = false;
};

INSTANTIATE_TEST_SUITE_P(Engines, StoreConformance, ::testing::ValuesIn(engines()),
                         [](const auto& one) { return one.param.name; });

const std::vector<std::size_t> sizes{0, 1, 4095, 4096, 4097, 65536, mib - 1, mib, mib + 1, 5 * mib, 5 * mib + 4097};

TEST_P(StoreConformance, ReturnsWhatWasPutForAnySize) {
    for (const auto size : sizes) {
        SCOPED_TRACE(size);
        const auto value = filled(size, size);
        const auto op = put_op("size/" + std::to_string(size), value);
        const auto outcome = run(*store_, op);
        ASSERT_OK(op, outcome);
        EXPECT_EQ(outcome.bytes, size);
        EXPECT_EQ(outcome.stat.size_bytes, size);
        EXPECT_FALSE(outcome.stat.etag.empty());
        EXPECT_EQ(get("size/" + std::to_string(size), size), value.text());
    }
}

TEST_P(StoreConformance, ReturnsWhatWasPutFromAndToUnalignedMemory) {
    for (const auto size : {std::size_t{1}, std::size_t{4096}, std::size_t{100000}, 2 * mib + 7}) {
        SCOPED_TRACE(size);
        const auto value = filled(size, size, 13);
        const auto op = put_op("unaligned", value);
        ASSERT_OK(op, run(*store_, op));
        const Memory back(size, 77);
        const auto get = get_op("unaligned", {back.buffer()});
        ASSERT_OK(get, run(*store_, get));
        EXPECT_EQ(back.text(), value.text());
        EXPECT_TRUE(back.guards_intact());
    }
}

TEST_P(StoreConformance, ReturnsAnyRange) {
    const std::size_t size = 3 * mib + 1234;
    const auto value = filled(size, 7);
    ASSERT_EQ(put("ranged", value).status, Status::ok);
    const std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges{
        {0, 1},       {0, 4096},       {4096, 4096}, {4096, 5000},  {1, 4096},           {4095, 2},
        {mib, mib},   {mib, 2 * mib},  {0, size},    {size - 1, 1}, {size - 1234, 1234}, {size, 0},
        {8192, 2345}, {2 * mib, 4097}, {5, size - 5}};
    for (const auto& [offset, length] : ranges) {
        SCOPED_TRACE(std::to_string(offset) + "+" + std::to_string(length));
        const Memory back(length);
        const auto op = get_op("ranged", {back.buffer()}, offset, length);
        const auto outcome = run(*store_, op);
        ASSERT_OK(op, outcome);
        EXPECT_EQ(outcome.bytes, length);
        EXPECT_EQ(outcome.stat.size_bytes, size);
        EXPECT_EQ(back.text(), value.text().substr(offset, length));
        EXPECT_TRUE(back.guards_intact());
    }
}

TEST_P(StoreConformance, ReturnsRandomRangesIntoRandomBuffers) {
    const std::size_t size = 1500000;
    const auto value = filled(size, 11);
    const auto text = value.text();
    ASSERT_EQ(put("random", value).status, Status::ok);
    EXPECT_TRUE(rc::check([&] {
        const bool pages = *rc::gen::arbitrary<bool>();
        const std::size_t unit = pages ? limits::page_bytes : 1;
        const auto offset = *rc::gen::inRange<std::size_t>(0, size / unit) * unit;
        const auto length = *rc::gen::inRange<std::size_t>(0, size - offset + 1);
        const Memory memory(length, pages ? 0 : *rc::gen::inRange<std::size_t>(0, 64));
        std::vector<Buffer> buffers;
        for (std::size_t at = 0; at < length;) {
            const auto part = std::min(length - at, *rc::gen::inRange<std::size_t>(1, 40) * (pages ? unit : 3001));
            buffers.push_back(memory.part(at, part));
            at += part;
        }
        const auto op = get_op("random", buffers, offset, length);
        const auto outcome = run(*store_, op);
        RC_ASSERT(outcome.status == Status::ok);
        RC_ASSERT(memory.text() == text.substr(offset, length));
        RC_ASSERT(memory.guards_intact());
    }));
}

TEST_P(StoreConformance, PutsAndGetsSeparateBuffersInOrder) {
    for (const std::size_t part : {std::size_t{1000}, std::size_t{4096}, std::size_t{65536}}) {
        SCOPED_TRACE(part);
        std::vector<Memory> parts;
        Op op = plain_op(OpKind::put, "parts");
        std::string expected;
        for (std::size_t i = 0; i < 40; ++i) {
            parts.push_back(filled(i == 39 ? part / 2 + 1 : part, i));
            op.buffers.push_back(parts.back().buffer());
            expected += parts.back().text();
        }
        ASSERT_OK(op, run(*store_, op));
        EXPECT_EQ(get("parts", expected.size()), expected);

        std::vector<Memory> back;
        auto get = get_op("parts", {});
        for (const auto& one : parts) {
            back.emplace_back(one.size_bytes());
            get.buffers.push_back(back.back().buffer());
        }
        ASSERT_OK(get, run(*store_, get));
        std::string joined;
        for (const auto& one : back) joined += one.text();
        EXPECT_EQ(joined, expected);
    }
}

TEST_P(StoreConformance, NeverReturnsLessThanAskedForAsSuccess) {
    ASSERT_EQ(put("short", filled(1000, 1)).status, Status::ok);
    const Memory memory(2000);
    auto outcome = run(*store_, get_op("short", {memory.buffer()}, 0, 1001));
    EXPECT_FAILED(outcome, ErrorCode::io);
    EXPECT_EQ(outcome.stat.size_bytes, 1000U);
    EXPECT_FAILED(run(*store_, get_op("short", {memory.buffer()}, 1001)), ErrorCode::invalid_argument);
    EXPECT_FAILED(run(*store_, get_op("short", {memory.part(0, 999)})), ErrorCode::io);
    const auto end = get_op("short", {memory.buffer()}, 1000);
    EXPECT_OK(end, run(*store_, end));
}

TEST_P(StoreConformance, MissesWhatIsNotThere) {
    const Memory memory(10);
    EXPECT_EQ(run(*store_, get_op("nothing/here", {memory.buffer()})).status, Status::miss);
    EXPECT_EQ(run(*store_, plain_op(OpKind::stat, "nothing")).status, Status::miss);
    EXPECT_EQ(run(*store_, plain_op(OpKind::remove, "nothing/here")).status, Status::miss);
    ASSERT_EQ(put("file", memory).status, Status::ok);
    EXPECT_EQ(run(*store_, plain_op(OpKind::stat, "file/below")).status, Status::miss);
    ASSERT_EQ(put("folder/file", memory).status, Status::ok);
    EXPECT_EQ(run(*store_, plain_op(OpKind::stat, "folder")).status, Status::miss);
    EXPECT_EQ(run(*store_, get_op("folder", {memory.buffer()})).status, Status::miss);
    EXPECT_EQ(run(*store_, plain_op(OpKind::remove, "folder")).status, Status::miss);
}

TEST_P(StoreConformance, StatsSizeTimeAndEtag) {
    const auto before = std::chrono::system_clock::now();
    const auto written = put("stat", filled(5000, 1));
    const auto op = plain_op(OpKind::stat, "stat");
    const auto outcome = run(*store_, op);
    ASSERT_OK(op, outcome);
    EXPECT_EQ(outcome.stat.size_bytes, 5000U);
    EXPECT_EQ(outcome.stat.etag, written.stat.etag);
    EXPECT_LE(std::abs(outcome.stat.mtime_ns - written.stat.mtime_ns), times_apart_ns());
    const auto age = before.time_since_epoch() - std::chrono::nanoseconds(outcome.stat.mtime_ns);
    EXPECT_LT(std::chrono::abs(age), std::chrono::minutes(2));
}

TEST_P(StoreConformance, EveryVersionHasAnotherEtag) {
    std::set<std::string> etags;
    const auto value = filled(100, 1);
    for (int i = 0; i < 200; ++i) {
        if (i % 2 == 0) run(*store_, plain_op(OpKind::remove, "version"));  // the inode may be used again
        EXPECT_TRUE(etags.insert(put("version", value).stat.etag).second) << i;
    }
}

TEST_P(StoreConformance, PutAnyReplaces) {
    ASSERT_EQ(put("replace", filled(100000, 1)).status, Status::ok);
    const auto shorter = filled(5000, 2);
    ASSERT_EQ(put("replace", shorter).status, Status::ok);
    EXPECT_EQ(get("replace", 5000), shorter.text());
}

TEST_P(StoreConformance, PutAbsentChangesNothingThatExists) {
    const auto first = filled(3000, 1);
    const auto created = put("absent/key", first, Condition::absent);
    ASSERT_EQ(created.status, Status::ok) << created.error.message;
    const auto second = put("absent/key", filled(4000, 2), Condition::absent);
    EXPECT_FAILED(second, ErrorCode::precondition);
    EXPECT_EQ(second.stat.size_bytes, 3000U);
    EXPECT_EQ(second.stat.etag, created.stat.etag);
    EXPECT_EQ(get("absent/key", 3000), first.text());
}

TEST_P(StoreConformance, PutWithEtagReplacesOnlyThatVersion) {
    const auto first = put("etag", filled(100, 1));
    auto op = put_op("etag", filled(200, 2), Condition::etag);
    const auto newer = filled(200, 2);
    op.buffers = {newer.buffer()};
    op.etag = first.stat.etag;
    const auto second = run(*store_, op);
    ASSERT_OK(op, second);
    EXPECT_EQ(get("etag", 200), newer.text());

    const auto again = run(*store_, op);  // the etag is the old one now
    EXPECT_FAILED(again, ErrorCode::precondition);
    EXPECT_EQ(again.stat.etag, second.stat.etag);
    op.key = "etag-missing";
    EXPECT_FAILED(run(*store_, op), ErrorCode::precondition);
    EXPECT_EQ(run(*store_, plain_op(OpKind::stat, "etag-missing")).status, Status::miss);
}

TEST_P(StoreConformance, RemoveWithEtagRemovesOnlyThatVersion) {
    const auto old = put("remove", filled(100, 1));
    const auto now = put("remove", filled(100, 2));
    auto op = plain_op(OpKind::remove, "remove");
    op.condition = Condition::etag;
    op.etag = old.stat.etag;
    EXPECT_FAILED(run(*store_, op), ErrorCode::precondition);
    op.etag = now.stat.etag;
    EXPECT_OK(op, run(*store_, op));
    EXPECT_EQ(run(*store_, op).status, Status::miss);
}

TEST_P(StoreConformance, KeepsMetadataOrSaysThatItCannot) {
    const auto value = filled(100, 1);
    auto op = put_op("metadata", value);
    op.metadata = std::string("a\0b", 3) + std::string(1000, 'x');
    const auto outcome = run(*store_, op);
    if (outcome.status != Status::ok) {
        EXPECT_FAILED(outcome, ErrorCode::not_supported);
        EXPECT_EQ(run(*store_, plain_op(OpKind::stat, "metadata")).status, Status::miss);
        GTEST_SKIP() << "no metadata here: " << outcome.error.message;
    }
    EXPECT_EQ(run(*store_, with_metadata(plain_op(OpKind::stat, "metadata"))).stat.metadata, op.metadata);
    const Memory back(100);
    EXPECT_EQ(run(*store_, with_metadata(get_op("metadata", {back.buffer()}))).stat.metadata, op.metadata);
    EXPECT_EQ(run(*store_, get_op("metadata", {back.buffer()})).stat.metadata, "") << "nobody asked";

    const auto most_bytes = store_->capabilities().metadata_bytes_max;
    ASSERT_GE(most_bytes, op.metadata.size());
    op.metadata.assign(most_bytes, 'y');
    op.key = "metadata-max";
    const auto most = run(*store_, op);
    if (most.status == Status::ok) {
        EXPECT_EQ(run(*store_, with_metadata(plain_op(OpKind::stat, op.key))).stat.metadata, op.metadata);
    } else {
        EXPECT_FAILED(most, ErrorCode::not_supported);
        EXPECT_EQ(run(*store_, plain_op(OpKind::stat, op.key)).status, Status::miss);
    }
    op.metadata += 'z';
    EXPECT_FAILED(run(*store_, op),
                  most_bytes < limits::metadata_bytes_max ? ErrorCode::not_supported : ErrorCode::invalid_argument);
    op.metadata.assign(limits::metadata_bytes_max + 1, 'z');
    EXPECT_FAILED(run(*store_, op), ErrorCode::invalid_argument);
}

TEST_P(StoreConformance, ListsInByteOrderWithPrefixAfterAndLimit) {
    std::vector<std::string> keys{"a",     "b.x", "b/1",       "b/2/x", "b/2.", "b0",  "c/\xc3\xa4", "c/\xff",
                                  "c/a b", "c/Z", "d/e/f/g/h", "d/e/f", "e-/a", "e/a", "e0",         "zz/1"};
    keys.erase(std::find(keys.begin(), keys.end(), "d/e/f"));  // would be a folder of another in a file store
    const auto value = filled(10, 1);
    for (const auto& key : keys) ASSERT_EQ(put(key, value).status, Status::ok) << key;
    std::sort(keys.begin(), keys.end());
    const std::vector<std::string> prefixes{"",     "b",         "b/", "b/2",  "b.",   "c/",
                                            "d/e/", "d/e/f/g/h", "e",  "none", "zz/1", "."};
    for (const auto& prefix : prefixes) {
        std::vector<std::string> expected;
        for (const auto& key : keys) {
            if (key.starts_with(prefix)) expected.push_back(key);
        }
        EXPECT_EQ(listed(prefix), expected) << prefix;
        EXPECT_FALSE(more_);
        for (const std::size_t limit : {1, 2, 5}) {
            std::vector<std::string> paged;
            std::string after;
            do {
                const auto page = listed(prefix, after, limit);
                EXPECT_LE(page.size(), limit);
                if (more_ && page.empty()) break;
                paged.insert(paged.end(), page.begin(), page.end());
                if (!page.empty()) after = page.back();
            } while (more_);
            EXPECT_EQ(paged, expected) << prefix << " by " << limit;
        }
        for (const std::string after : {"a", "b", "b/", "b/1", "b/2/", "b/2/x", "c", "d/e/f/", "zzz"}) {
            std::vector<std::string> rest;
            std::copy_if(expected.begin(), expected.end(), std::back_inserter(rest),
                         [&](const auto& key) { return key > after; });
            EXPECT_EQ(listed(prefix, after), rest) << prefix << " after " << after;
        }
    }
}

TEST_P(StoreConformance, ListsAsAModelDoes) {
    std::set<std::string> model;
    EXPECT_TRUE(rc::check([&] {
        // Folders "0".."3" hold files, and files have a suffix, so that none is the folder of another.
        const auto component = rc::gen::elementOf(std::vector<std::string>{"0", "1", "2", "0-", "0.", "00"});
        auto path = *rc::gen::container<std::vector<std::string>>(component);
        path.resize(std::min<std::size_t>(path.size(), 3));
        std::string key;
        for (const auto& one : path) key += one + "/";
        key += *component + "f";
        const Memory value = filled(3, 1);
        RC_ASSERT(put(key, value).status == Status::ok);
        model.insert(key);
        const auto prefix = key.substr(0, *rc::gen::inRange<std::size_t>(0, key.size() + 1));
        const auto after = *rc::gen::elementOf(std::vector<std::string>(model.begin(), model.end()));
        std::vector<std::string> expected;
        for (const auto& one : model) {
            if (one.starts_with(prefix) && one > after) expected.push_back(one);
        }
        RC_ASSERT(listed(prefix, after) == expected);
    }));
}

TEST_P(StoreConformance, ListEntriesDescribeTheValues) {
    const auto written = put("entry/one", filled(4321, 1));
    auto op = plain_op(OpKind::list, "entry/");
    const auto outcome = run(*store_, op);
    ASSERT_EQ(outcome.entries.size(), 1U);
    EXPECT_EQ(outcome.entries[0].size_bytes, 4321U);
    EXPECT_EQ(outcome.entries[0].etag, written.stat.etag);
    EXPECT_LE(std::abs(outcome.entries[0].mtime_ns - written.stat.mtime_ns), times_apart_ns());
}

TEST_P(StoreConformance, KeysThatBreakARuleAreRefused) {
    const auto value = filled(10, 1);
    for (const std::string key :
         {"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/.", ".kvern-tmp/x", "a/.kvern-x"}) {
        for (const auto kind : {OpKind::put, OpKind::get, OpKind::stat, OpKind::remove, OpKind::begin}) {
            auto op = plain_op(kind, key);
            if (kind == OpKind::put) op.buffers = {value.buffer()};
            EXPECT_FAILED(run(*store_, op), ErrorCode::invalid_argument);
        }
    }
    EXPECT_FAILED(run(*store_, put_op(std::string("a\0b", 3), value)), ErrorCode::invalid_argument);
    EXPECT_FAILED(run(*store_, put_op(std::string(256, 'x'), value)), ErrorCode::invalid_argument);
    const auto longest = std::string(255, 'x');
    std::string whole = longest;  // 14 components of 255 bytes: one byte less than a key may have
    for (int i = 1; i < 14; ++i) whole += "/" + longest;
    EXPECT_FAILED(run(*store_, put_op(whole + "/z", value)), ErrorCode::invalid_argument);
    const auto key_bytes_max = store_->capabilities().key_bytes_max;
    if (key_bytes_max < whole.size()) {
        EXPECT_FAILED(run(*store_, put_op(whole, value)), ErrorCode::not_supported);
        whole.clear();
        while (whole.size() < key_bytes_max) whole += whole.size() % 100 == 99 ? '/' : 'x';
        if (whole.back() == '/') whole.back() = 'x';
        EXPECT_FAILED(run(*store_, put_op(whole + "z", value)), ErrorCode::not_supported);
    }
    const auto fits = put_op(whole, value);
    EXPECT_OK(fits, run(*store_, fits));
    EXPECT_FAILED(run(*store_, plain_op(OpKind::list, "../")), ErrorCode::invalid_argument);
}

TEST_P(StoreConformance, OperationsWithoutMemoryAreRefused) {
    auto op = plain_op(OpKind::get, "a");
    op.buffers = {Buffer{nullptr, 10}};
    EXPECT_FAILED(run(*store_, op), ErrorCode::invalid_argument);
    auto removal = plain_op(OpKind::remove, "a");
    removal.condition = Condition::absent;
    EXPECT_FAILED(run(*store_, removal), ErrorCode::invalid_argument);
    auto no_etag = put_op("a", filled(1, 1), Condition::etag);
    EXPECT_FAILED(run(*store_, no_etag), ErrorCode::invalid_argument);
}

class Uploading : public StoreConformance {
  protected:
    std::uint64_t begin(const std::string& key, const std::string& metadata = {}) {
        auto op = plain_op(OpKind::begin, key);
        op.metadata = metadata;
        const auto outcome = run(*store_, op);
        EXPECT_OK(op, outcome);
        return outcome.upload;
    }
};
INSTANTIATE_TEST_SUITE_P(Engines, Uploading, ::testing::ValuesIn(engines()),
                         [](const auto& one) { return one.param.name; });

TEST_P(Uploading, PartsInOneSubmitBecomeOneValueInTheirOrder) {
    const auto upload = begin("long/value", "label");
    std::vector<Memory> parts;
    std::vector<Op> ops;
    std::string expected;
    for (std::size_t i = 0; i < 12; ++i) {
        parts.push_back(filled(i % 3 == 0 ? mib : 4096 * i + (i % 2) * 17, i));
        expected += parts.back().text();
    }
    for (const auto& part : parts) ops.push_back(upload_op(OpKind::append, upload, {part.buffer()}));
    ops.push_back(upload_op(OpKind::commit, upload));
    for (std::size_t i = 0; i < ops.size(); ++i) ops[i].tag = i;
    EXPECT_EQ(run(*store_, plain_op(OpKind::stat, "long/value")).status, Status::miss);
    CompletionQueue queue;
    store_->submit(ops, queue);
    for (const auto& completion : collect(queue, parts.size() + 1)) {
        EXPECT_EQ(completion.outcome.status, Status::ok) << completion.tag << " " << completion.outcome.error.message;
        if (completion.tag == parts.size()) {
            EXPECT_EQ(completion.outcome.stat.size_bytes, expected.size());
        }
    }
    EXPECT_EQ(get("long/value", expected.size()), expected);
}

TEST_P(Uploading, CommitObeysItsCondition) {
    const auto old = filled(100, 1);
    ASSERT_EQ(put("commit", old).status, Status::ok);
    const auto part = filled(200, 2);
    const auto refused = begin("commit");
    ASSERT_EQ(run(*store_, upload_op(OpKind::append, refused, {part.buffer()})).status, Status::ok);
    auto commit = upload_op(OpKind::commit, refused);
    commit.condition = Condition::absent;
    EXPECT_FAILED(run(*store_, commit), ErrorCode::precondition);
    EXPECT_EQ(get("commit", 100), old.text());
    EXPECT_FAILED(run(*store_, commit), ErrorCode::invalid_argument);  // it is over

    const auto replacing = begin("commit");
    ASSERT_EQ(run(*store_, upload_op(OpKind::append, replacing, {part.buffer()})).status, Status::ok);
    const auto any = upload_op(OpKind::commit, replacing);
    EXPECT_OK(any, run(*store_, any));
    EXPECT_EQ(get("commit", 200), part.text());

    const auto fresh = begin("commit-new");
    auto absent = upload_op(OpKind::commit, fresh);
    absent.condition = Condition::absent;
    EXPECT_OK(absent, run(*store_, absent));
    EXPECT_EQ(get("commit-new", 0), "");
}

TEST_P(Uploading, MetadataOfTheCommitReplacesThatOfTheBeginning) {
    const auto part = filled(5000, 1);
    for (const std::string late : {"", "known at the end"}) {
        const auto upload = begin("described", "known before");
        ASSERT_EQ(run(*store_, upload_op(OpKind::append, upload, {part.buffer()})).status, Status::ok);
        auto commit = upload_op(OpKind::commit, upload);
        commit.metadata = late;
        EXPECT_OK(commit, run(*store_, commit));
        const auto stat = with_metadata(plain_op(OpKind::stat, "described"));
        EXPECT_EQ(run(*store_, stat).stat.metadata, late.empty() ? "known before" : late);
    }
}

TEST_P(Uploading, AbortLeavesNothing) {
    const auto upload = begin("aborted");
    const auto part = filled(5000, 1);
    ASSERT_EQ(run(*store_, upload_op(OpKind::append, upload, {part.buffer()})).status, Status::ok);
    const auto abort = upload_op(OpKind::abort, upload);
    EXPECT_OK(abort, run(*store_, abort));
    EXPECT_EQ(run(*store_, plain_op(OpKind::stat, "aborted")).status, Status::miss);
    EXPECT_FAILED(run(*store_, upload_op(OpKind::append, upload, {part.buffer()})), ErrorCode::invalid_argument);
    EXPECT_FAILED(run(*store_, upload_op(OpKind::commit, 999999)), ErrorCode::invalid_argument);
}

TEST_P(StoreConformance, ManyOperationsGetOneCompletionEach) {
    constexpr std::size_t count = 600;
    std::vector<Memory> values;
    std::vector<Op> ops;
    for (std::size_t i = 0; i < count; ++i) {
        values.push_back(filled(i * 37, i));
        ops.push_back(put_op("many/" + std::to_string(i % 7) + "/" + std::to_string(i), values.back()));
        ops.back().tag = i;
    }
    CompletionQueue queue;
    store_->submit(ops, queue);
    std::set<std::uint64_t> tags;
    for (const auto& completion : collect(queue, count)) {
        EXPECT_EQ(completion.outcome.status, Status::ok) << completion.outcome.error.message;
        EXPECT_TRUE(tags.insert(completion.tag).second);
    }
    std::vector<Memory> back;
    ops.clear();
    for (std::size_t i = 0; i < count; ++i) {
        back.emplace_back(values[i].size_bytes());
        const auto key = "many/" + std::to_string(i % 7) + "/" + std::to_string(i);
        ops.push_back(i % 3 == 0 ? plain_op(OpKind::stat, key) : get_op(key, {back.back().buffer()}));
        ops.back().tag = i;
    }
    store_->submit(ops, queue);
    for (const auto& completion : collect(queue, count)) {
        ASSERT_EQ(completion.outcome.status, Status::ok) << completion.outcome.error.message;
        const auto i = completion.tag;
        if (i % 3 == 0) {
            EXPECT_EQ(completion.outcome.stat.size_bytes, values[i].size_bytes());
        } else {
            EXPECT_EQ(back[i].text(), values[i].text());
        }
    }
}

TEST_P(StoreConformance, ThreadsWithTheirOwnQueuesDontDisturbEachOther) {
    constexpr int thread_count = 4;
    std::latch start(thread_count);
    std::vector<std::thread> threads;
    for (int t = 0; t < thread_count; ++t) {
        threads.emplace_back([&, t] {
            start.arrive_and_wait();
            for (int i = 0; i < 40; ++i) {
                const auto size = static_cast<std::size_t>(i * 997 + t);
                const auto value = filled(size, size);
                const auto key = "thread/" + std::to_string(t) + "/" + std::to_string(i % 10);
                EXPECT_EQ(run(*store_, put_op(key, value)).status, Status::ok);
                const Memory back(size);
                EXPECT_EQ(run(*store_, get_op(key, {back.buffer()})).status, Status::ok);
                EXPECT_EQ(back.text(), value.text());
            }
        });
    }
    for (auto& thread : threads) thread.join();
}

TEST_P(StoreConformance, ReadersSeeWholeValuesWhileWritersReplaceThem) {
    constexpr std::size_t size = 300000;
    const auto value_of = [](unsigned char byte) {
        Memory memory(size);
        std::memset(memory.data(), byte, size);
        return memory;
    };
    ASSERT_EQ(put("contended", value_of(0)).status, Status::ok);
    std::atomic<bool> done{false};
    std::thread writer([&] {
        for (unsigned char i = 1; i < 60; ++i) EXPECT_EQ(put("contended", value_of(i)).status, Status::ok);
        done = true;
    });
    do {
        const Memory back(size);
        const auto op = get_op("contended", {back.buffer()});
        const auto outcome = run(*store_, op);
        ASSERT_OK(op, outcome);
        const auto text = back.text();
        ASSERT_EQ(text, std::string(size, text[0]));
    } while (!done);
    writer.join();
}

TEST_P(StoreConformance, OneOfManyPutsOfAnAbsentKeyWins) {
    constexpr std::size_t writers = 16;
    for (int round = 0; round < 5; ++round) {
        std::vector<Memory> values;
        std::vector<Op> ops;
        const auto key = "race/" + std::to_string(round);
        for (std::size_t i = 0; i < writers; ++i) {
            values.push_back(filled(20000, i));
            ops.push_back(put_op(key, values.back(), Condition::absent));
            ops.back().tag = i;
        }
        CompletionQueue queue;
        store_->submit(ops, queue);
        std::vector<std::uint64_t> winners;
        for (const auto& completion : collect(queue, writers)) {
            if (completion.outcome.status == Status::ok) {
                winners.push_back(completion.tag);
            } else {
                EXPECT_FAILED(completion.outcome, ErrorCode::precondition);
            }
        }
        ASSERT_EQ(winners.size(), 1U);
        EXPECT_EQ(get(key, 20000), values[winners[0]].text());
    }
}

TEST_P(StoreConformance, OnePutOfManyWithTheSameEtagWins) {
    constexpr std::size_t writers = 16;
    const auto first = put("etag-race", filled(100, 99));
    std::vector<Memory> values;
    std::vector<Op> ops;
    for (std::size_t i = 0; i < writers; ++i) {
        values.push_back(filled(20000, i));
        ops.push_back(put_op("etag-race", values.back(), Condition::etag));
        ops.back().etag = first.stat.etag;
    }
    CompletionQueue queue;
    store_->submit(ops, queue);
    std::size_t winners = 0;
    for (const auto& completion : collect(queue, writers)) winners += completion.outcome.status == Status::ok ? 1 : 0;
    EXPECT_EQ(winners, 1U);
}

TEST_P(StoreConformance, AttachedRegionsAreUsedLikeOtherMemory) {
    const auto region = Region::create({.name = "attached", .size_bytes = 16 * mib});
    ASSERT_TRUE(region) << region.error().message;
    ASSERT_TRUE((*region)->wait_touched(std::chrono::seconds(60)));
    store_->attach(*region);
    const auto value = filled(3 * mib + 100, 5);
    ASSERT_EQ(put("leased", value).status, Status::ok);
    for (int round = 0; round < 4; ++round) {  // the first rounds may come before the registration
        auto lease = (*region)->try_lease(value.size_bytes());
        ASSERT_TRUE(lease);
        std::memset(lease->data(), 0, lease->size_bytes());
        const auto op = get_op("leased", {Buffer{lease->data(), value.size_bytes()}});
        ASSERT_OK(op, run(*store_, op));
        EXPECT_EQ(std::memcmp(lease->data(), value.data(), value.size_bytes()), 0);
        const auto rewritten = put_op("again", value);
        auto from_lease = rewritten;
        from_lease.buffers = {Buffer{lease->data(), value.size_bytes()}};
        ASSERT_OK(from_lease, run(*store_, from_lease));
    }
    EXPECT_EQ(get("again", value.size_bytes()), value.text());
}

TEST_P(StoreConformance, AClosedStoreAnswersUnavailable) {
    EXPECT_TRUE(store_->close(std::chrono::seconds(10)));
    EXPECT_FAILED(run(*store_, plain_op(OpKind::stat, "a")), ErrorCode::unavailable);
    EXPECT_TRUE(store_->close(std::chrono::seconds(10)));
}

TEST_P(StoreConformance, ClosingAnswersEverythingInFlight) {
    constexpr std::size_t count = 300;
    std::vector<Memory> values;
    std::vector<Op> ops;
    for (std::size_t i = 0; i < count; ++i) {
        values.push_back(filled(100000, i));
        switch (i % 3) {
            case 0:
                ops.push_back(put_op("close/" + std::to_string(i), values.back()));
                break;
            case 1:
                ops.push_back(get_op("close/" + std::to_string(i - 1), {values.back().buffer()}));
                break;
            default:
                ops.push_back(plain_op(OpKind::stat, "close/" + std::to_string(i - 2)));
        }
    }
    CompletionQueue queue;
    store_->submit(ops, queue);
    EXPECT_TRUE(store_->close(std::chrono::seconds(60)));
    const auto completions = queue.drain();  // none comes later
    EXPECT_EQ(completions.size(), count);
    for (const auto& completion : completions) {
        if (completion.outcome.status == Status::failed) {
            EXPECT_EQ(completion.outcome.error.code, ErrorCode::cancelled) << completion.outcome.error.message;
        }
    }
}

// A store whose values can be made older than they are: a file by its mtime, a value in memory by a clock.
class Aging : public StoreConformance {
  protected:
    void SetUp() override {
        StoreConformance::SetUp();
        if (GetParam().name == "mem") store_ = make_mem_store(256 * mib, clock_);
    }
    void age(const std::string& key, std::chrono::nanoseconds by) {
        if (GetParam().name == "mem") return clock_.advance(by);
        const auto path = folder_.path() + "/" + key;
        struct stat status {};
        ASSERT_EQ(::stat(path.c_str(), &status), 0);
        const timespec mtime{status.st_mtim.tv_sec - by.count() / 1'000'000'000, status.st_mtim.tv_nsec};
        const timespec times[2] = {{0, UTIME_OMIT}, mtime};
        ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
    }
    Stat stat(const std::string& key) { return run(*store_, plain_op(OpKind::stat, key)).stat; }
    Outcome read(const std::string& key, const Memory& memory, bool mark) {
        auto op = get_op(key, {memory.buffer()});
        op.mark_used = mark;
        return run(*store_, op);
    }
    // Marks are made after the completion.
    bool moves(const std::string& key, std::int64_t from_ns) {
        for (int i = 0; i < 2000 && stat(key).mtime_ns == from_ns; ++i) {
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
        return stat(key).mtime_ns > from_ns;
    }
    FakeWallClock clock_;
};

INSTANTIATE_TEST_SUITE_P(Engines, Aging, ::testing::ValuesIn(engines()),
                         [](const auto& one) { return one.param.name; });

TEST_P(Aging, AMarkedReadMovesTheTimeOfAnOldValueAndNotItsEtag) {
    for (const std::size_t size : {std::size_t{0}, std::size_t{5000}, 3 * mib + 1}) {
        SCOPED_TRACE(size);
        const auto key = "used/" + std::to_string(size);
        const auto value = filled(size, size);
        const auto written = put(key, value);
        ASSERT_EQ(written.status, Status::ok) << written.error.message;
        age(key, 2 * std::chrono::nanoseconds(limits::use_mark_interval));
        const auto old = stat(key);
        EXPECT_EQ(old.etag, written.stat.etag);
        const Memory back(size);
        ASSERT_EQ(read(key, back, true).status, Status::ok);
        EXPECT_EQ(back.text(), value.text());
        ASSERT_TRUE(moves(key, old.mtime_ns));
        const auto used = stat(key);
        EXPECT_EQ(used.etag, written.stat.etag);
        // Never ahead of the clock, and at most a second behind.
        const bool in_memory = GetParam().name == "mem";
        const auto now_ns = in_memory ? clock_.now_ns() : WallClock::system().now_ns();
        EXPECT_LE(used.mtime_ns, now_ns);
        EXPECT_GT(used.mtime_ns, now_ns - 60'000'000'000);
        auto remove = plain_op(OpKind::remove, key);
        remove.condition = Condition::etag;
        remove.etag = written.stat.etag;
        EXPECT_OK(remove, run(*store_, remove));
    }
}

TEST_P(Aging, OnlyMarkedReadsThatSucceedOfOldValuesCount) {
    ASSERT_EQ(put("old", filled(5000, 1)).status, Status::ok);
    age("old", 2 * std::chrono::nanoseconds(limits::use_mark_interval));
    ASSERT_EQ(put("young", filled(5000, 2)).status, Status::ok);
    age("young", std::chrono::nanoseconds(limits::use_mark_interval) / 2);
    const auto old = stat("old");
    const auto young = stat("young");
    const Memory back(5000);
    ASSERT_EQ(read("old", back, false).status, Status::ok);
    ASSERT_EQ(read("old", Memory(100), true).status, Status::failed);
    ASSERT_EQ(read("young", back, true).status, Status::ok);
    ASSERT_EQ(put("last", filled(5000, 3)).status, Status::ok);  // a mark that follows all of them
    age("last", 2 * std::chrono::nanoseconds(limits::use_mark_interval));
    const auto last = stat("last");
    ASSERT_EQ(read("last", back, true).status, Status::ok);
    ASSERT_TRUE(moves("last", last.mtime_ns));
    EXPECT_EQ(stat("old").mtime_ns, old.mtime_ns);
    EXPECT_EQ(stat("young").mtime_ns, young.mtime_ns);
}

TEST_P(Aging, ANewVersionHasAnotherEtagAlsoAfterMarks) {
    std::set<std::string> etags;
    const Memory back(100);
    for (int i = 0; i < 20; ++i) {
        if (i % 2 == 0) run(*store_, plain_op(OpKind::remove, "version"));  // the inode may be used again
        EXPECT_TRUE(etags.insert(put("version", filled(100, 1)).stat.etag).second) << i;
        age("version", 2 * std::chrono::nanoseconds(limits::use_mark_interval));
        const auto old = stat("version");
        ASSERT_EQ(read("version", back, true).status, Status::ok);
        ASSERT_TRUE(moves("version", old.mtime_ns));
    }
}

TEST_P(StoreConformance, TellsItsSpace) {
    const auto op = plain_op(OpKind::space);
    const auto before = run(*store_, op);
    ASSERT_OK(op, before);
    EXPECT_GT(before.space.capacity_bytes, 0U);
    EXPECT_LE(before.space.free_bytes, before.space.capacity_bytes);
    if (GetParam().name == "mem") {
        EXPECT_EQ(before.space.free_bytes, 256 * mib);
        ASSERT_EQ(put("room", filled(10000, 1)).status, Status::ok);
        EXPECT_EQ(run(*store_, op).space.free_bytes, 256 * mib - 10000 - std::string("room").size());
        run(*store_, plain_op(OpKind::remove, "room"));
        EXPECT_EQ(run(*store_, op).space.free_bytes, 256 * mib);
    } else {
        struct statvfs status {};
        ASSERT_EQ(statvfs(folder_.path().c_str(), &status), 0);
        EXPECT_EQ(before.space.capacity_bytes, std::uint64_t{status.f_blocks} * status.f_frsize);
    }
}

TEST_P(StoreConformance, DescribesItselfInOneLine) {
    const auto text = store_->describe();
    EXPECT_FALSE(text.empty());
    EXPECT_EQ(text.find('\n'), std::string::npos);
    RecordProperty("describe", text);
}

}  // namespace
}  // namespace kvern::testing
