// SPDX-License-Identifier: Apache-2.0
// What only the file engine promises: names, modes, links, temporaries, errors of the file system.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "store/child_process.h"
#include "store/store_fixture.h"

namespace kvern::testing {
namespace {

namespace fs = std::filesystem;

std::string uri_of(const TempFolder& folder, const std::string& params = "io=auto") {
    return "file://" + folder.path() + "?" + params;
}

mode_t mode_of(const std::string& path) {
    struct stat status {};
    EXPECT_EQ(lstat(path.c_str(), &status), 0) << path;
    return status.st_mode & 07777;
}

std::vector<std::string> names_in(const std::string& path) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(path)) names.push_back(entry.path().filename());
    return names;
}

// Temporaries that are left; the lock file is none.
std::size_t temporaries_in(const std::string& root) {
    std::size_t count = 0;
    for (const auto& name : names_in(root + "/.kvern-tmp")) count += name != "lock";
    return count;
}

// All keys, page by page.
std::vector<std::string> paged(Store& store, std::size_t limit) {
    std::vector<std::string> keys;
    auto op = plain_op(OpKind::list);
    op.limit = limit;
    for (bool more = true; more;) {
        op.after = keys.empty() ? "" : keys.back();
        const auto outcome = run(store, op);
        EXPECT_OK(op, outcome);
        for (const auto& entry : outcome.entries) keys.push_back(entry.key);
        more = outcome.more && outcome.status == Status::ok;
    }
    return keys;
}

void set_age(const std::string& path, std::chrono::seconds age) {
    const timespec mtime{time(nullptr) - age.count(), 123456789};
    const timespec times[2] = {{0, UTIME_OMIT}, mtime};
    ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
}

