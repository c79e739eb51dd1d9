// SPDX-License-Identifier: Apache-2.0
// The subcommands of kvern: one function and one file each, registered in main.cc.
#pragma once

#include "cli/command_line.h"

namespace kvern::cli {

Command version_command();
Command serve_command();
Command put_command();
Command get_command();
Command stat_command();
Command rm_command();
Command ls_command();
Command inspect_command();
Command gc_command();
Command du_command();
Command fsck_command();
Command probe_command();
Command bench_command();  // kvern bench store

}  // namespace kvern::cli
