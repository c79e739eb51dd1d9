// SPDX-License-Identifier: Apache-2.0
// The ceiling of transfers by libfabric: a plain loop of writes into (with --put of reads from) the memory of another
// process, which does nothing but let them happen.
//
//   kvern_bench_ofi_plain PROVIDER ADDRESS --depth N --bytes B --seconds S [--put 1]
// Prints one line of JSON, as s3_client does: cpu_s_per_gb is of the memory's owner, server_cpu_s_per_gb of the loop.
#include <fmt/format.h>
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

#include "fabric/ofi_endpoint.h"
#include "kvern/limits.h"
#include "kvern/memory.h"

namespace {

using namespace kvern;
using fabric::OfiEndpoint;
using Clock = std::chrono::steady_clock;

[[noreturn]] void die(const std::string& why) {
    fmt::print(stderr, "ofi_plain: {}\n", why);
    std::exit(1);
}

struct Options {
    std::string provider, address;
    std::size_t depth = 8, bytes = 4 << 20;
    double seconds = 3;
    bool put = false;
};

Options parse(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; ++i) {
        const std::string name = argv[i];
        if (!name.starts_with("--")) {
            (options.provider.empty() ? options.provider : options.address) = name;
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
    if (options.provider.empty()) die("PROVIDER is missing");
    return options;
}

std::shared_ptr<Region> memory_of(const Options& options) {
    RegionOptions memory;
    memory.size_bytes = options.depth * ((options.bytes + 4095) / 4096 * 4096);
    auto region = Region::create(memory);
    if (!region) die(region.error().message);
    (*region)->wait_touched(std::chrono::seconds(20));
    return *region;
}

std::unique_ptr<OfiEndpoint> opened(const Options& options) {
    auto endpoint = OfiEndpoint::open(options.provider, options.address);
    if (!endpoint) die(endpoint.error().message);
    return std::move(*endpoint);
}

// What the owner tells the loop, through a pipe.
struct Offer {
    std::array<char, limits::fabric_endpoint_bytes_max> name{};
    std::size_t name_bytes = 0;
    OfiEndpoint::Registered memory;
};

[[noreturn]] void own(const Options& options, int pipe) {
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
    const auto options = parse(argc, argv);
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
    const auto gigabytes = static_cast<double>(latencies.size() * options.bytes) * 1e-9;
    own_cpu = cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) - own_cpu;
    other_cpu = cpu_seconds(owner_clock) - other_cpu;
    kill(owner, SIGKILL);
    waitpid(owner, nullptr, 0);
    // What is under way must come back before the endpoint is closed.
    for (auto left = slots.size() - idle.size(); left > 0; left -= endpoint->take(done)) {
        endpoint->wait(never, std::chrono::milliseconds(1));
    }
    if (latencies.empty()) die("nothing was moved");
    std::sort(latencies.begin(), latencies.end());
    const auto at = [&](double part) {
        return latencies[static_cast<std::size_t>(static_cast<double>(latencies.size() - 1) * part)] * 1e6;
    };
    fmt::print(
        "{{\"gb_per_s\": {:.4f}, \"cpu_s_per_gb\": {:.4f}, \"server_cpu_s_per_gb\": {:.4f}, \"requests_per_s\": "
        "{:.1f}, "
        "\"p50_us\": {:.1f}, \"p99_us\": {:.1f}}}\n",
        gigabytes / seconds, other_cpu / gigabytes, own_cpu / gigabytes,
        static_cast<double>(latencies.size()) / seconds, at(0.5), at(0.99));
}