TEST(FileStore, PagingThroughABigFolderReadsItsNamesOnce) {
    const TempFolder folder;
    const auto store = open_or_fail(uri_of(folder));
    fs::create_directory(folder.path() + "/big");
    constexpr std::size_t count = 10000;
    for (std::size_t i = 0; i < count; ++i) std::ofstream(folder.path() + "/big/" + std::to_string(i));
    set_age(folder.path() + "/big", std::chrono::seconds(60));
    const auto seconds_for = [&](std::size_t limit) {
        const auto start = std::chrono::steady_clock::now();
        EXPECT_EQ(paged(*store, limit).size(), count);
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    const auto few_pages = seconds_for(1000);
    const auto many_pages = seconds_for(10);  // reading the folder for each would be a hundred times the work
    EXPECT_LT(many_pages, 10 * few_pages + 0.5);
}

TEST(FileStore, ALaterPageSeesWhatWasAddedBehindTheEarlierOne) {
    const TempFolder folder;
    const auto store = open_or_fail(uri_of(folder));
    const auto value = filled(10, 1);
    for (const auto* key : {"d/a", "d/b", "d/d", "d/f"}) ASSERT_EQ(run(*store, put_op(key, value)).status, Status::ok);
    set_age(folder.path() + "/d", std::chrono::seconds(60));
    auto op = plain_op(OpKind::list);
    op.limit = 2;
    ASSERT_EQ(run(*store, op).entries.back().key, "d/b");
    ASSERT_EQ(run(*store, put_op("d/c", value)).status, Status::ok);
    ASSERT_EQ(run(*store, plain_op(OpKind::remove, "d/d")).status, Status::ok);
    op.after = "d/b";
    const auto page = run(*store, op);
    ASSERT_EQ(page.entries.size(), 2U);
    EXPECT_EQ(page.entries[0].key, "d/c");
    EXPECT_EQ(page.entries[1].key, "d/f");
}

TEST(FileStore, WhereTimesAreWholeSecondsTheyAreInTheEtagAndNothingIsMarked) {
    const TempFolder folder;
    const auto store = open_or_fail(uri_of(folder));
    ASSERT_EQ(run(*store, put_op("key", filled(100, 1))).status, Status::ok);
    const auto path = folder.path() + "/key";
    std::set<std::string> etags;
    for (const time_t seconds : {1'600'000'000, 1'600'000'001}) {
        const timespec times[2] = {{0, UTIME_OMIT}, {seconds, 0}};
        ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
        EXPECT_TRUE(etags.insert(run(*store, plain_op(OpKind::stat, "key")).stat.etag).second);
    }
    const Memory back(100);
    auto op = get_op("key", {back.buffer()});
    op.mark_used = true;
    ASSERT_EQ(run(*store, op).status, Status::ok);
    EXPECT_TRUE(store->close(std::chrono::seconds(10)));  // what was to be marked is
    struct stat status {};
    ASSERT_EQ(stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mtim.tv_sec, 1'600'000'001);
}

TEST(FileStore, AUserWhoDoesNotOwnAFileButMayWriteItMarksItWithTheTimeOfNow) {
    if (geteuid() != 0) GTEST_SKIP() << "needs root to become somebody else";
    const TempFolder folder;
    ASSERT_EQ(chmod(folder.path().c_str(), 0777), 0);
    {
        const auto store = open_or_fail(uri_of(folder));
        ASSERT_EQ(run(*store, put_op("key", filled(100, 1))).status, Status::ok);
    }
    const auto path = folder.path() + "/key";
    ASSERT_EQ(chmod(path.c_str(), 0666), 0);
    const timespec times[2] = {{0, UTIME_OMIT}, {1'600'000'000, 123456789}};
    ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
    Child child([&] {
        if (setgid(65534) != 0 || setuid(65534) != 0) return 1;
        const auto store = open_or_fail(uri_of(folder, "io=threads"));
        const Memory back(100);
        auto op = get_op("key", {back.buffer()});
        op.mark_used = true;
        const auto outcome = run(*store, op);
        return outcome.status == Status::ok && store->close(std::chrono::seconds(10)) ? 0 : 2;
    });
    EXPECT_EQ(child.wait(), 0);
    struct stat now {};
    ASSERT_EQ(stat(path.c_str(), &now), 0);
    EXPECT_LT(std::abs(now.st_mtim.tv_sec - time(nullptr)), 60);
}

TEST(FileStore, ModesFollowTheRootWhateverTheUmask) {
    struct Case {
        mode_t root, folder, file;
    };
    const mode_t old_umask = umask(077);
    for (const auto& [root, below, file] : {Case{02770, 02770, 0660}, Case{0700, 0700, 0600}, Case{0755, 0755, 0644}}) {
        TempFolder folder;
        ASSERT_EQ(chmod(folder.path().c_str(), root), 0);
        const auto store = open_or_fail(uri_of(folder));
        const auto value = filled(5000, 1);
        for (const auto condition : {Condition::absent, Condition::any}) {
            const auto name = std::string(condition == Condition::any ? "any" : "absent");
            ASSERT_EQ(run(*store, put_op("d/e/" + name, value, condition)).status, Status::ok);
            EXPECT_EQ(mode_of(folder.path() + "/d/e/" + name), file);
        }
        const auto upload = run(*store, plain_op(OpKind::begin, "upload")).upload;
        ASSERT_EQ(run(*store, upload_op(OpKind::commit, upload)).status, Status::ok);
        EXPECT_EQ(mode_of(folder.path() + "/upload"), file);
        EXPECT_EQ(mode_of(folder.path() + "/d"), below);
        EXPECT_EQ(mode_of(folder.path() + "/d/e"), below);
        EXPECT_EQ(mode_of(folder.path() + "/.kvern-tmp"), below);
    }
    umask(old_umask);
}

TEST(FileStore, ModesAreExactWhereAThreadCannotHaveItsOwnUmask) {
    TempFolder folder;
    ASSERT_EQ(chmod(folder.path().c_str(), 02770), 0);
    Child child([&] {
        umask(077);
        CHILD_EXPECT(forbid({SYS_unshare}), "seccomp");
        const auto store = open_or_fail(uri_of(folder));
        for (const auto condition : {Condition::absent, Condition::any}) {
            const auto key = condition == Condition::any ? "d/any" : "d/absent";
            const auto outcome = run(*store, put_op(key, filled(5000, 1), condition));
            CHILD_EXPECT(outcome.status == Status::ok, outcome.error.message);
        }
        return 0;
    });
    ASSERT_EQ(child.wait(), 0);
    EXPECT_EQ(mode_of(folder.path() + "/d"), 02770U);
    EXPECT_EQ(mode_of(folder.path() + "/d/any"), 0660U);
    EXPECT_EQ(mode_of(folder.path() + "/d/absent"), 0660U);
}

class ForeignThings : public ::testing::TestWithParam<bool> {
  protected:
    // Runs `body` with openat2, or in a child where it is forbidden.
    void run_in_mode(const std::function<int()>& body) {
        Child child([&] {
            if (GetParam()) CHILD_EXPECT(forbid({SYS_openat2}), "seccomp");
            return body();
        });
        EXPECT_EQ(child.wait(), 0);
    }
};
INSTANTIATE_TEST_SUITE_P(Paths, ForeignThings, ::testing::Bool(),
                         [](const auto& one) { return one.param ? "walked" : "openat2"; });

TEST_P(ForeignThings, AreMissesAndSkippedByListsAndLinksAreNeverFollowed) {
    TempFolder folder;
    TempFolder outside;
    std::ofstream(outside.path() + "/secret") << "secret";
    fs::create_symlink(outside.path() + "/secret", folder.path() + "/link");
    fs::create_directory_symlink(outside.path(), folder.path() + "/linked");
    fs::create_symlink("real", folder.path() + "/inner");
    ASSERT_EQ(mkfifo((folder.path() + "/fifo").c_str(), 0600), 0);
    fs::create_directory(folder.path() + "/folder");
    std::ofstream(folder.path() + "/.kvern-odd") << "x";
    run_in_mode([&] {
        const auto store = open_or_fail(uri_of(folder));
        CHILD_EXPECT((store->describe().find("one component at a time") != std::string::npos) == GetParam(), "mode");
        const auto value = filled(5000, 1);
        CHILD_EXPECT(run(*store, put_op("real", value)).status == Status::ok, "put");
        const Memory back(5000);
        for (const std::string key : {"link", "linked/secret", "fifo", "folder", "inner"}) {
            CHILD_EXPECT(run(*store, get_op(key, {back.buffer()})).status == Status::miss, key);
            CHILD_EXPECT(run(*store, plain_op(OpKind::stat, key)).status == Status::miss, key);
            CHILD_EXPECT(run(*store, plain_op(OpKind::remove, key)).status == Status::miss, key);
        }
        const auto through_link = run(*store, put_op("linked/new", value));
        CHILD_EXPECT(through_link.status == Status::failed, "put through a link");
        const auto absent = run(*store, put_op("link", value, Condition::absent));
        CHILD_EXPECT(absent.status == Status::failed && absent.error.code == ErrorCode::precondition, "absent");
        const auto list = run(*store, plain_op(OpKind::list));
        CHILD_EXPECT(list.status == Status::ok && list.entries.size() == 1 && list.entries[0].key == "real", "list");
        CHILD_EXPECT(run(*store, plain_op(OpKind::list, "linked/")).entries.empty(), "list through a link");
        CHILD_EXPECT(store->describe().find("skipped 5 foreign") != std::string::npos, store->describe());
        return 0;
    });
    EXPECT_EQ(names_in(outside.path()), std::vector<std::string>{"secret"});
}

TEST_P(ForeignThings, PutReplacesALinkAndNotItsTarget) {
    TempFolder folder;
    TempFolder outside;
    std::ofstream(outside.path() + "/secret") << "secret";
    fs::create_symlink(outside.path() + "/secret", folder.path() + "/link");
    run_in_mode([&] {
        const auto store = open_or_fail(uri_of(folder));
        CHILD_EXPECT(run(*store, put_op("link", filled(100, 1))).status == Status::ok, "put");
        return 0;
    });
    EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(folder.path() + "/link")));
    EXPECT_EQ(fs::file_size(outside.path() + "/secret"), 6U);
}

TEST_P(ForeignThings, DeepKeysWork) {
    TempFolder folder;
    run_in_mode([&] {
        const auto store = open_or_fail(uri_of(folder));
        std::string key;
        for (int i = 0; i < 100; ++i) key += "d/";
        key += "file";
        CHILD_EXPECT(run(*store, put_op(key, filled(100, 1), Condition::absent)).status == Status::ok, "put");
        CHILD_EXPECT(run(*store, plain_op(OpKind::stat, key)).status == Status::ok, "stat");
        CHILD_EXPECT(run(*store, plain_op(OpKind::list)).entries.size() == 1, "list");
        return 0;
    });
}

TEST(FileStore, AKeyCannotBeTheFolderOfAnother) {
    TempFolder folder;
    const auto store = open_or_fail(uri_of(folder));
    const auto value = filled(10, 1);
    ASSERT_EQ(run(*store, put_op("a/b", value)).status, Status::ok);
    EXPECT_FAILED(run(*store, put_op("a", value)), ErrorCode::not_supported);
    EXPECT_FAILED(run(*store, put_op("a/b/c", value)), ErrorCode::not_supported);
    EXPECT_EQ(temporaries_in(folder.path()), 0U);
}

TEST(FileStore, PutsWhileFoldersAreRemovedByOthers) {
    TempFolder folder;
    const auto store = open_or_fail(uri_of(folder));
    std::atomic<int> puts{0};  // folders are removed about once a put: without end, nobody could ever put anything
    constexpr int count = 500;
    std::thread remover([&] {
        for (int i = 0; i < count; ++i) {
            puts.wait(i);
            rmdir((folder.path() + "/x/y").c_str());
            rmdir((folder.path() + "/x").c_str());
        }
    });
    const auto value = filled(100, 1);
    for (int i = 0; i < count; ++i) {
        ++puts;
        puts.notify_one();
        const auto op = put_op("x/y/z", value, i % 2 == 0 ? Condition::absent : Condition::any);
        const auto outcome = run(*store, op);
        EXPECT_OK(op, outcome);
        run(*store, plain_op(OpKind::remove, "x/y/z"));
    }
    remover.join();
}

TEST(FileStore, LeavesNoTemporariesAfterSuccessOrFailure) {
    TempFolder folder;
    const auto store = open_or_fail(uri_of(folder));
    const auto value = filled(10000, 1);
    for (int i = 0; i < 5; ++i) {
        run(*store, put_op("key", value));
        run(*store, put_op("key", value, Condition::absent));
        auto op = put_op("key", value, Condition::etag);
        op.etag = "none";
        run(*store, op);
    }
    EXPECT_EQ(temporaries_in(folder.path()), 0U);
}

TEST(FileStore, RemovesOldTemporariesAndKeepsFreshOnes) {
    TempFolder folder;
    const auto tmp = folder.path() + "/.kvern-tmp";
    fs::create_directory(tmp);
    for (const std::string name : {"old-1", "old-2", "fresh", "lock"}) std::ofstream(tmp + "/" + name) << "x";
    const auto age = limits::temporary_age_max + std::chrono::seconds(10);
    for (const std::string name : {"old-1", "old-2", "lock"}) {
        fs::last_write_time(tmp + "/" + name, fs::file_time_type::clock::now() - age);
    }
    // Closing waits for what has started, and a collector that has not started yet is asked for by a further opening.
    for (int i = 0; i < 1000 && fs::exists(tmp + "/old-1"); ++i) {
        const auto store = open_or_fail(uri_of(folder));
        run(*store, put_op("key", filled(1, 1), Condition::absent));  // behind the collector in the same lane
    }
    auto left = names_in(tmp);
    std::sort(left.begin(), left.end());
    EXPECT_EQ(left, (std::vector<std::string>{"fresh", "lock"}));
}

// Holds the lock of all changes, as a stopped process would.
class HeldLock {
  public:
    explicit HeldLock(const std::string& root)
        : fd_(open((root + "/.kvern-tmp/lock").c_str(), O_RDWR | O_CREAT, 0600)) {
        EXPECT_EQ(flock(fd_, LOCK_EX), 0);
    }
    ~HeldLock() { close(fd_); }
    HeldLock(const HeldLock&) = delete;
    HeldLock& operator=(const HeldLock&) = delete;

  private:
    int fd_;
};

TEST(FileStore, IsBusyWhenAnotherProcessKeepsTheLockOfChanges) {
    TempFolder folder;
    const auto store = open_or_fail(uri_of(folder));
    const HeldLock lock(folder.path());
    const auto value = filled(100, 1);
    EXPECT_EQ(run(*store, put_op("key", value)).status, Status::busy);
    EXPECT_EQ(run(*store, put_op("key", value, Condition::absent)).status, Status::ok);  // needs no lock
    EXPECT_EQ(temporaries_in(folder.path()), 0U);
}

TEST(FileStore, ClosingLeavesAStuckThreadBehindAndItsQueueAlone) {
    TempFolder folder;
    static const auto value = filled(100, 1);  // the stuck thread has it as long as it likes
    {
        auto queue = std::make_unique<CompletionQueue>();
        auto store = open_or_fail(uri_of(folder));
        const HeldLock lock(folder.path());
        Op op = put_op("key", value);
        store->submit({&op, 1}, *queue);
        while (temporaries_in(folder.path()) == 0) std::this_thread::yield();  // now it is inside
        EXPECT_FALSE(store->close(std::chrono::milliseconds(1)));
        EXPECT_TRUE(queue->drain().empty());
        queue.reset();  // the thread must not touch it any more
        store.reset();
    }
    while (temporaries_in(folder.path()) != 0) std::this_thread::yield();  // it ends by itself
}

TEST(FileStore, WorksAfterItsTemporariesFolderWasRemoved) {
    TempFolder folder;
    const auto store = open_or_fail(uri_of(folder));
    const auto value = filled(100, 1);
    ASSERT_EQ(run(*store, put_op("a", value)).status, Status::ok);
    fs::remove_all(folder.path() + "/.kvern-tmp");
    const auto op = put_op("a", value);
    EXPECT_OK(op, run(*store, op));
    EXPECT_EQ(run(*store, plain_op(OpKind::remove, "a")).status, Status::ok);
}

TEST(FileStore, IsBusyWhenItsQueueIsFull) {
    TempFolder folder;
    const auto store = open_or_fail(uri_of(folder, "io=threads"));
    constexpr std::size_t extra = 1000;
    std::vector<Op> ops(limits::queued_ops_max + extra);
    for (std::size_t i = 0; i < ops.size(); ++i) {
        ops[i] = plain_op(OpKind::stat, "missing");
        ops[i].tag = i;
    }
    CompletionQueue queue;
    store->submit(ops, queue);  // one call admits at most what the queue holds
    std::map<Status, std::size_t> count;
    for (const auto& completion : collect(queue, ops.size())) {
        ++count[completion.outcome.status];
        if (completion.outcome.status == Status::busy) {
            EXPECT_NE(completion.outcome.error.message.find("full"), std::string::npos);
        }
    }
    EXPECT_EQ(count[Status::busy], extra);
    EXPECT_EQ(count[Status::miss], limits::queued_ops_max);
    EXPECT_EQ(run(*store, plain_op(OpKind::stat, "missing")).status, Status::miss);  // and recovers
}

TEST(FileStore, TakesBackWhatInvalidOperationsHadReserved) {
    TempFolder folder;
    const auto store = open_or_fail(uri_of(folder, "io=threads"));
    for (int round = 0; round < 3; ++round) {
        std::vector<Op> ops(limits::queued_ops_max);
        for (auto& op : ops) op = plain_op(OpKind::stat, "..");
        CompletionQueue queue;
        store->submit(ops, queue);
        for (const auto& completion : collect(queue, ops.size())) {
            ASSERT_EQ(completion.outcome.error.code, ErrorCode::invalid_argument);
        }
    }
}

TEST(FileStore, ReadsThatMeetAShrunkFileFail) {
    TempFolder folder;
    for (const std::string params : {"io=uring&direct=on", "io=threads&direct=on", "io=threads&direct=off"}) {
        if (!untestable_why(params).empty()) continue;  // the other ways are tested
        const auto store = open_or_fail(uri_of(folder, params));
        const auto value = filled(std::size_t{8} << 20, 1);
        for (int i = 0; i < 20; ++i) {
            ASSERT_EQ(run(*store, put_op("shrinks", value)).status, Status::ok);
            const Memory back(value.size_bytes());
            std::vector<Op> ops{get_op("shrinks", {back.buffer()})};
            CompletionQueue queue;
            store->submit(ops, queue);
            ASSERT_EQ(truncate((folder.path() + "/shrinks").c_str(), 5000), 0);
            const auto outcome = std::move(collect(queue, 1).front().outcome);
            if (outcome.status == Status::ok) {  // it had been read before, or was short from the start
                EXPECT_TRUE(outcome.bytes == 5000 || back.text() == value.text());
            } else {
                EXPECT_FAILED(outcome, ErrorCode::io);
            }
        }
    }
}

TEST(FileStore, MetadataThatDoesNotFitLeavesNothing) {
    TempFolder folder("/dev/shm");  // tmpfs: little room for attributes before Linux 6.6, none with some settings
    const auto store = open_or_fail(uri_of(folder));
    const auto value = filled(10, 1);
    auto op = put_op("key", value);
    op.metadata.assign(limits::metadata_bytes_max, 'x');
    const auto outcome = run(*store, op);
    if (outcome.status == Status::ok) {
        EXPECT_EQ(run(*store, with_metadata(plain_op(OpKind::stat, "key"))).stat.metadata, op.metadata);
    } else {
        EXPECT_FAILED(outcome, ErrorCode::not_supported);
        EXPECT_EQ(run(*store, plain_op(OpKind::stat, "key")).status, Status::miss);
    }
    EXPECT_EQ(temporaries_in(folder.path()), 0U);
}

TEST(FileStore, TmpfsIsReadFromThePageCacheAndSaysSo) {
    TempFolder folder("/dev/shm");
    const auto store = open_or_fail(uri_of(folder));
    EXPECT_NE(store->describe().find("tmpfs has no device below"), std::string::npos) << store->describe();
    const auto value = filled(1000000, 1);
    ASSERT_EQ(run(*store, put_op("key", value, Condition::absent)).status, Status::ok);
    const Memory back(value.size_bytes());
    ASSERT_EQ(run(*store, get_op("key", {back.buffer()})).status, Status::ok);
    EXPECT_EQ(back.text(), value.text());
}

TEST(FileStore, ListsSkipWhatCannotBeAKey) {
    TempFolder folder;
    const auto store = open_or_fail(uri_of(folder));
    ASSERT_EQ(run(*store, put_op("a", filled(1, 1))).status, Status::ok);
    std::ofstream(folder.path() + "/.kvern-foreign") << "x";
    EXPECT_EQ(run(*store, plain_op(OpKind::list)).entries.size(), 1U);
    EXPECT_NE(store->describe().find("skipped 1"), std::string::npos) << store->describe();
}

}  // namespace
}  // namespace kvern::testing
