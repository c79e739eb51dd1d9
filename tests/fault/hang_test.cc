// SPDX-License-Identifier: Apache-2.0
// A mount whose server is gone. Nothing that the engine's threads call waits for it: submit() returns at once, others
// are answered, close() keeps its limit, and the process can end.
#include <signal.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/statfs.h>
#include <sys/wait.h>

#include <fstream>
#include <thread>

#include "store/child_process.h"
#include "store/store_fixture.h"

namespace kvern::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using SteadyClock = std::chrono::steady_clock;

#ifdef KVERN_HANGING_MOUNT
constexpr const char* program_path = KVERN_HANGING_MOUNT;
#else
constexpr const char* program_path = "";
#endif

double since(SteadyClock::time_point begin) {
    return std::chrono::duration<double>(SteadyClock::now() - begin).count();
}

// hanging_mount on a folder of its own. Whatever a test leaves, the destructor ends: killing the server answers every
// request that hangs.
class HangingMount {
  public:
    HangingMount() {
        for (const auto* name : {"/source", "/mount"}) std::filesystem::create_directory(folder_.path() + name);
        std::string program = program_path, source = folder_.path() + "/source", control = folder_.path() + "/control";
        auto mounted = path();
        char* const arguments[] = {program.data(), source.data(), control.data(), mounted.data(), nullptr};
        if (program.empty() || posix_spawn(&pid_, program.c_str(), nullptr, nullptr, arguments, environ) != 0) return;
        for (int i = 0; i < 2000 && !is_mounted() && waitpid(pid_, nullptr, WNOHANG) == 0; ++i)
            std::this_thread::sleep_for(milliseconds(5));
    }
    HangingMount(const HangingMount&) = delete;
    HangingMount& operator=(const HangingMount&) = delete;
    ~HangingMount() {
        if (pid_ < 0) return;
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
        if (umount2(path().c_str(), MNT_DETACH) != 0) {
            [[maybe_unused]] const int done = std::system(("fusermount3 -uz " + path()).c_str());
        }
        std::ifstream mounts("/proc/self/mounts");
        const std::string all{std::istreambuf_iterator<char>(mounts), {}};
        EXPECT_EQ(all.find(path()), std::string::npos) << "the mount is left over";
    }

    bool is_mounted() const {
        struct statfs status {};
        return statfs(path().c_str(), &status) == 0 && status.f_type == 0x65735546;
    }
    std::string path() const { return folder_.path() + "/mount"; }
    std::string uri(const std::string& params) const { return "file://" + path() + "?" + params; }
    void tell(const std::string& words) const {
        std::ofstream(folder_.path() + "/control.new") << words;
        std::filesystem::rename(folder_.path() + "/control.new", folder_.path() + "/control");
    }
    // Returns when no thread of the server runs any more. Then every request stays in the kernel's queue, where a
    // signal that kills its process frees it; one that the server has taken would keep its process until the mount is
    // ended.
    void stop() const {
        kill(pid_, SIGSTOP);
        while (running_threads() > 0) std::this_thread::sleep_for(milliseconds(1));
    }
    void go_on() const { kill(pid_, SIGCONT); }

  private:
    std::size_t running_threads() const {
        std::size_t count = 0;
        for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(pid_) + "/task")) {
            std::ifstream file(task.path() / "status");
            std::string word;
            while (file >> word && word != "State:") {
            }
            file >> word;
            count += word != "T";
        }
        return count;
    }

    TempFolder folder_;
    pid_t pid_ = -1;
};

#define SKIP_WITHOUT_MOUNT(mount)                                                                              \
    if (!(mount).is_mounted())                                                                                 \
    GTEST_SKIP()                                                                                               \
        << "NOT TESTED: no FUSE mount here (libfuse3-dev at build time, /dev/fuse and the right to mount are " \
           "needed)"

class HungMount : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Ways, HungMount, ::testing::Values("io=auto", "io=threads", "io=auto&direct=off"),
                         [](const auto& one) {
                             auto name = one.param;
                             std::replace_if(
                                 name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
                             return name;
                         });

// Everything at once, on a store that answers nothing.
int submit_to_nobody(const HangingMount& mount, Store& store, Region& region) {
    auto lease = region.try_lease(1 << 20);
    CompletionQueue queue;
    std::vector<Op> ops;
    for (int i = 0; i < 40; ++i) {
        ops.push_back(plain_op(OpKind::stat, "key"));
        ops.push_back(get_op("key", {Buffer{lease->data(), 100000}}));
        auto put = plain_op(OpKind::put, "new" + std::to_string(i));
        put.buffers = {{lease->data(), 100000}};
        ops.push_back(put);
        ops.push_back(plain_op(OpKind::list));
    }
    mount.stop();
    auto begin = SteadyClock::now();
    store.submit(ops, queue);
    CHILD_EXPECT(since(begin) < 0.5, "submit waited");
    CHILD_EXPECT(!queue.wait(milliseconds(100)), "something was answered");
    begin = SteadyClock::now();
    const bool ended = store.close(milliseconds(500));
    CHILD_EXPECT(!ended, "nothing can have ended");
    CHILD_EXPECT(since(begin) < 3, "close waited longer than its limit");
    const auto cancelled = queue.drain().size();
    CHILD_EXPECT(cancelled > 0 && cancelled < ops.size(), std::to_string(cancelled) + " were cancelled");
    static_cast<void>(new Lease(std::move(*lease)));  // held back for good: a read may still land there
    return 0;
}

