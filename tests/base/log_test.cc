// SPDX-License-Identifier: Apache-2.0
// The level is read from the environment once, so each case is a process of its own.
#include "base/log.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace kvern {
namespace {

class LogDeathTest : public ::testing::Test {
  protected:
    void SetUp() override { ::testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};

[[noreturn]] void log_and_end(const char* level) {
    if (level == nullptr) {
        unsetenv("KVERN_LOG");
    } else {
        setenv("KVERN_LOG", level, 1);
    }
    log(LogLevel::debug, "part", "a debug line");
    log(LogLevel::info, "part", "an info line");
    log(LogLevel::warning, "part", "two\nlines {}");
    std::exit(log_enabled(LogLevel::error) ? 0 : 1);
}

TEST_F(LogDeathTest, WarningIsTheDefault) {
    EXPECT_EXIT(log_and_end(nullptr), ::testing::ExitedWithCode(0),
                "^[0-9 :.-]+ warning part: two\\\\x0alines \\{\\}\n$");
}

TEST_F(LogDeathTest, InfoShowsInfo) {
    EXPECT_EXIT(log_and_end("info"), ::testing::ExitedWithCode(0), "^[0-9 :.-]+ info part: an info line\n");
}

TEST_F(LogDeathTest, UnknownLevelIsWarningAndSaidOnce) {
    EXPECT_EXIT(
        log_and_end("wraning"), ::testing::ExitedWithCode(0),
        "KVERN_LOG='wraning' is no level \\(did you mean 'warning'\\?\\); using warning\n[0-9 :.-]+ warning part");
}

}  // namespace
}  // namespace kvern
