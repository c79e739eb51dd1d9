// SPDX-License-Identifier: Apache-2.0
// What the loops that move bytes have in common: their command line, and the line of JSON that they print.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace kvern::bench {

struct LoopOptions {
    std::vector<std::string> words;  // what is no option
    std::size_t depth = 8, bytes = 4 << 20;
    double seconds = 3;
    bool put = false;
};

[[noreturn]] inline void die(const std::string& why) {
    fmt::print(stderr, "bench: {}\n", why);
    std::exit(1);
}

// --depth N --bytes B --seconds S [--put 1] WORD...
inline LoopOptions parse_loop(int argc, char** argv) {
    LoopOptions options;
    for (int i = 1; i < argc; ++i) {
        const std::string name = argv[i];
        if (!name.starts_with("--")) {
            options.words.push_back(name);
            continue;
        }
        if (i + 1 == argc) die(name + " needs a value");
        const char* const value = argv[++i];
        if (name == "--depth") {
            options.depth = std::strtoul(value, nullptr, 10);
        } else if (name == "--bytes") {
            options.bytes = std::strtoul(value, nullptr, 10);
        } else if (name == "--seconds") {
            options.seconds = std::strtod(value, nullptr);
        } else if (name == "--put") {
            options.put = std::strtoul(value, nullptr, 10) != 0;
        } else {
            die("unknown option " + name);
        }
    }
    return options;
}

struct LoopResult {
    double seconds = 0;
    double client_cpu_seconds = 0;
    double server_cpu_seconds = -1;  // below 0: whoever started this knows
    std::uint64_t bytes = 0;
    std::vector<double> latencies;  // seconds, of each transfer; at least one
};

// As http_plain prints.
inline void print(LoopResult result) {
    auto& latencies = result.latencies;
    std::sort(latencies.begin(), latencies.end());
    const auto at = [&](double part) {
        return latencies[static_cast<std::size_t>(static_cast<double>(latencies.size() - 1) * part)] * 1e6;
    };
    const auto gigabytes = static_cast<double>(result.bytes) * 1e-9;
    const auto count = static_cast<double>(latencies.size());
    const auto server = result.server_cpu_seconds < 0
                            ? std::string()
                            : fmt::format("\"server_cpu_s_per_gb\": {:.4f}, ", result.server_cpu_seconds / gigabytes);
    fmt::print(
        "{{\"gb_per_s\": {:.4f}, \"cpu_s_per_gb\": {:.4f}, {}\"requests_per_s\": {:.1f}, \"cpu_us_per_request\": "
        "{:.2f}, "
        "\"p50_us\": {:.1f}, \"p99_us\": {:.1f}}}\n",
        gigabytes / result.seconds, result.client_cpu_seconds / gigabytes, server, count / result.seconds,
        result.client_cpu_seconds * 1e6 / count, at(0.5), at(0.99));
}

}  // namespace kvern::bench
