// SPDX-License-Identifier: Apache-2.0
// A writer dies before, after, and in the middle of every call by which it changes the file system. What is there
// afterwards is what was there before the step or after it, whole; left-overs are few and are collected; the same keys
// can be put again.
#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "fault/crash_script.h"
#include "store/child_process.h"

namespace kvern::testing {
namespace {

namespace fs = std::filesystem;

struct Run {
    int status = 0;         // of wait
    std::size_t steps = 0;  // answered
    std::size_t calls = 0;  // counted, if it came to its end
};

// Runs the writer with the shim in it.
Run write_and_die(const std::string& uri, const std::string& seen_path, const std::string& mode, std::size_t at) {
    int pipe_fds[2];
    EXPECT_EQ(pipe2(pipe_fds, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], STDOUT_FILENO);
    std::vector<std::string> environment{"LD_PRELOAD=" KVERN_CRASH_SHIM, "KVERN_CRASH_MODE=" + mode,
                                         "KVERN_CRASH_AT=" + std::to_string(at), "KVERN_CRASH_SEEN=" + seen_path};
    std::vector<char*> variables;
    for (auto& variable : environment) variables.push_back(variable.data());
    variables.push_back(nullptr);
    std::string program = KVERN_CRASH_WRITER, target = uri;
    char* const arguments[] = {program.data(), target.data(), nullptr};
    pid_t pid = -1;
    EXPECT_EQ(posix_spawn(&pid, program.c_str(), &actions, nullptr, arguments, variables.data()), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(pipe_fds[1]);
    Run result;
    char byte = 0;
    while (read(pipe_fds[0], &byte, 1) == 1) ++result.steps;
    close(pipe_fds[0]);
    waitpid(pid, &result.status, 0);
    std::ifstream(seen_path) >> result.calls;
    return result;
}

// All keys and the versions of their bytes; 0 is a value that was never put whole.
State state_of(Store& store) {
    State state;
    const auto list = plain_op(OpKind::list);
    const auto listed = run(store, list);
    EXPECT_OK(list, listed);
    for (const auto& entry : listed.entries) {
        const Memory bytes(entry.size_bytes);
        const auto get = get_op(entry.key, {bytes.buffer()});
        EXPECT_OK(get, run(store, get));
        state[entry.key] = version_of(bytes);
    }
    return state;
}

std::string shown(const State& state) {
    std::string text;
    for (const auto& [key, version] : state) text += key + "=" + std::to_string(version) + " ";
    return text;
}

std::vector<fs::path> temporaries(const std::string& root) {
    std::vector<fs::path> found;
    std::error_code missing;
    for (const auto& entry : fs::directory_iterator(root + "/.kvern-tmp", missing))
        if (entry.path().filename() != "lock") found.push_back(entry.path());
    return found;
}

// As if they had been left two hours ago; a store that opens collects them.
void check_collection(const std::string& root, const std::string& uri) {
    const auto left = temporaries(root);
    EXPECT_LE(left.size(), 2U);
    for (const auto& path : left) fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(2));
    if (left.empty()) return;
    const auto store = open_or_fail(uri);
    for (int i = 0; i < 5000 && !temporaries(root).empty(); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(temporaries(root).empty()) << "old temporaries stay";
}

void check_what_is_left(const std::string& root, const std::string& uri, std::size_t steps) {
    State before, after;
    for (std::size_t i = 0; i < script().size() && i <= steps; ++i) {
        if (i < steps) apply(script()[i], before);
        apply(script()[i], after);
    }
    {
        const auto store = open_or_fail(uri);
        const auto now = state_of(*store);
        EXPECT_TRUE(now == before || now == after)
            << "is " << shown(now) << ", was " << shown(before) << ", was to be " << shown(after);
        EXPECT_LE(temporaries(root).size(), 2U);
    }
    check_collection(root, uri);
    const auto store = open_or_fail(uri);
    for (const auto& [key, version] : state_of(*store))
        EXPECT_EQ(run(*store, plain_op(OpKind::remove, key)).status, Status::ok);
    for (const auto& step : script()) EXPECT_EQ(do_step(*store, step), "");
    EXPECT_TRUE(temporaries(root).empty());
}

class CrashPoints : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {};
INSTANTIATE_TEST_SUITE_P(All, CrashPoints,
                         ::testing::Combine(::testing::Values("before", "after", "half"),
                                            ::testing::Values("io=auto", "io=threads&direct=off")),
                         [](const auto& one) {
                             return std::get<0>(one.param) +
                                    (std::get<1>(one.param) == "io=auto" ? "_auto" : "_threads");
                         });

TEST_P(CrashPoints, LeaveWholeObjectsAndAStoreThatWorks) {
    const auto& [mode, params] = GetParam();
    std::size_t points = 0;
    for (std::size_t at = 1;; ++at) {
        SCOPED_TRACE("call " + std::to_string(at));
        const TempFolder folder;
        const auto root = folder.path() + "/root";
        fs::create_directory(root);
        const auto uri = "file://" + root + "?" + params;
        const auto done = write_and_die(uri, folder.path() + "/seen", mode, at);
        // In a fresh process: what the writer had in memory is gone.
        Child check([&] {
            check_what_is_left(root, uri, done.steps);
            return ::testing::Test::HasFailure() ? 1 : 0;
        });
        ASSERT_EQ(check.wait(), 0);
        if (WIFEXITED(done.status)) {
            ASSERT_EQ(WEXITSTATUS(done.status), 0);
            EXPECT_EQ(done.steps, script().size());
            EXPECT_EQ(done.calls, points) << "not every call was a crash point";
            break;
        }
        ASSERT_TRUE(WIFSIGNALED(done.status) && WTERMSIG(done.status) == SIGKILL) << done.status;
        points = at;
    }
    printf("%zu crash points\n", points);
    EXPECT_GE(points, mode == "half" ? 9U : 40U);  // else calls go another way than through the shim
}

}  // namespace
}  // namespace kvern::testing
