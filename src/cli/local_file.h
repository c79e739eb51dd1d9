// SPDX-License-Identifier: Apache-2.0
// The local ends of put and get: a file or "-" (standard input or output). Main thread only; no knowledge of stores.
#pragma once

#include <span>
#include <string>

#include "kvern/result.h"

namespace kvern::cli {

class Input {
  public:
    static Result<Input> open(const std::string& path);  // "-" is standard input
    Input(Input&& other) noexcept;
    Input& operator=(Input&&) = delete;
    ~Input();

    // Reads until `into` is full or the input ends (then fewer bytes). cancelled if interrupted.
    Result<std::size_t> read(std::span<std::byte> into);

  private:
    Input(int fd, std::string name) : fd_(fd), name_(std::move(name)) {}
    int fd_;
    std::string name_;
};

// Bytes go to a temporary file beside `path`, which takes its place in publish(); without that call nothing is left of
// them. Standard output, devices and pipes are written as they are.
class Output {
  public:
    static Result<Output> open(const std::string& path);  // "-" is standard output
    Output(Output&& other) noexcept;
    Output& operator=(Output&&) = delete;
    ~Output();

    Result<void> write(std::span<const std::byte> bytes);
    Result<void> publish();  // once, at the end

  private:
    Output(int fd, std::string name, std::string temporary)
        : fd_(fd), name_(std::move(name)), temporary_(std::move(temporary)) {}
    int fd_;
    std::string name_;
    std::string temporary_;  // empty: there is none
};

}  // namespace kvern::cli
