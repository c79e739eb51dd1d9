// SPDX-License-Identifier: Apache-2.0
// Becomes another program under the bounds of a strict container: io_uring forbidden by seccomp, little lockable
// memory, an ordinary user.
//
// usage: kvern_confined EPERM|ENOSYS MEMLOCK_BYTES USER_ID COMMAND [ARGUMENTS...]
//
// The errno is what io_uring_setup fails with: EPERM in containers, ENOSYS where the kernel is built without io_uring.
// The user is changed where the caller is root; anybody else keeps theirs. Ends with 125 where a bound can't be set.
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace {

int give_up(const char* what) {
    std::fprintf(stderr, "kvern_confined: %s: %s\n", what, std::strerror(errno));
    return 125;
}

bool limit_locked_memory(rlim_t size_bytes) {
    const rlimit limit{size_bytes, size_bytes};
    return setrlimit(RLIMIT_MEMLOCK, &limit) == 0;
}

bool become(uid_t user) {
    return getuid() != 0 ||
           (setgroups(0, nullptr) == 0 && setresgid(user, user, user) == 0 && setresuid(user, user, user) == 0);
}

bool forbid_io_uring(unsigned error) {
    sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program{sizeof filter / sizeof *filter, filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string_view error = argc > 4 ? argv[1] : "";
    if (error != "EPERM" && error != "ENOSYS") {
        std::fputs("usage: kvern_confined EPERM|ENOSYS MEMLOCK_BYTES USER_ID COMMAND [ARGUMENTS...]\n", stderr);
        return 125;
    }
    if (!limit_locked_memory(std::strtoul(argv[2], nullptr, 10))) return give_up("RLIMIT_MEMLOCK");
    if (!become(static_cast<uid_t>(std::strtoul(argv[3], nullptr, 10)))) return give_up("the user");
    if (!forbid_io_uring(error == "EPERM" ? EPERM : ENOSYS)) return give_up("seccomp");
    execv(argv[4], argv + 4);
    return give_up(argv[4]);
}
