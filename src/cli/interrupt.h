// SPDX-License-Identifier: Apache-2.0
// SIGINT and SIGTERM as a question instead of a sudden end, so that half-done work can be undone.
#pragma once

namespace kvern::cli {

// From here on the first SIGINT or SIGTERM only sets interrupted(); blocking system calls end with EINTR. The second
// one kills: whoever presses twice doesn't want to wait for a store that hangs. Call once, from the main thread.
void catch_interrupts();

bool interrupted();  // any thread

}  // namespace kvern::cli
