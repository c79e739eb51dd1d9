// SPDX-License-Identifier: Apache-2.0
// What `kvern bench store` found, as a table for people or as JSON. Pure functions but for the printing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kvern::cli {

struct BenchLoop {
    std::string name;
    double gbps = 0;
    double cpu_s_per_gb = 0;
};

struct BenchRow {
    std::string op;  // "put" or "get"
    std::uint64_t size_bytes = 0;
    unsigned depth = 0;
    std::string mode;    // "direct" or "cached"
    std::string engine;  // scheme of the URI
    std::string path;    // Store::describe()
    unsigned cores = 0;
    double gbps = 0;  // 1e9 bytes a second, best round
    double cpu_s_per_gb = 0;
    double p50_us = 0;
    double p99_us = 0;
    // All plain loops in the same rounds, and the fastest of them; nothing where plain loops can't reach the values.
    std::vector<BenchLoop> loops;
    std::optional<BenchLoop> ceiling;
};

struct BenchReport {
    std::string uri;
    std::vector<BenchRow> rows;
    std::vector<std::string> notes;  // what was left out, and why
};

void print_json(const BenchReport& report);
void print_table(const BenchReport& report);

}  // namespace kvern::cli
