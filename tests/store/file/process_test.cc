// SPDX-License-Identifier: Apache-2.0
// The file engine among processes: other writers, other users, no io_uring, no space, kill -9.
#include <grp.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <thread>

#include "store/child_process.h"
#include "store/store_fixture.h"

namespace kvern::testing {
namespace {

constexpr std::size_t mib = std::size_t{1} << 20;
constexpr uid_t nobody = 65534;

std::string uri_of(const std::string& folder, const std::string& params) {
    return "file://" + folder + "?" + params;
}

// A value that names its writer in every word, so that a mixture of two writers shows.
Memory stamped(std::size_t size_bytes, std::uint64_t writer) {
    Memory memory(size_bytes);
    for (std::size_t i = 0; i + 8 <= size_bytes; i += 8) {
        const std::uint64_t word = writer * 1000003 + i;
        std::memcpy(memory.data() + i, &word, 8);
    }
    return memory;
}

bool is_stamped(const Memory& memory, std::uint64_t& writer) {
    std::uint64_t first = 0;
    std::memcpy(&first, memory.data(), 8);
    writer = first / 1000003;
    for (std::size_t i = 0; i + 8 <= memory.size_bytes(); i += 8) {
        std::uint64_t word = 0;
        std::memcpy(&word, memory.data() + i, 8);
        if (word != writer * 1000003 + i) return false;
    }
    return true;
}

// Becomes an ordinary user for good. In a child.
bool become_nobody() {
    return setgroups(0, nullptr) == 0 && setgid(nobody) == 0 && setuid(nobody) == 0;
}

class AmongProcesses : public ::testing::TestWithParam<std::string> {
  protected:
    void SetUp() override {
        if (const auto why = untestable_why(GetParam()); !why.empty()) GTEST_SKIP() << "NOT TESTED: " << why;
    }
    TempFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(Modes, AmongProcesses,
                         ::testing::Values("io=uring&direct=on", "io=threads&direct=on", "io=threads&direct=off"),
                         [](const auto& one) {
                             auto name = one.param;
                             std::replace_if(
                                 name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
                             return name;
                         });

// Every writer puts its own bytes under the same new keys. One per key wins, and nobody ever reads anything else.
int race_for_absent_keys(const std::string& uri, std::uint64_t me, std::size_t size, int keys) {
    const auto store = open_or_fail(uri);
    const auto mine = stamped(size, me);
    for (int i = 0; i < keys; ++i) {
        const auto key = "race/" + std::to_string(i);
        const auto outcome = run(*store, put_op(key, mine, Condition::absent));
        const bool lost = outcome.status == Status::failed && outcome.error.code == ErrorCode::precondition;
        CHILD_EXPECT(outcome.status == Status::ok || lost, outcome.error.message);
        const Memory back(size);
        const auto read = run(*store, get_op(key, {back.buffer()}));
        CHILD_EXPECT(read.status == Status::ok, read.error.message);
        std::uint64_t writer = 0;
        CHILD_EXPECT(is_stamped(back, writer), "a mixture of writers");
        CHILD_EXPECT((writer == me) == (outcome.status == Status::ok), "not the winner's bytes");
    }
    return 0;
}

TEST_P(AmongProcesses, OneWriterOfAnAbsentKeyWinsAndReadersSeeOnlyWholeValues) {
    constexpr std::size_t size = 300008;
    constexpr int keys = 30;
    const auto uri = uri_of(folder_.path(), GetParam());
    std::vector<std::unique_ptr<Child>> writers;
    for (std::uint64_t me = 1; me <= 4; ++me) {
        writers.push_back(std::make_unique<Child>([&] { return race_for_absent_keys(uri, me, size, keys); }));
    }
    Child reader([&] {
        const auto store = open_or_fail(uri);
        for (int i = 0; i < keys; ++i) {
            const Memory back(size);
            for (Status status = Status::miss; status == Status::miss;) {
                const auto outcome = run(*store, get_op("race/" + std::to_string(i), {back.buffer()}));
                status = outcome.status;
                CHILD_EXPECT(status == Status::ok || status == Status::miss, outcome.error.message);
            }
            std::uint64_t writer = 0;
            CHILD_EXPECT(is_stamped(back, writer), "a part of a value, or a mixture");
        }
        return 0;
    });
    for (auto& writer : writers) EXPECT_EQ(writer->wait(), 0);
    EXPECT_EQ(reader.wait(), 0);
    const auto store = open_or_fail(uri);
    EXPECT_EQ(run(*store, plain_op(OpKind::list, "race/")).entries.size(), std::size_t{keys});
}

TEST_P(AmongProcesses, EtagsAreAtomicBetweenProcesses) {
    // A counter that only works if no update is lost.
    constexpr int processes = 3;
    constexpr int increments = 40;
    const auto uri = uri_of(folder_.path(), GetParam());
    {
        const auto store = open_or_fail(uri);
        ASSERT_EQ(run(*store, put_op("counter", stamped(8, 0))).status, Status::ok);
    }
    std::vector<std::unique_ptr<Child>> children;
    for (int p = 0; p < processes; ++p) {
        children.push_back(std::make_unique<Child>([&] {
            const auto store = open_or_fail(uri);
            for (int done = 0; done < increments;) {
                const Memory value(8);
                const auto read = run(*store, get_op("counter", {value.buffer()}));
                CHILD_EXPECT(read.status == Status::ok, read.error.message);
                std::uint64_t count = 0;
                std::memcpy(&count, value.data(), 8);
                ++count;
                std::memcpy(value.data(), &count, 8);
                auto op = put_op("counter", value, Condition::etag);
                op.etag = read.stat.etag;
                const auto outcome = run(*store, op);
                if (outcome.status == Status::ok) ++done;
                CHILD_EXPECT(outcome.status != Status::failed || outcome.error.code == ErrorCode::precondition,
                             outcome.error.message);
            }
            return 0;
        }));
    }
    for (auto& child : children) EXPECT_EQ(child->wait(), 0);
    const auto store = open_or_fail(uri);
    const Memory value(8);
    ASSERT_EQ(run(*store, get_op("counter", {value.buffer()})).status, Status::ok);
    std::uint64_t count = 0;
    std::memcpy(&count, value.data(), 8);
    EXPECT_EQ(count, std::uint64_t{processes * increments});
}

TEST_P(AmongProcesses, KillingAWriterLeavesOnlyWholeValues) {
    constexpr std::size_t size = 2 * mib + 8;
    const auto uri = uri_of(folder_.path(), GetParam());
    const auto keys_of = [](Store& store, const std::string& round) {
        return run(store, plain_op(OpKind::list, "killed/" + round)).entries;
    };
    for (std::uint64_t round = 1; round <= 4; ++round) {
        Child writer([&] {
            const auto store = open_or_fail(uri);
            const auto value = stamped(size, round);
            CompletionQueue queue;
            for (int i = 0;; ++i) {
                std::vector<Op> ops;
                for (int j = 0; j < 4; ++j) {
                    const auto key = "killed/" + std::to_string(round) + "-" + std::to_string((4 * i + j) % 24);
                    ops.push_back(put_op(key, value, j % 2 == 0 ? Condition::absent : Condition::any));
                }
                store->submit(ops, queue);
                collect(queue, ops.size());
            }
            return 0;
        });
        // Killed at some point of its fifth put or later: no need to wait for a certain moment.
        const auto store = open_or_fail(uri);  // after the fork: a child must not inherit locks of other threads
        while (keys_of(*store, std::to_string(round) + "-").size() < 5) std::this_thread::yield();
        writer.kill();
        const auto entries = keys_of(*store, "");
        EXPECT_GE(entries.size(), 5 * round);
        for (const auto& entry : entries) {
            EXPECT_EQ(entry.size_bytes, size);
            const Memory back(size);
            const auto op = get_op(entry.key, {back.buffer()});
            ASSERT_OK(op, run(*store, op));
            std::uint64_t writer_id = 0;
            EXPECT_TRUE(is_stamped(back, writer_id)) << entry.key;
        }
    }
}

TEST_P(AmongProcesses, AFullFileSystemSaysSoAndLeavesNothing) {
    if (getuid() != 0) GTEST_SKIP() << "NOT TESTED: mounting a small tmpfs needs root";
    const auto mounted = folder_.path() + "/small";
    std::filesystem::create_directory(mounted);
    if (mount("tmpfs", mounted.c_str(), "tmpfs", 0, "size=2m") != 0) {
        GTEST_SKIP() << "NOT TESTED: mount: " << std::strerror(errno);
    }
    {
        const auto store = open_or_fail(uri_of(mounted, GetParam()));
        const auto small = filled(500000, 1);
        const auto big = filled(4 * mib, 2);
        EXPECT_EQ(run(*store, put_op("small", small)).status, Status::ok);
        for (const auto condition : {Condition::any, Condition::absent}) {
            EXPECT_FAILED(run(*store, put_op("big", big, condition)), ErrorCode::no_space);
            EXPECT_EQ(run(*store, plain_op(OpKind::stat, "big")).status, Status::miss);
        }
        const auto upload = run(*store, plain_op(OpKind::begin, "upload")).upload;
        EXPECT_FAILED(run(*store, upload_op(OpKind::append, upload, {big.buffer()})), ErrorCode::no_space);
        EXPECT_FAILED(run(*store, upload_op(OpKind::commit, upload)), ErrorCode::no_space);
        const auto again = put_op("again", small);  // the space is free again
        EXPECT_OK(again, run(*store, again));
        for (const auto& entry : std::filesystem::directory_iterator(mounted + "/.kvern-tmp")) {
            EXPECT_EQ(entry.path().filename(), "lock");
        }
    }
    EXPECT_EQ(umount(mounted.c_str()), 0);
}

TEST_P(AmongProcesses, AFolderThatMayNotBeWrittenCanBeRead) {
    if (getuid() != 0) GTEST_SKIP() << "NOT TESTED: changing the user needs root";
    const auto uri = uri_of(folder_.path(), GetParam());
    const auto value = filled(5000, 1);
    ASSERT_EQ(chmod(folder_.path().c_str(), 0755), 0);
    {
        const auto store = open_or_fail(uri);
        ASSERT_EQ(run(*store, put_op("key", value)).status, Status::ok);
    }
    std::filesystem::remove_all(folder_.path() + "/.kvern-tmp");
    Child child([&] {
        CHILD_EXPECT(become_nobody(), "setuid");
        const auto store = open_or_fail(uri);
        CHILD_EXPECT(store->describe().find("can't be written") != std::string::npos, store->describe());
        const Memory back(5000);
        const auto read = run(*store, get_op("key", {back.buffer()}));
        CHILD_EXPECT(read.status == Status::ok && back.text() == value.text(), read.error.message);
        for (const auto condition : {Condition::any, Condition::absent}) {
            const auto outcome = run(*store, put_op("new", value, condition));
            CHILD_EXPECT(outcome.status == Status::failed, "put");
            CHILD_EXPECT(outcome.error.code == ErrorCode::permission, outcome.error.message);
        }
        const auto removed = run(*store, plain_op(OpKind::remove, "key"));
        CHILD_EXPECT(removed.status == Status::failed, "remove");
        CHILD_EXPECT(removed.error.code == ErrorCode::permission, removed.error.message);
        return 0;
    });
    EXPECT_EQ(child.wait(), 0);
}

TEST(OtherUsers, WithoutTheRightToReadGetAnError) {
    if (getuid() != 0) GTEST_SKIP() << "NOT TESTED: changing the user needs root";
    TempFolder folder;
    const auto uri = uri_of(folder.path(), "io=auto");
    ASSERT_EQ(run(*open_or_fail(uri), put_op("key", filled(100, 1))).status, Status::ok);  // root 0700, so 0600
    ASSERT_EQ(chmod(folder.path().c_str(), 0755), 0);
    Child child([&] {
        CHILD_EXPECT(become_nobody(), "setuid");
        const auto store = open_or_fail(uri);
        const Memory back(100);
        const auto outcome = run(*store, get_op("key", {back.buffer()}));
        CHILD_EXPECT(outcome.status == Status::failed && outcome.error.code == ErrorCode::permission, "get");
        return 0;
    });
    EXPECT_EQ(child.wait(), 0);
}

constexpr int reads_max = 1000;

TEST(OtherUsers, WithLittleLockableMemoryReadUnregistered) {
    if (getuid() != 0) GTEST_SKIP() << "NOT TESTED: changing the user needs root";
    TempFolder folder;
    ASSERT_EQ(chmod(folder.path().c_str(), 0777), 0);
    Child child([&] {
        const rlimit limit{mib, mib};
        CHILD_EXPECT(setrlimit(RLIMIT_MEMLOCK, &limit) == 0, "setrlimit");
        CHILD_EXPECT(become_nobody(), "setuid");
        const auto store = open_or_fail(uri_of(folder.path(), "io=uring&direct=auto"));
        const auto region = Region::create({.name = "test", .size_bytes = 16 * mib});
        CHILD_EXPECT(region && (*region)->wait_touched(std::chrono::seconds(60)), "region");
        store->attach(*region);
        auto lease = (*region)->try_lease(4 * mib);
        const auto value = filled(4 * mib, 1);
        CHILD_EXPECT(run(*store, put_op("key", value)).status == Status::ok, "put");
        std::string text;
        // The ring registers when it has nothing to read: some read finds that it has tried.
        for (int i = 0; i < reads_max && text.find("unregistered: 16 MiB") == std::string::npos; ++i) {
            const auto outcome = run(*store, get_op("key", {Buffer{lease->data(), 4 * mib}}));
            CHILD_EXPECT(outcome.status == Status::ok, outcome.error.message);
            CHILD_EXPECT(std::memcmp(lease->data(), value.data(), 4 * mib) == 0, "bytes");
            text = store->describe();
        }
        CHILD_EXPECT(text.find("unregistered: 16 MiB") != std::string::npos, text);
        CHILD_EXPECT(text.find("1 MiB") != std::string::npos, text);
        return 0;
    });
    EXPECT_EQ(child.wait(), 0);
}

TEST(Registration, HappensOnceARegionIsTouchedAndReadInto) {
    TempFolder folder;
    const auto store = open_or_fail(uri_of(folder.path(), "io=auto"));
    if (store->describe().find("reads by io_uring") == std::string::npos)
        GTEST_SKIP() << "NOT TESTED: " << store->describe();
    const auto region = Region::create({.name = "test", .size_bytes = 2 * mib});
    ASSERT_TRUE(region && (*region)->wait_touched(std::chrono::seconds(60)));
    store->attach(*region);
    ASSERT_EQ(run(*store, put_op("key", filled(mib, 1))).status, Status::ok);
    auto lease = (*region)->try_lease(mib);
    for (int i = 0; i < reads_max && store->describe().find("registered: 2 MiB") == std::string::npos; ++i) {
        ASSERT_EQ(run(*store, get_op("key", {Buffer{lease->data(), mib}})).status, Status::ok);
    }
    EXPECT_NE(store->describe().find("registered: 2 MiB"), std::string::npos) << store->describe();
}

TEST(Sandbox, WithoutIoUringReadsTakeThreadsAndSaySo) {
    TempFolder folder;
    Child child([&] {
        CHILD_EXPECT(forbid({SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register}), "seccomp");
        const auto refused = open_store(uri_of(folder.path(), "io=uring"));
        CHILD_EXPECT(!refused && refused.error().code == ErrorCode::not_supported, "io=uring must be refused");
        CHILD_EXPECT(refused.error().message.find("io=auto") != std::string::npos, refused.error().message);
        const auto store = open_or_fail(uri_of(folder.path(), "io=auto"));
        CHILD_EXPECT(store->describe().find("io_uring is forbidden here") != std::string::npos, store->describe());
        const auto value = filled(5 * mib + 3, 1);
        CHILD_EXPECT(run(*store, put_op("key", value)).status == Status::ok, "put");
        const Memory back(value.size_bytes());
        const auto outcome = run(*store, get_op("key", {back.buffer()}));
        CHILD_EXPECT(outcome.status == Status::ok && back.text() == value.text(), outcome.error.message);
        return 0;
    });
    EXPECT_EQ(child.wait(), 0);
}

TEST(Sandbox, WhereIoUringDisappearsAfterOpeningReadsTakeThreads) {
    TempFolder folder;
    Child child([&] {
        const auto store = open_or_fail(uri_of(folder.path(), "io=auto"));
        CHILD_EXPECT(forbid({SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register}), "seccomp");
        const auto value = filled(3 * mib, 1);
        CHILD_EXPECT(run(*store, put_op("key", value)).status == Status::ok, "put");
        for (int i = 0; i < 3; ++i) {
            const Memory back(value.size_bytes());
            const auto outcome = run(*store, get_op("key", {back.buffer()}));
            CHILD_EXPECT(outcome.status == Status::ok && back.text() == value.text(), outcome.error.message);
        }
        return 0;
    });
    EXPECT_EQ(child.wait(), 0);
}

TEST(Sandbox, WithoutFilesWithoutANamePutsTakeTemporaryNames) {
    if (getuid() != 0) GTEST_SKIP() << "NOT TESTED: chroot needs root";
    TempFolder folder;
    ASSERT_EQ(chmod(folder.path().c_str(), 0777), 0);
    Child child([&] {
        // linkat of a descriptor fails where neither the capability nor /proc is there; forbidding linkat is too much,
        // so an unreadable /proc is imitated by another root directory.
        CHILD_EXPECT(chroot(folder.path().c_str()) == 0 && chdir("/") == 0, "chroot");
        CHILD_EXPECT(become_nobody(), "setuid");
        const auto store = open_or_fail("file:///?io=threads");
        const auto value = filled(5000, 1);
        const auto first = run(*store, put_op("a/key", value, Condition::absent));
        CHILD_EXPECT(first.status == Status::ok, first.error.message);
        const auto second = run(*store, put_op("a/key", value, Condition::absent));
        CHILD_EXPECT(second.status == Status::failed && second.error.code == ErrorCode::precondition, "absent");
        return 0;
    });
    EXPECT_EQ(child.wait(), 0);
    EXPECT_TRUE(std::filesystem::is_empty(folder.path() + "/.kvern-tmp"));
}

}  // namespace
}  // namespace kvern::testing
