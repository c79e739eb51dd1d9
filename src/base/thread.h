// SPDX-License-Identifier: Apache-2.0
// Threads of Kvern: named, and counted, so that "what does it cost" has an answer inside somebody else's process.
#pragma once

#include <functional>
#include <thread>

namespace kvern {

// Starts a thread named `name` (a literal of at most 15 characters) with all signals blocked. The caller joins or
// detaches it. Throws std::system_error as std::thread does when there can be no further thread.
std::thread start_thread(const char* name, std::function<void()> body);

// CPU seconds (user and system) of all threads started so, running and ended. Any thread; about 0.2 µs a running
// thread.
double thread_cpu_seconds();

}  // namespace kvern
