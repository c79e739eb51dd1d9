// SPDX-License-Identifier: Apache-2.0
// The ceiling of transfers by libfabric: a plain loop of writes into (with --put of reads from) the memory of another
// process, which does nothing but let them happen.
//
//   kvern_bench_ofi_plain PROVIDER ADDRESS --depth N --bytes B --seconds S [--put 1]
// Prints one line of JSON, as s3_client does: cpu_s_per_gb is of the memory's owner, server_cpu_s_per_gb of the loop.
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "bench/loop.h"
#include "fabric/ofi_endpoint.h"
#include "kvern/limits.h"
#include "kvern/memory.h"

namespace {

using namespace kvern;
using namespace kvern::bench;
using fabric::OfiEndpoint;
using Clock = std::chrono::steady_clock;

std::shared_ptr<Region> memory_of(const LoopOptions& options) {
    RegionOptions memory;
    memory.size_bytes = options.depth * ((options.bytes + 4095) / 4096 * 4096);
    auto region = Region::create(memory);
    if (!region) die(region.error().message);
    (*region)->wait_touched(std::chrono::seconds(20));
    return *region;
}

std::unique_ptr<OfiEndpoint> opened(const LoopOptions& options) {
    auto endpoint = OfiEndpoint::open(options.words[0], options.words[1]);
    if (!endpoint) die(endpoint.error().message);
    return std::move(*endpoint);
}

// What the owner tells the loop, through a pipe.
struct Offer {
    std::array<char, limits::fabric_endpoint_bytes_max> name{};
    std::size_t name_bytes = 0;
    OfiEndpoint::Registered memory;
};

[[noreturn]] void own(const LoopOptions& options, int pipe) {
    const auto region = memory_of(options);
    const auto endpoint = opened(options);
    const auto registered = endpoint->add_memory(region->base(), region->size_bytes(), true);
    if (!registered) die(registered.error().message);
    Offer offer{{}, endpoint->name().size(), *registered};
    std::copy(endpoint->name().begin(), endpoint->name().end(), offer.name.begin());
    if (write(pipe, &offer, sizeof offer) != sizeof offer) die("the pipe is closed");
    const int never = eventfd(0, EFD_CLOEXEC);
    for (std::array<OfiEndpoint::Done, 16> done;;) {
        if (endpoint->take(done) == 0) endpoint->wait(never, std::chrono::milliseconds(-1));
    }
}

double cpu_seconds(clockid_t clock) {
    timespec used{};
    clock_gettime(clock, &used);
    return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

struct Slot {
    std::size_t index = 0;
    Clock::time_point start;
};

}  // namespace

int main(int argc, char** argv) {
    const auto options = parse_loop(argc, argv);
    if (options.words.size() != 2) die("PROVIDER and ADDRESS are wanted");
    std::array<int, 2> pipes{};
    if (pipe(pipes.data()) != 0) die("pipe");
    const pid_t owner = fork();  // before anything of libfabric is loaded
    if (owner == 0) own(options, pipes[1]);
    close(pipes[1]);
    Offer offer;
    if (read(pipes[0], &offer, sizeof offer) != sizeof offer) die("the memory's owner ended");
    const auto region = memory_of(options);
    const auto endpoint = opened(options);
    if (auto added = endpoint->add_memory(region->base(), region->size_bytes(), false); !added)
        die(added.error().message);
    const auto peer = endpoint->insert({offer.name.data(), offer.name_bytes});
    if (!peer) die(peer.error().message);

    const auto direction = options.put ? fabric::Direction::from : fabric::Direction::into;
    const auto stride = region->size_bytes() / options.depth;
    const int never = eventfd(0, EFD_CLOEXEC);
    clockid_t owner_clock{};
    clock_getcpuclockid(owner, &owner_clock);
    std::vector<Slot> slots(options.depth);
    std::deque<Slot*> idle;
    for (std::size_t i = 0; i < slots.size(); ++i) idle.push_back(&(slots[i] = {i, {}}));
    std::vector<double> latencies;
    std::array<OfiEndpoint::Done, 16> done;
    double own_cpu = 0, other_cpu = 0;
    auto start = Clock::now();
    for (bool warm = false;;) {
        const auto now = Clock::now();
        if (warm && std::chrono::duration<double>(now - start).count() >= options.seconds) break;
        while (!idle.empty()) {
            auto* const slot = idle.front();
            slot->start = now;
            const auto at = slot->index * stride;
            const int code = endpoint->post(direction, *peer, {region->base() + at, options.bytes},
                                            offer.memory.base + at, offer.memory.key, slot);
            if (code == EAGAIN) break;
            if (code != 0) die("post: " + std::string(std::strerror(code)));
            idle.pop_front();
        }
        const auto count = endpoint->take(done);
        for (std::size_t i = 0; i < count; ++i) {
            if (done[i].error != 0) die("an operation failed: " + done[i].reason);
            auto* const slot = static_cast<Slot*>(done[i].context);
            latencies.push_back(std::chrono::duration<double>(Clock::now() - slot->start).count());
            idle.push_back(slot);
        }
        if (!warm && count > 0) {  // connected
            warm = true;
            latencies.clear();
            start = Clock::now();
            own_cpu = cpu_seconds(CLOCK_PROCESS_CPUTIME_ID);
            other_cpu = cpu_seconds(owner_clock);
        }
        if (count == 0) endpoint->wait(never, std::chrono::milliseconds(warm ? 100 : 1));
    }
    const auto seconds = std::chrono::duration<double>(Clock::now() - start).count();
    own_cpu = cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) - own_cpu;
    other_cpu = cpu_seconds(owner_clock) - other_cpu;
    kill(owner, SIGKILL);
    waitpid(owner, nullptr, 0);
    // What is under way must come back before the endpoint is closed.
    for (auto left = slots.size() - idle.size(); left > 0; left -= endpoint->take(done)) {
        endpoint->wait(never, std::chrono::milliseconds(1));
    }
    if (latencies.empty()) die("nothing was moved");
    const auto bytes = latencies.size() * options.bytes;
    print({seconds, other_cpu, own_cpu, bytes, std::move(latencies)});
}
