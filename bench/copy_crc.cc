// SPDX-License-Identifier: Apache-2.0
// kvern_bench_copy_crc: what verifying a load costs. Copies 64 MiB from staging to random pages of 1 GiB, once by
// memcpy and once by copy_crc32c on each path this CPU has, and prints the ratio of their times (below 1: faster than
// memcpy).
//
// Each round runs all ways one after the other, and each run takes the pages that were not written for the longest
// time: what else happens on the machine, and what is in the caches, meets all ways alike. The best round of each way
// counts.
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/crc32c.h"

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;
constexpr std::size_t staging_bytes = 64 * mib;
constexpr std::size_t destination_bytes = 1024 * mib;

struct Options {
    bool json = false;
    bool hugepages = false;
    int rounds = 9;
    unsigned seed = 1;
    std::vector<std::size_t> pages_kib{128, 32};
};

struct Row {
    std::string path;
    std::size_t page_kib = 0;
    double copy_gbps = 0;
    double memcpy_gbps = 0;
    double ratio = 0;
};

constexpr std::string_view usage =
    "usage: kvern_bench_copy_crc [--json] [--rounds N] [--pages KIB,KIB,...] [--hugepages] [--seed N]\n"
    "  64 MiB copied to random pages of 1 GiB: memcpy against copy_crc32c, best of N interleaved rounds.\n";

[[noreturn]] void refuse(std::string_view why) {
    fmt::print(stderr, "kvern_bench_copy_crc: {}\n{}", why, usage);
    std::exit(2);
}

std::size_t number(std::string_view text, std::size_t min, std::size_t max) {
    std::size_t value = 0;
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || rest != text.data() + text.size() || value < min || value > max) {
        refuse(fmt::format("'{}' is no whole number from {} to {}", text, min, max));
    }
    return value;
}

std::vector<std::size_t> page_sizes(std::string_view list) {
    std::vector<std::size_t> sizes;
    while (!list.empty()) {
        const std::string_view one = list.substr(0, list.find(','));
        list.remove_prefix(std::min(list.size(), one.size() + 1));
        sizes.push_back(number(one, 1, staging_bytes >> 10));
        if ((staging_bytes >> 10) % sizes.back() != 0) refuse(fmt::format("{} KiB doesn't divide 64 MiB", one));
    }
    return sizes;
}

Options parse(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; ++i) {
        const std::string_view name = argv[i];
        const auto value = [&]() -> std::string_view {
            if (i + 1 >= argc) refuse(fmt::format("{} needs a value", name));
            return argv[++i];
        };
        if (name == "--json") {
            options.json = true;
        } else if (name == "--hugepages") {
            options.hugepages = true;
        } else if (name == "--rounds") {
            options.rounds = static_cast<int>(number(value(), 1, 1000));
        } else if (name == "--seed") {
            options.seed = static_cast<unsigned>(number(value(), 0, 0xffffffff));
        } else if (name == "--pages") {
            options.pages_kib = page_sizes(value());
        } else if (name == "--help" || name == "-h") {
            fmt::print("{}", usage);
            std::exit(0);
        } else {
            refuse(fmt::format("unknown option '{}'", name));
        }
    }
    return options;
}

std::byte* touched_memory(std::size_t size_bytes, bool hugepages) {
    void* const memory = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        fmt::print(stderr, "kvern_bench_copy_crc: no memory for {} MiB\n", size_bytes / mib);
        std::exit(1);
    }
    madvise(memory, size_bytes, hugepages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    std::memset(memory, 1, size_bytes);
    return static_cast<std::byte*>(memory);
}

// Destination pages in random order, handed out in turn.
class Pages {
  public:
    Pages(std::byte* base, std::size_t page_bytes, unsigned seed) : base_(base), page_bytes_(page_bytes) {
        order_.resize(destination_bytes / page_bytes);
        std::iota(order_.begin(), order_.end(), std::size_t{0});
        std::shuffle(order_.begin(), order_.end(), std::mt19937_64(seed));
    }

    std::byte* next() {
        std::byte* const page = base_ + order_[at_] * page_bytes_;
        at_ = (at_ + 1) % order_.size();
        return page;
    }

  private:
    std::byte* base_;
    std::size_t page_bytes_;
    std::vector<std::size_t> order_;
    std::size_t at_ = 0;
};

