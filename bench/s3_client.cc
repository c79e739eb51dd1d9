// SPDX-License-Identifier: Apache-2.0
// Gets or puts of one store as an engine makes them: `depth` in flight, with memory that was leased before.
//
//   kvern_bench_s3_client URI --depth N --bytes B --seconds S [--put 1] KEY...
//   kvern_bench_s3_client memcpy --depth N --bytes B --seconds S KEY...      the ceiling of what copies once: a plain
//                                                      memcpy loop into (with --put out of) the same kind of memory
// Prints one line of JSON, as http_plain does.
#include <sys/resource.h>

#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "bench/loop.h"
#include "kvern/memory.h"
#include "kvern/store.h"

namespace {

using namespace kvern;
using namespace kvern::bench;
using Clock = std::chrono::steady_clock;

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

Op next_op(const LoopOptions& options, std::size_t n, std::size_t slot, const Lease& lease) {
    Op op;
    op.kind = options.put ? OpKind::put : OpKind::get;
    op.tag = slot;
    op.key = options.words[1 + n % (options.words.size() - 1)];
    op.buffers.push_back({lease.data(), options.bytes});
    return op;
}

// From memory that is as cold as a store's, one lease after the other.
void copy_loop(const LoopOptions& options, Region& region) {
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
    print({seconds, cpu_seconds() - cpu, -1, bytes, std::move(latencies)});
}

}  // namespace

int main(int argc, char** argv) {
    const auto options = parse_loop(argc, argv);
    if (options.words.size() < 2) die("URI and KEY are missing");
    const auto& uri = options.words.front();
    RegionOptions memory;
    memory.size_bytes = options.depth * ((options.bytes + 4095) / 4096 * 4096);
    auto region = Region::create(memory);
    if (!region) die(region.error().message);
    (*region)->wait_touched(std::chrono::seconds(20));
    if (uri == "memcpy") {
        copy_loop(options, **region);
        return 0;
    }
    auto store = open_store(uri);
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
    print({seconds, used, -1, bytes, std::move(latencies)});
    (*store)->close(std::chrono::seconds(5));
}
