// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_report.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "kvern/version.h"

namespace kvern::cli {
namespace {

using Json = nlohmann::ordered_json;

// Four significant digits after the point are enough, and keep the output readable.
double rounded(double value) {
    return std::round(value * 1e4) / 1e4;
}

Json to_json(const BenchRow& row) {
    Json json{{"op", row.op},
              {"size_bytes", row.size_bytes},
              {"depth", row.depth},
              {"mode", row.mode},
              {"engine", row.engine},
              {"path", row.path},
              {"cores", row.cores},
              {"gbps", rounded(row.gbps)},
              {"cpu_s_per_gb", rounded(row.cpu_s_per_gb)},
              {"p50_us", rounded(row.p50_us)},
              {"p99_us", rounded(row.p99_us)},
              {"ceiling", nullptr},
              {"ceiling_gbps", nullptr},
              {"ceiling_cpu_s_per_gb", nullptr},
              {"ratio", nullptr},
              {"loops", Json::array()}};
    if (row.ceiling) {
        json["ceiling"] = row.ceiling->name;
        json["ceiling_gbps"] = rounded(row.ceiling->gbps);
        json["ceiling_cpu_s_per_gb"] = rounded(row.ceiling->cpu_s_per_gb);
        json["ratio"] = rounded(row.gbps / row.ceiling->gbps);
    }
    for (const BenchLoop& loop : row.loops) {
        json["loops"].push_back(
            {{"name", loop.name}, {"gbps", rounded(loop.gbps)}, {"cpu_s_per_gb", rounded(loop.cpu_s_per_gb)}});
    }
    return json;
}

}  // namespace

void print_json(const BenchReport& report) {
    Json rows = Json::array();
    for (const BenchRow& row : report.rows) rows.push_back(to_json(row));
    const Json document{
        {"bench", "store"}, {"version", version()}, {"uri", report.uri}, {"rows", rows}, {"notes", report.notes}};
    fmt::print("{}\n", document.dump(2, ' ', false, Json::error_handler_t::replace));
}

void print_table(const BenchReport& report) {
    fmt::print("{:<4} {:>9} {:>6} {:>6} {:>8} {:>9} {:>9} {:>9}  {:<18} {:>8} {:>6}\n", "op", "size", "depth", "mode",
               "GB/s", "CPU s/GB", "p50 us", "p99 us", "ceiling", "GB/s", "ratio");
    for (const BenchRow& row : report.rows) {
        fmt::print("{:<4} {:>9} {:>6} {:>6} {:>8.3f} {:>9.3f} {:>9.0f} {:>9.0f}", row.op, format_size(row.size_bytes),
                   row.depth, row.mode, row.gbps, row.cpu_s_per_gb, row.p50_us, row.p99_us);
        if (row.ceiling) {
            fmt::print("  {:<18} {:>8.3f} {:>6.2f}", row.ceiling->name, row.ceiling->gbps,
                       row.gbps / row.ceiling->gbps);
        }
        fmt::print("\n");
    }
    std::string path;
    for (const BenchRow& row : report.rows) {
        if (row.path != path) fmt::print("{}: {}\n", row.mode, row.path);
        path = row.path;
    }
    for (const std::string& note : report.notes) fmt::print("note: {}\n", note);
}

}  // namespace kvern::cli
