// SPDX-License-Identifier: Apache-2.0
// Gets or puts of one store as an engine makes them: `depth` in flight, with memory that was leased before.
//
//   kvern_bench_s3_client URI --depth N --bytes B --seconds S [--put 1] KEY...
//   kvern_bench_s3_client memcpy --depth N --bytes B --seconds S KEY...      the ceiling of what copies once: a plain
//                                                      memcpy loop into (with --put out of) the same kind of memory
// Prints one line of JSON, as http_plain does.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "kvern/memory.h"
#include "kvern/store.h"

namespace {

using namespace kvern;
using Clock = std::chrono::steady_clock;

[[noreturn]] void die(const std::string& why) {
    fmt::print(stderr, "s3_client: {}\n", why);
    std::exit(1);
}

double cpu_seconds() {
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    const auto seconds = [](const timeval& t) {
        return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
    };
    return seconds(used.ru_utime) + seconds(used.ru_stime);
}

struct Slot {
    Lease lease;
    Clock::time_point start;
};

struct Options {
    std::string uri;
    std::size_t depth = 8, bytes = 4 << 20;
    double seconds = 3;
    bool put = false;
    std::vector<std::string> keys;
};

Options parse(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; ++i) {
        const std::string name = argv[i];
        if (!name.starts_with("--")) {
            (options.uri.empty() ? options.uri : options.keys.emplace_back()) = name;
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
    if (options.keys.empty()) die("URI and KEY are missing");
    return options;
}

Op next_op(const Options& options, std::size_t n, std::size_t slot, const Lease& lease) {
    Op op;
    op.kind = options.put ? OpKind::put : OpKind::get;
    op.tag = slot;
    op.key = options.keys[n % options.keys.size()];
    op.buffers.push_back({lease.data(), options.bytes});
    return op;
}

void print(double seconds, double cpu, std::uint64_t bytes, std::vector<double> latencies) {
    std::sort(latencies.begin(), latencies.end());
    const auto at = [&](double part) {
        return latencies[static_cast<std::size_t>(static_cast<double>(latencies.size() - 1) * part)];
    };
    const auto gigabytes = static_cast<double>(bytes) * 1e-9;
    fmt::print(
        "{{\"gb_per_s\": {:.4f}, \"cpu_s_per_gb\": {:.4f}, \"requests_per_s\": {:.1f}, \"cpu_us_per_request\": {:.2f}, "
        "\"p50_us\": {:.1f}, \"p99_us\": {:.1f}}}\n",
        gigabytes / seconds, cpu / gigabytes, static_cast<double>(latencies.size()) / seconds,
        cpu * 1e6 / static_cast<double>(latencies.size()), at(0.5) * 1e6, at(0.99) * 1e6);
}

// From memory that is as cold as a store's, one lease after the other.
void copy_loop(const Options& options, Region& region) {
    std::vector<char> store(std::max<std::size_t>(options.bytes * 16, std::size_t{256} << 20), 'x');
    std::vector<Lease> leases;
    for (std::size_t i = 0; i < options.depth; ++i) leases.push_back(std::move(*region.try_lease(options.bytes)));
    std::vector<double> latencies;
    std::uint64_t bytes = 0;
    const auto start = Clock::now();
    const auto cpu = cpu_seconds();
    for (std::size_t n = 0; std::chrono::duration<double>(Clock::now() - start).count() < options.seconds; ++n) {
        const auto before = Clock::now();
        auto* const there = store.data() + n % (store.size() / options.bytes) * options.bytes;
        auto* const here = leases[n % leases.size()].data();
        if (options.put) {
            std::memcpy(there, here, options.bytes);
        } else {
            std::memcpy(here, there, options.bytes);
        }
        bytes += options.bytes;
        latencies.push_back(std::chrono::duration<double>(Clock::now() - before).count());
    }
    const auto seconds = std::chrono::duration<double>(Clock::now() - start).count();
    print(seconds, cpu_seconds() - cpu, bytes, std::move(latencies));
}

}  // namespace

int main(int argc, char** argv) {
    const auto options = parse(argc, argv);
    RegionOptions memory;
    memory.size_bytes = options.depth * ((options.bytes + 4095) / 4096 * 4096);
    auto region = Region::create(memory);
    if (!region) die(region.error().message);
    (*region)->wait_touched(std::chrono::seconds(20));
    if (options.uri == "memcpy") {
        copy_loop(options, **region);
        return 0;
    }
    auto store = open_store(options.uri);
    if (!store) die(store.error().message);
    (*store)->attach(*region);
    CompletionQueue queue;
    std::vector<Slot> slots(options.depth);
    std::size_t n = 0;
    for (auto& slot : slots) {
        slot.lease = std::move(*(*region)->try_lease(options.bytes));
        auto warm = next_op(options, n++, 0, slot.lease);  // connections and credentials
        const auto outcome = run(**store, warm);
        if (outcome.status != Status::ok) die(explain(warm, outcome));
    }
    std::vector<double> latencies;
    std::uint64_t bytes = 0;
    std::size_t under_way = 0;
    const auto start = Clock::now();
    const auto cpu = cpu_seconds();
    std::vector<Op> ops;
    const auto ask = [&](std::size_t slot) {
        slots[slot].start = Clock::now();
        ops.push_back(next_op(options, n++, slot, slots[slot].lease));
        ++under_way;
    };
    for (std::size_t i = 0; i < slots.size(); ++i) ask(i);
    (*store)->submit(ops, queue);
    while (under_way > 0) {
        queue.wait(std::chrono::milliseconds(-1));
        ops.clear();
        for (const auto& completion : queue.drain()) {
            --under_way;
            if (completion.outcome.status != Status::ok) die(completion.outcome.error.message);
            bytes += completion.outcome.bytes;
            const auto now = Clock::now();
            latencies.push_back(std::chrono::duration<double>(now - slots[completion.tag].start).count());
            if (std::chrono::duration<double>(now - start).count() < options.seconds) ask(completion.tag);
        }
        if (!ops.empty()) (*store)->submit(ops, queue);
    }
    const auto seconds = std::chrono::duration<double>(Clock::now() - start).count();
    const auto used = cpu_seconds() - cpu;
    print(seconds, used, bytes, std::move(latencies));
    (*store)->close(std::chrono::seconds(5));
}
