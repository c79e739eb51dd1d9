// SPDX-License-Identifier: Apache-2.0
// crash_writer URI: opens the store and goes through the script; one byte on standard output for each step that was
// answered.
#include <unistd.h>

#include <cstdio>

#include "fault/crash_script.h"

int main(int argc, char** argv) {
    using namespace kvern;
    if (argc != 2) return 2;
    auto store = open_store(argv[1]);
    if (!store) return fprintf(stderr, "%s\n", store.error().message.c_str()), 1;
    for (const auto& step : kvern::testing::script()) {
        const auto wrong = kvern::testing::do_step(**store, step);
        if (!wrong.empty()) return fprintf(stderr, "%s\n", wrong.c_str()), 1;
        if (::write(STDOUT_FILENO, ".", 1) != 1) return 1;
    }
    return (*store)->close(std::chrono::seconds(60)) ? 0 : 1;
}
