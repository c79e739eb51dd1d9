// SPDX-License-Identifier: Apache-2.0
// How a subcommand says what it takes. Its file includes this instead of CLI11, whose header costs ten seconds to
// compile.
//
// Main thread only. Values are bound by reference: they must live as long as the Runner that `define` returns.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace kvern::cli {

class Arguments {
  public:
    virtual ~Arguments() = default;
    virtual void positional(const std::string& name, std::string& value, const std::string& help, bool required) = 0;
    // "--name VALUE"; the value as it stands before parsing is shown as the default.
    virtual void text(const std::string& name, std::string& value, const std::string& help) = 0;
    virtual void number(const std::string& name, std::uint64_t& value, const std::string& help) = 0;
    virtual void size(const std::string& name, std::uint64_t& value, const std::string& help) = 0;  // "4MiB"
    // Without a default: empty where the option is not given.
    virtual void number(const std::string& name, std::optional<std::uint64_t>& value, const std::string& help) = 0;
    virtual void size(const std::string& name, std::optional<std::uint64_t>& value, const std::string& help) = 0;
    virtual void duration(const std::string& name, std::optional<std::chrono::milliseconds>& value,
                          const std::string& help) = 0;  // "12h"
    virtual void flag(const std::string& name, bool& value, const std::string& help) = 0;
    // Shown at the end of --help, one command a line.
    virtual void examples(const std::string& text) = 0;
};

using Runner = std::function<int()>;  // returns the exit status

struct Command {
    std::string name;
    std::string summary;                       // one line
    std::function<Runner(Arguments&)> define;  // empty where there are children
    std::vector<Command> children;
};

// Parses, runs the chosen command and returns the exit status. Errors go to stderr with what was probably meant.
int run_command_line(int argc, char** argv, const std::vector<Command>& commands);

}  // namespace kvern::cli
