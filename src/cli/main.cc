// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/interrupt.h"

int main(int argc, char** argv) {
    using namespace kvern::cli;
    catch_interrupts();
    const int status = run_command_line(
        argc, argv,
        {put_command(), get_command(), stat_command(), rm_command(), ls_command(), inspect_command(), du_command(),
         gc_command(), fsck_command(), probe_command(), bench_command(), version_command(), serve_command()});
    // A full disk behind stdout shows only here.
    if (std::fflush(stdout) != 0 && status == exit_ok) {
        return complain(exit_failed, "standard output can't be written; what was printed is not complete");
    }
    return status;
}
