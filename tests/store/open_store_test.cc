// SPDX-License-Identifier: Apache-2.0
// URIs, keys as rules, and what people read.
#include <filesystem>
#include <fstream>

#include "store/store_fixture.h"

namespace kvern::testing {
namespace {

std::string error_of(const std::string& uri) {
    const auto store = open_store(uri);
    EXPECT_FALSE(store) << uri;
    return store ? "" : store.error().message;
}

void expect_in(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
}

TEST(OpenStore, NamesWhatIsWrongAndSuggests) {
    TempFolder folder;
    const auto uri = "file://" + folder.path();
    expect_in(error_of("fil://" + folder.path()), "file");
    expect_in(error_of(uri + "?dept=3"), "depth");
    expect_in(error_of(uri + "?io=urin"), "uring");
    expect_in(error_of(uri + "?direct=yes"), "direct");
    expect_in(error_of(uri + "?depth=0"), "depth");
    expect_in(error_of(uri + "?depth=257"), "256");
    expect_in(error_of("file:relative/path"), "absolute");
    expect_in(error_of("file://host/path"), "three slashes");
    expect_in(error_of("mem:?sise=1MiB"), "size");
    expect_in(error_of("mem:?size=big"), "size");
    expect_in(error_of("mem://here"), "no host");
}

TEST(OpenStore, MissingRootSaysWhatToDo) {
    TempFolder folder;
    const auto text = error_of("file://" + folder.path() + "/none");
    expect_in(text, folder.path() + "/none");
    expect_in(text, "mkdir -p");
    std::ofstream(folder.path() + "/plain") << "x";
    expect_in(error_of("file://" + folder.path() + "/plain"), "not a directory");
}

TEST(OpenStore, RootMayBeReachedThroughASymlink) {
    TempFolder folder;
    std::filesystem::create_directory(folder.path() + "/real");
    std::filesystem::create_directory_symlink(folder.path() + "/real", folder.path() + "/link");
    const auto store = open_or_fail("file://" + folder.path() + "/link");
    const auto value = filled(100, 1);
    const auto op = put_op("key", value);
    EXPECT_OK(op, run(*store, op));
    EXPECT_TRUE(std::filesystem::exists(folder.path() + "/real/key"));
}

TEST(OpenStore, UnescapesThePath) {
    TempFolder folder;
    std::filesystem::create_directory(folder.path() + "/with space");
    const auto store = open_or_fail("file://" + folder.path() + "/with%20space");
    expect_in(store->describe(), "with space");
}

TEST(OpenStore, CreatesNothingButItsTemporariesFolder) {
    TempFolder folder;
    open_or_fail("file://" + folder.path());
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
        names.push_back(entry.path().filename());
    }
    EXPECT_EQ(names, std::vector<std::string>{".kvern-tmp"});
    EXPECT_TRUE(std::filesystem::is_empty(folder.path() + "/.kvern-tmp"));
}

TEST(OpenStore, DescribesThePathThatIsTaken) {
    TempFolder folder;
    const auto uri = "file://" + folder.path();
    expect_in(open_or_fail(uri + "?io=threads")->describe(), "io=threads");
    expect_in(open_or_fail(uri + "?direct=off")->describe(), "direct=off");
    expect_in(open_or_fail("mem:?size=1MiB")->describe(), "1 MiB");
}

TEST(Explain, IsASentenceAboutKeyAndCause) {
    Outcome outcome;
    outcome.status = Status::miss;
    EXPECT_EQ(explain(plain_op(OpKind::get, "k"), outcome), "get 'k': no such key");
    outcome.status = Status::busy;
    outcome.error.message = "full";
    EXPECT_EQ(explain(plain_op(OpKind::put, "k"), outcome), "put 'k': busy: full");
    outcome.status = Status::failed;
    outcome.error = {ErrorCode::io, "broken"};
    EXPECT_EQ(explain(upload_op(OpKind::commit, 7), outcome), "commit of upload 7: io: broken");
}

TEST(CheckKey, SaysWhichRuleIsBroken) {
    EXPECT_TRUE(check_key("a"));
    EXPECT_TRUE(check_key("a/b.c/..d/.e"));
    EXPECT_TRUE(check_key("\xff\x01 *"));
    expect_in(check_key("").error().message, "empty");
    expect_in(check_key("a//b").error().message, "empty");
    expect_in(check_key("a/../b").error().message, "'..'");
    expect_in(check_key(std::string(3585, 'a')).error().message, "3584");
    expect_in(check_key(std::string(256, 'a')).error().message, "255");
    expect_in(check_key(".kvern-tmp").error().message, "reserved");
    expect_in(check_key(std::string("a\0", 2)).error().message, "byte 0");
}

TEST(MemStore, ForgetsWhatWasNotUsedForLongest) {
    const auto store = open_or_fail("mem:?size=64KiB");
    const auto value = filled(20000, 1);
    for (const std::string key : {"a", "b", "c"}) EXPECT_EQ(run(*store, put_op(key, value)).status, Status::ok);
    const Memory back(20000);
    EXPECT_EQ(run(*store, get_op("a", {back.buffer()})).status, Status::ok);
    EXPECT_EQ(run(*store, put_op("d", value)).status, Status::ok);
    EXPECT_EQ(run(*store, plain_op(OpKind::stat, "a")).status, Status::ok);
    EXPECT_EQ(run(*store, plain_op(OpKind::stat, "b")).status, Status::miss);
    EXPECT_FAILED(run(*store, put_op("e", filled(70000, 1))), ErrorCode::no_space);
    EXPECT_EQ(run(*store, plain_op(OpKind::stat, "a")).status, Status::ok);
}

TEST(MemStore, CountsOpenUploadsTowardsItsSize) {
    const auto store = open_or_fail("mem:?size=64KiB");
    const auto upload = run(*store, plain_op(OpKind::begin, "long")).upload;
    const auto part = filled(30000, 1);
    EXPECT_EQ(run(*store, upload_op(OpKind::append, upload, {part.buffer()})).status, Status::ok);
    EXPECT_EQ(run(*store, upload_op(OpKind::append, upload, {part.buffer()})).status, Status::ok);
    EXPECT_FAILED(run(*store, upload_op(OpKind::append, upload, {part.buffer()})), ErrorCode::no_space);
    EXPECT_EQ(run(*store, upload_op(OpKind::abort, upload)).status, Status::ok);
    EXPECT_EQ(run(*store, put_op("fits", filled(60000, 1))).status, Status::ok);
}

TEST(Uploads, TooManyOpenOnesAreBusy) {
    TempFolder folder;
    for (const auto& uri : {std::string("mem:"), "file://" + folder.path()}) {
        const auto store = open_or_fail(uri);
        std::vector<Op> ops;
        for (std::size_t i = 0; i <= limits::open_uploads_max; ++i) ops.push_back(plain_op(OpKind::begin, "key"));
        CompletionQueue queue;
        store->submit(ops, queue);
        std::size_t busy = 0;
        for (const auto& completion : collect(queue, ops.size())) busy += completion.outcome.status == Status::busy;
        EXPECT_EQ(busy, 1U) << uri;
        EXPECT_TRUE(store->close(std::chrono::seconds(60)));
    }
    EXPECT_TRUE(std::filesystem::is_empty(folder.path() + "/.kvern-tmp"));  // open uploads end with their store
}

}  // namespace
}  // namespace kvern::testing
