// SPDX-License-Identifier: Apache-2.0
#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace kvern::cli {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds quiet_start{2000};  // where stderr is no terminal
constexpr milliseconds line_interval{10'000};
constexpr milliseconds terminal_interval{100};

}  // namespace

Progress::Progress()
    : terminal_(isatty(STDERR_FILENO) == 1), next_(start_ + (terminal_ ? terminal_interval : quiet_start)) {}

void Progress::show(const std::string& text) {
    if (!due()) return;
    next_ = std::chrono::steady_clock::now() + (terminal_ ? terminal_interval : line_interval);
    fmt::print(stderr, "{}{}{}", terminal_ ? "\r\033[K" : "", text, terminal_ ? "" : "\n");
    std::fflush(stderr);
    shown_ = true;
}

void Progress::clear() {
    if (terminal_ && shown_) fmt::print(stderr, "\r\033[K");
    shown_ = false;
}

}  // namespace kvern::cli
