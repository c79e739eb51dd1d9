// SPDX-License-Identifier: Apache-2.0
#include "cli/interrupt.h"

#include <atomic>
#include <csignal>

namespace kvern::cli {
namespace {

std::atomic<bool> seen{false};
static_assert(std::atomic<bool>::is_always_lock_free);  // else a signal handler may not touch it

void remember(int /*signal*/) {
    seen.store(true);
}

}  // namespace

void catch_interrupts() {
    struct sigaction action {};
    action.sa_handler = remember;
    action.sa_flags = static_cast<int>(SA_RESETHAND);  // no SA_RESTART: a read of a terminal must end
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
}

bool interrupted() {
    return seen.load();
}

}  // namespace kvern::cli
