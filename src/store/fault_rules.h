// SPDX-License-Identifier: Apache-2.0
// Which operations of a fault store get which fault: rules out of a JSON file that may change at any time.
//
// Any thread. The file is looked at inside decide() and refresh(), at most every limits::fault_check, and read again
// when its inode, size or mtime changed; it should be on a local disk. A file that is missing means no rules; one that
// can't be understood is logged with the reason, and the rules before it stay. docs/operations.md describes the file.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "kvern/store.h"

namespace kvern {

enum class Fault : std::uint8_t {
    error,  // failed(io) at once
    busy,   // busy at once
    stall,  // begins only after `ms`; without ms when the rule is gone, or never
    drip,   // the answer comes no faster than `bytes_per_second`
    cut,    // a part of the bytes is moved, and that is reported as failed
    torn,   // a part of the bytes is moved, and that is reported as ok
    flip,   // one bit is wrong: of what a get delivers, of what a put stores
    lost,   // a put or remove says ok and does nothing
    gone,   // a get or stat of what is there is a miss
    late,   // the bytes of a get come after `ms`, and then it fails
    count
};
inline constexpr std::array<std::string_view, static_cast<std::size_t>(Fault::count)> fault_names = {
    "error", "busy", "stall", "drip", "cut", "torn", "flip", "lost", "gone", "late"};

// What is to happen to one operation.
struct Injection {
    Fault fault = Fault::error;
    std::optional<std::chrono::milliseconds> wait;  // stall: none is "until the rules change"
    double bytes_per_second = 0;
    std::uint64_t random = 0;  // for choices within the fault
};

inline constexpr std::size_t op_kinds = static_cast<std::size_t>(OpKind::space) + 1;

struct FaultRule {
    Fault fault = Fault::error;
    std::array<bool, op_kinds> kinds{};  // by OpKind
    std::string keys = "*";              // a pattern of the whole key; '*' and '?' match '/' too
    double probability = 1;
    std::uint64_t every = 1;  // each n-th operation that matches
    std::uint64_t times = ~std::uint64_t{0};
    std::optional<std::chrono::milliseconds> wait;
    double bytes_per_second = 0;
    std::mt19937_64 random;
    std::uint64_t matched = 0, fired = 0;
};

// The rules of a control file; the error names the rule, the field and what is possible.
Result<std::vector<FaultRule>> parse_fault_rules(std::string_view json);

class FaultRules {
  public:
    explicit FaultRules(std::string path) : path_(std::move(path)) {}

    // Reads the file for the first time; unlike later, a file that can't be understood is an error.
    Result<void> open();
    // The first rule that matches and fires. An operation that breaks a rule of the interface gets none.
    std::optional<Injection> decide(const Op& op);
    // Looks at the file where it is time to, without an operation.
    void refresh();
    // Grows each time other rules are read.
    std::uint64_t generation() const;
    // A fault took effect.
    void count(Fault fault);
    // "3 rules of /run/faults.json; injected: error 12, stall 1".
    std::string describe() const;

  private:
    struct Version {
        std::uint64_t inode = 0, size_bytes = 0;
        std::int64_t mtime_ns = 0;
        bool operator==(const Version&) const = default;
    };
    // All below: REQUIRES mutex_ held.
    Result<bool> read();  // true: there are new rules
    void look();
    std::string text() const;

    const std::string path_;
    mutable std::mutex mutex_;
    std::vector<FaultRule> rules_;
    Version version_;
    std::chrono::steady_clock::time_point next_look_{};
    std::uint64_t generation_ = 0;
    std::array<std::uint64_t, static_cast<std::size_t>(Fault::count)> counts_{};
};

}  // namespace kvern
