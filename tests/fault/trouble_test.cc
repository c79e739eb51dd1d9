// SPDX-License-Identifier: Apache-2.0
// What the system may say no to: space, size, descriptors, rights; and a root that changes under an open store. Each is
// an error that names the path and the system's words, leaves no part of a value, and is over when its cause is.
#include <grp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "store/child_process.h"
#include "store/store_fixture.h"

namespace kvern::testing {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t mib = std::size_t{1} << 20;
constexpr int skipped = 77;

// In a child: mounts a memory file system that only this child sees; also for an ordinary user, where that is allowed.
bool mount_small(const std::string& path, const std::string& options) {
    const auto user = getuid(), group = getgid();
    if (unshare(user == 0 ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER) != 0) return false;
    if (user != 0) {
        std::ofstream("/proc/self/setgroups") << "deny";
        std::ofstream("/proc/self/uid_map") << "0 " << user << " 1";
        std::ofstream("/proc/self/gid_map") << "0 " << group << " 1";
    }
    return mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
           mount("tmpfs", path.c_str(), "tmpfs", 0, options.c_str()) == 0;
}

bool says(const Outcome& outcome, ErrorCode code, const std::string& path, const std::string& words) {
    const auto& text = outcome.error.message;
    const bool right = outcome.status == Status::failed && outcome.error.code == code &&
                       text.find(path) != std::string::npos && text.find(words) != std::string::npos;
    if (!right) fprintf(stderr, "%s: %s\n", std::string(to_string(outcome.error.code)).c_str(), text.c_str());
    return right;
}

bool holds(Store& store, const std::string& key, const Memory& value) {
    const Memory back(value.size_bytes());
    const auto outcome = run(store, get_op(key, {back.buffer()}));
    return outcome.status == Status::ok && back.text() == value.text();
}

bool nothing_temporary(const std::string& root) {
    std::error_code missing;
    for (const auto& entry : fs::directory_iterator(root + "/.kvern-tmp", missing))
        if (entry.path().filename() != "lock") return false;
    return true;
}

class Trouble : public ::testing::TestWithParam<std::string> {
  protected:
    std::string uri(const std::string& root) const { return "file://" + root + "?" + GetParam(); }
    void in_child(const std::function<int()>& body) {
        Child child(body);
        const int result = child.wait();
        if (result == skipped) GTEST_SKIP() << "NOT TESTED: neither root nor a user namespace that may mount";
        EXPECT_EQ(result, 0);
    }
    TempFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(Ways, Trouble, ::testing::Values("io=auto", "io=threads&direct=off"),
                         [](const auto& one) { return std::string(one.param == "io=auto" ? "auto" : "threads"); });

// REQUIRES: a full file system, or one without inodes, with "small" in it.
int check_full(const std::string& root, Store& store, const Memory& small, const Memory& big) {
    for (const auto condition : {Condition::any, Condition::absent}) {
        CHILD_EXPECT(says(run(store, put_op("folder/big", big, condition)), ErrorCode::no_space, root + "/folder/big",
                          "No space left"),
                     "put");
        CHILD_EXPECT(run(store, plain_op(OpKind::stat, "folder/big")).status == Status::miss, "a part is visible");
        CHILD_EXPECT(nothing_temporary(root), "a temporary is left");
        CHILD_EXPECT(holds(store, "small", small), "gets must go on");
    }
    return 0;
}

TEST_P(Trouble, AFullDiskFailsPutsByNameAndIsOverWhenSpaceIsFreed) {
    const auto root = folder_.path();
    in_child([&] {
        if (!mount_small(root, "size=4m")) return skipped;
        const auto store = open_or_fail(uri(root));
        const auto small = filled(100000, 1), filler = filled(3 * mib, 2), big = filled(2 * mib, 3);
        CHILD_EXPECT(run(*store, put_op("small", small)).status == Status::ok, "small");
        CHILD_EXPECT(run(*store, put_op("filler", filler)).status == Status::ok, "filler");
        if (const int wrong = check_full(root, *store, small, big); wrong != 0) return wrong;
        // A value that is replaced is there whole until the new one is.
        CHILD_EXPECT(says(run(*store, put_op("small", big)), ErrorCode::no_space, root + "/small", "No space left"),
                     "");
        CHILD_EXPECT(holds(*store, "small", small), "the old value");
        CHILD_EXPECT(run(*store, plain_op(OpKind::remove, "filler")).status == Status::ok, "removing needs no space");
        CHILD_EXPECT(run(*store, put_op("folder/big", big)).status == Status::ok, "there is room again");
        CHILD_EXPECT(holds(*store, "folder/big", big), "bytes");
        return 0;
    });
}

TEST_P(Trouble, AFileSystemWithoutInodesSaysTheSame) {
    const auto root = folder_.path();
    in_child([&] {
        if (!mount_small(root, "size=8m,nr_inodes=16")) return skipped;
        const auto store = open_or_fail(uri(root));
        const auto small = filled(1000, 1);
        CHILD_EXPECT(run(*store, put_op("small", small)).status == Status::ok, "small");
        fs::create_directory(root + "/folder");
        int files = 0;
        while (std::ofstream(root + "/filler" + std::to_string(files)).good()) ++files;
        CHILD_EXPECT(files > 0 && files < 16, std::to_string(files));
        if (const int wrong = check_full(root, *store, small, small); wrong != 0) return wrong;
        fs::remove(root + "/filler0");
        CHILD_EXPECT(run(*store, put_op("folder/big", small)).status == Status::ok, "there is an inode again");
        return 0;
    });
}

TEST_P(Trouble, ALimitOfFileSizesIsAnErrorAndNoSignal) {
    const auto root = folder_.path();
    in_child([&] {
        const auto store = open_or_fail(uri(root));
        const auto small = filled(mib / 2, 1), big = filled(3 * mib, 2);
        const rlimit limit{mib, RLIM_INFINITY};
        CHILD_EXPECT(setrlimit(RLIMIT_FSIZE, &limit) == 0, "setrlimit");
        CHILD_EXPECT(run(*store, put_op("small", small)).status == Status::ok, "below the limit");
        CHILD_EXPECT(says(run(*store, put_op("big", big)), ErrorCode::io, root + "/big", "File too large"), "put");
        CHILD_EXPECT(run(*store, plain_op(OpKind::stat, "big")).status == Status::miss, "a part is visible");
        CHILD_EXPECT(nothing_temporary(root), "a temporary is left");
        CHILD_EXPECT(holds(*store, "small", small), "gets must go on");
        return 0;
    });
}

TEST_P(Trouble, WithoutDescriptorsOperationsFailAndNothingElse) {
    const auto root = folder_.path();
    in_child([&] {
        const auto store = open_or_fail(uri(root));
        const auto value = filled(100000, 1);
        CHILD_EXPECT(run(*store, put_op("folder/key", value)).status == Status::ok, "put");
        CHILD_EXPECT(holds(*store, "folder/key", value), "get");  // all threads run now
        rlimit before{};
        getrlimit(RLIMIT_NOFILE, &before);
        CompletionQueue queue;  // needs one itself
        const Memory back(100000);
        std::vector<Op> ops{get_op("folder/key", {back.buffer()}), put_op("folder/new", value),
                            put_op("folder/absent", value, Condition::absent), plain_op(OpKind::list)};
        const rlimit none{3, before.rlim_max};  // only those that are open already; poll needs more than 0
        CHILD_EXPECT(setrlimit(RLIMIT_NOFILE, &none) == 0, "setrlimit");
        store->submit(ops, queue);
        const auto answers = collect(queue, ops.size());
        CHILD_EXPECT(setrlimit(RLIMIT_NOFILE, &before) == 0, "setrlimit");
        for (const auto& answer : answers)
            CHILD_EXPECT(says(answer.outcome, ErrorCode::resource, root, "Too many open files"), "descriptors");
        CHILD_EXPECT(run(*store, plain_op(OpKind::stat, "folder/new")).status == Status::miss, "a part is visible");
        CHILD_EXPECT(holds(*store, "folder/key", value), "get");
        CHILD_EXPECT(run(*store, put_op("folder/new", value)).status == Status::ok, "put");
        return 0;
    });
}

TEST_P(Trouble, ARootThatTurnsReadOnlyCanStillBeRead) {
    const auto root = folder_.path();
    in_child([&] {
        if (!mount_small(root, "size=4m")) return skipped;
        const auto store = open_or_fail(uri(root));
        const auto value = filled(5000, 1);
        CHILD_EXPECT(run(*store, put_op("key", value)).status == Status::ok, "put");
        CHILD_EXPECT(mount(nullptr, root.c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) == 0, "remount");
        CHILD_EXPECT(says(run(*store, put_op("new", value)), ErrorCode::permission, root + "/new", "Read-only"), "put");
        CHILD_EXPECT(
            says(run(*store, plain_op(OpKind::remove, "key")), ErrorCode::permission, root + "/key", "Read-only"), "");
        CHILD_EXPECT(holds(*store, "key", value), "get");
        CHILD_EXPECT(mount(nullptr, root.c_str(), nullptr, MS_REMOUNT, nullptr) == 0, "remount");
        CHILD_EXPECT(run(*store, put_op("new", value)).status == Status::ok, "put");
        return 0;
    });
}

TEST_P(Trouble, ARootThatLosesItsRightsFailsPutsAndComesBack) {
    const auto root = folder_.path() + "/root";
    fs::create_directory(root);
    ASSERT_EQ(chmod(folder_.path().c_str(), 0755), 0);
    if (getuid() == 0) {
        ASSERT_EQ(chown(root.c_str(), 65534, 65534), 0);
    }
    in_child([&] {
        if (getuid() == 0) {  // root is above all rights
            CHILD_EXPECT(setgroups(0, nullptr) == 0 && setgid(65534) == 0 && setuid(65534) == 0, "setuid");
        }
        const auto store = open_or_fail(uri(root));
        const auto value = filled(5000, 1);
        CHILD_EXPECT(run(*store, put_op("key", value)).status == Status::ok, "put");
        CHILD_EXPECT(chmod((root + "/.kvern-tmp").c_str(), 0500) == 0 && chmod(root.c_str(), 0500) == 0, "chmod");
        for (const auto condition : {Condition::any, Condition::absent})
            CHILD_EXPECT(says(run(*store, put_op("new", value, condition)), ErrorCode::permission, root + "/new",
                              "Permission denied"),
                         "put");
        CHILD_EXPECT(holds(*store, "key", value), "get");
        CHILD_EXPECT(chmod((root + "/.kvern-tmp").c_str(), 0700) == 0 && chmod(root.c_str(), 0700) == 0, "chmod");
        CHILD_EXPECT(run(*store, put_op("new", value)).status == Status::ok, "put");
        return 0;
    });
}

TEST_P(Trouble, ARootThatIsRemovedGivesMissesAndErrorsAndNeverCrashes) {
    const auto root = folder_.path() + "/root";
    fs::create_directory(root);
    const auto store = open_or_fail(uri(root));
    const auto value = filled(5000, 1);
    ASSERT_EQ(run(*store, put_op("folder/key", value)).status, Status::ok);
    fs::remove_all(root);
    const Memory back(5000);
    EXPECT_EQ(run(*store, get_op("folder/key", {back.buffer()})).status, Status::miss);
    EXPECT_EQ(run(*store, plain_op(OpKind::stat, "folder/key")).status, Status::miss);
    for (const auto condition : {Condition::any, Condition::absent}) {
        const auto outcome = run(*store, put_op("folder/key", value, condition));
        EXPECT_EQ(outcome.status, Status::failed);
        EXPECT_NE(outcome.error.message.find(root), std::string::npos) << outcome.error.message;
    }
    // Another folder of the same name is not the one that was opened: nothing is written there unseen.
    fs::create_directory(root);
    EXPECT_EQ(run(*store, put_op("folder/key", value)).status, Status::failed);
    EXPECT_TRUE(fs::is_empty(root));
    EXPECT_TRUE(store->close(std::chrono::seconds(30)));
    const auto again = open_or_fail(uri(root));
    EXPECT_EQ(run(*again, put_op("folder/key", value)).status, Status::ok);
}

}  // namespace
}  // namespace kvern::testing