// Seconds to copy all of staging to the next pages by copy_page(destination, source).
template <class CopyPage>
double seconds(Pages& pages, const std::byte* staging, std::size_t page_bytes, CopyPage copy_page) {
    const auto start = std::chrono::steady_clock::now();
    for (std::size_t at = 0; at < staging_bytes; at += page_bytes) copy_page(pages.next(), staging + at);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::vector<std::string_view> available_paths() {
    std::vector<std::string_view> paths;
    for (const std::string_view path : {"vpclmulqdq", "sse4.2+avx2", "table"}) {
        std::uint32_t crc = 0;
        if (kvern::crc32c_with(path, crc, "", 0)) paths.push_back(path);
    }
    return paths;
}

std::vector<Row> measure(const Options& options, std::size_t page_kib, const std::byte* staging,
                         std::byte* destination) {
    const std::size_t page_bytes = page_kib << 10;
    const auto paths = available_paths();
    Pages pages(destination, page_bytes, options.seed);
    double memcpy_best = 1e9;
    std::vector<double> best(paths.size(), 1e9);
    const std::uint32_t expected = kvern::crc32c(0, staging, staging_bytes);
    for (int round = 0; round < options.rounds; ++round) {
        memcpy_best = std::min(
            memcpy_best, seconds(pages, staging, page_bytes,
                                 [&](std::byte* to, const std::byte* from) { std::memcpy(to, from, page_bytes); }));
        for (std::size_t i = 0; i < paths.size(); ++i) {
            std::uint32_t crc = 0;
            best[i] = std::min(best[i], seconds(pages, staging, page_bytes, [&](std::byte* to, const std::byte* from) {
                                   kvern::copy_crc32c_with(paths[i], crc, to, from, page_bytes);
                               }));
            if (crc != expected) {
                fmt::print(stderr, "kvern_bench_copy_crc: path {} gave a wrong sum\n", paths[i]);
                std::exit(1);
            }
        }
    }
    std::vector<Row> rows;
    const auto gbps = [](double time) { return static_cast<double>(staging_bytes) / time / 1e9; };
    for (std::size_t i = 0; i < paths.size(); ++i) {
        rows.push_back(Row{std::string(paths[i]), page_kib, gbps(best[i]), gbps(memcpy_best), best[i] / memcpy_best});
    }
    return rows;
}

void print(const Options& options, const std::vector<Row>& rows) {
    if (!options.json) {
        fmt::print("{:<12} {:>8} {:>10} {:>12} {:>7}\n", "path", "page", "copy GB/s", "memcpy GB/s", "ratio");
        for (const Row& row : rows) {
            fmt::print("{:<12} {:>4} KiB {:>10.2f} {:>12.2f} {:>7.3f}\n", row.path, row.page_kib, row.copy_gbps,
                       row.memcpy_gbps, row.ratio);
        }
        return;
    }
    fmt::print(
        "{{\"bench\": \"copy_crc\", \"chosen\": \"{}\", \"rounds\": {}, \"seed\": {}, \"hugepages\": {}, \"rows\": [",
        kvern::crc32c_path(), options.rounds, options.seed, options.hugepages);
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const Row& row = rows[i];
        fmt::print(
            "{}\n  {{\"path\": \"{}\", \"page_kib\": {}, \"copy_gbps\": {:.3f}, \"memcpy_gbps\": {:.3f}, \"ratio\": "
            "{:.4f}}}",
            i == 0 ? "" : ",", row.path, row.page_kib, row.copy_gbps, row.memcpy_gbps, row.ratio);
    }
    fmt::print("\n]}}\n");
}

}  // namespace

int main(int argc, char** argv) {
    const Options options = parse(argc, argv);
    std::byte* const staging = touched_memory(staging_bytes, options.hugepages);
    std::byte* const destination = touched_memory(destination_bytes, options.hugepages);
    std::mt19937_64 random(options.seed);
    for (std::size_t at = 0; at < staging_bytes; at += 8) {
        const std::uint64_t word = random();
        std::memcpy(staging + at, &word, sizeof word);
    }
    std::vector<Row> rows;
    for (const std::size_t page_kib : options.pages_kib) {
        for (Row& row : measure(options, page_kib, staging, destination)) rows.push_back(std::move(row));
    }
    print(options, rows);
    return 0;
}