TEST_P(HungMount, NeitherSubmitNorCloseNorTheEndOfTheProcessWaits) {
    const HangingMount mount;
    SKIP_WITHOUT_MOUNT(mount);
    Child child([&] {
        auto store = open_or_fail(mount.uri(GetParam()));
        const auto region = Region::create({.name = "test", .size_bytes = 4 << 20});
        store->attach(*region);
        const auto value = filled(100000, 1);
        CHILD_EXPECT(run(*store, put_op("key", value)).status == Status::ok, "put");
        return submit_to_nobody(mount, *store, **region);
    });
    const auto begin = SteadyClock::now();
    EXPECT_EQ(child.wait(), 0);
    EXPECT_LT(since(begin), 15);
}

TEST_P(HungMount, OthersAreAnsweredWhileReadsHang) {
    const HangingMount mount;
    SKIP_WITHOUT_MOUNT(mount);
    const auto store = open_or_fail(mount.uri(GetParam()));
    const auto value = filled(100000, 1);
    ASSERT_EQ(run(*store, put_op("key", value)).status, Status::ok);
    mount.tell("read");
    std::vector<Memory> back;
    CompletionQueue queue;
    std::vector<Op> gets;
    for (int i = 0; i < 4; ++i) {
        back.emplace_back(100000);
        gets.push_back(get_op("key", {back.back().buffer()}));
    }
    store->submit(gets, queue);
    EXPECT_EQ(run(*store, plain_op(OpKind::stat, "key"), seconds(10)).status, Status::ok);
    EXPECT_EQ(run(*store, plain_op(OpKind::list), seconds(10)).entries.size(), 1U);
    const auto other = std::make_shared<Memory>(filled(5000, 2));
    EXPECT_EQ(run(*store, put_op("other", *other), seconds(10), other).status, Status::ok);
    EXPECT_TRUE(queue.drain().empty());
    mount.tell("");
    for (const auto& answer : collect(queue, 4))
        EXPECT_EQ(answer.outcome.status, Status::ok) << answer.outcome.error.message;
    for (const auto& one : back) EXPECT_EQ(one.text(), value.text());
}

TEST_P(HungMount, GoesOnWhereItWasOnceTheServerIsBack) {
    const HangingMount mount;
    SKIP_WITHOUT_MOUNT(mount);
    const auto store = open_or_fail(mount.uri(GetParam()));
    const auto value = filled(100000, 1);
    ASSERT_EQ(run(*store, put_op("key", value)).status, Status::ok);
    mount.stop();
    const auto begin = SteadyClock::now();
    const auto outcome = run(*store, plain_op(OpKind::stat, "key"), milliseconds(200));
    EXPECT_LT(since(begin), 2);
    EXPECT_FAILED(outcome, ErrorCode::unavailable);
    EXPECT_NE(outcome.error.message.find(mount.path()), std::string::npos) << outcome.error.message;
    mount.go_on();
    const Memory back(100000);
    EXPECT_EQ(run(*store, get_op("key", {back.buffer()}), seconds(30)).status, Status::ok);
    EXPECT_EQ(back.text(), value.text());
    EXPECT_TRUE(store->close(seconds(30)));
}

TEST_P(HungMount, AnswersOfTheServerAreNamed) {
    const HangingMount mount;
    SKIP_WITHOUT_MOUNT(mount);
    const auto store = open_or_fail(mount.uri(GetParam()));
    const auto value = filled(100000, 1);
    ASSERT_EQ(run(*store, put_op("key", value)).status, Status::ok);
    const Memory back(100000);
    mount.tell("open=" + std::to_string(ESTALE));
    auto outcome = run(*store, get_op("key", {back.buffer()}), seconds(10));
    EXPECT_FAILED(outcome, ErrorCode::io);
    EXPECT_NE(outcome.error.message.find("Stale file handle"), std::string::npos) << outcome.error.message;
    EXPECT_NE(outcome.error.message.find(mount.path() + "/key"), std::string::npos) << outcome.error.message;
    mount.tell("write=" + std::to_string(EDQUOT));
    outcome = run(*store, put_op("other", value), seconds(10));
    EXPECT_FAILED(outcome, ErrorCode::no_space);
    EXPECT_NE(outcome.error.message.find("quota"), std::string::npos) << outcome.error.message;
    EXPECT_EQ(run(*store, plain_op(OpKind::stat, "other"), seconds(10)).status, Status::miss);
    mount.tell("");
    EXPECT_EQ(run(*store, get_op("key", {back.buffer()}), seconds(10)).status, Status::ok);
    EXPECT_EQ(back.text(), value.text());
    EXPECT_EQ(run(*store, put_op("other", value), seconds(10)).status, Status::ok);
}

TEST(OpenStore, SaysThatAHungMountGivesNoAnswer) {
    const HangingMount mount;
    SKIP_WITHOUT_MOUNT(mount);
    mount.stop();
    Child child([&] {
        const auto begin = SteadyClock::now();
        const auto store = open_store(mount.uri("io=auto"));
        CHILD_EXPECT(!store && store.error().code == ErrorCode::unavailable, "it opened");
        CHILD_EXPECT(store.error().message.find(mount.path()) != std::string::npos, store.error().message);
        CHILD_EXPECT(store.error().message.find("check that the server") != std::string::npos, store.error().message);
        CHILD_EXPECT(since(begin) < 13, "later than its limit");
        return 0;
    });
    EXPECT_EQ(child.wait(), 0);
}

}  // namespace
}  // namespace kvern::testing
