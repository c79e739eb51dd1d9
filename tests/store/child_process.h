// SPDX-License-Identifier: Apache-2.0
// Runs a test's part in a process of its own: another user, a seccomp filter, a limit, or a victim of kill -9.
//
// The child forks from the test program while that has no other threads than gtest's, so it may start its own.
#pragma once

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

namespace kvern::testing {

// A child that runs `body` and exits with its result.
class Child {
  public:
    explicit Child(const std::function<int()>& body) {
        std::fflush(nullptr);
        pid_ = fork();
        if (pid_ == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            const int result = body();
            std::fflush(nullptr);
            _exit(result);
        }
    }
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;
    ~Child() {
        if (pid_ > 0) kill();
    }

    // The exit code, or minus the signal that ended it.
    int wait() {
        int status = 0;
        waitpid(pid_, &status, 0);
        pid_ = -1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }
    void kill() {
        ::kill(pid_, SIGKILL);
        wait();
    }

  private:
    pid_t pid_ = -1;
};

// In a child: 0 if the condition holds, else a message and 1.
#define CHILD_EXPECT(condition, message)                                                  \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "child: %s: %s\n", #condition, std::string(message).c_str()); \
            return 1;                                                                     \
        }                                                                                 \
    } while (false)

// In a child: these system calls fail with EPERM from now on, as in a container's default profile.
inline bool forbid(const std::vector<int>& calls) {
    std::vector<sock_filter> filter{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
    for (const int call : calls) {
        filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call), 0, 1));
        filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
    }
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace kvern::testing
