// SPDX-License-Identifier: Apache-2.0
// kvern_bench_halves: what the cache costs where it does no I/O on values: the lookup of a prompt of 1,000 chunks in a
// file store, and the scheduler half for each request in each step. Prints the budgets beside.
//
// Every lookup starts with no beliefs, as that of a new prompt does; the folder's entries are in the kernel's caches
// after the first one, as those of a busy store are. p99 is held against the budget.
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/sha256.h"
#include "base/text.h"
#include "cache/lookup.h"
#include "engine/scheduler_half.h"
#include "engine/worker_half.h"

namespace {

using kvern::ChunkId;
using Clock = std::chrono::steady_clock;

constexpr std::size_t chunks = 1000;
constexpr std::size_t running = 64;  // requests in a step
constexpr std::uint64_t block_tokens = 16, chunk_tokens = 256;

struct Options {
    bool json = false;
    std::size_t rounds = 300;
    std::string root = (std::filesystem::temp_directory_path()).string();
};

struct Row {
    std::string what, unit;
    double p50 = 0, p99 = 0, budget = 0;  // budget 0: none
};

[[noreturn]] void refuse(std::string_view why) {
    fmt::print(stderr,
               "kvern_bench_halves: {}\nusage: kvern_bench_halves [--json] [--rounds N] [--root DIR]\n"
               "  Lookups of 1,000 chunks in a file store below DIR, and the scheduler half without I/O.\n",
               why);
    std::exit(2);
}

[[noreturn]] void stop(std::string_view why) {
    fmt::print(stderr, "kvern_bench_halves: {}\n", why);
    std::exit(1);
}

Options parse(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; ++i) {
        const std::string_view word = argv[i];
        const auto value = [&]() -> std::string_view {
            if (++i == argc) refuse(fmt::format("{} needs a value", word));
            return argv[i];
        };
        if (word == "--json") {
            options.json = true;
        } else if (word == "--root") {
            options.root = value();
        } else if (word == "--rounds") {
            const std::string_view text = value();
            const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), options.rounds);
            if (error != std::errc{} || rest != text.data() + text.size() || options.rounds == 0)
                refuse(fmt::format("'{}' is no number of rounds", text));
        } else {
            refuse(fmt::format("'{}' is no option", word));
        }
    }
    return options;
}

class TempFolder {
  public:
    explicit TempFolder(const std::string& root) : path_(root + "/kvern-bench-XXXXXX") {
        if (::mkdtemp(path_.data()) == nullptr) stop(fmt::format("no folder can be made in '{}'", root));
    }
    ~TempFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    const std::string& path() const { return path_; }

  private:
    std::string path_;
};

Row row(std::string what, std::string unit, std::vector<double> values, double budget) {
    std::sort(values.begin(), values.end());
    return {std::move(what), std::move(unit), values[values.size() / 2],
            values[std::min(values.size() - 1, values.size() * 99 / 100)], budget};
}

double since(Clock::time_point start, double per_second) {
    return std::chrono::duration<double>(Clock::now() - start).count() * per_second;
}

// What all threads of this process have used: on a busy machine it says more than the clock.
double cpu_ms() {
    timespec time{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
}

// The hash of a chunk as engines make it: 32 bytes, uniform.
std::string hash_bytes(const std::string& text) {
    const kvern::Digest digest = kvern::sha256(text);
    return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

std::vector<ChunkId> prompt(const std::string& name) {
    std::vector<ChunkId> list;
    for (std::size_t i = 0; i < chunks; ++i)
        list.push_back({kvern::ChunkHash(hash_bytes(name + std::to_string(i))), i == 0 ? 0 : list.back().hash.tag()});
    return list;
}

void put_all(kvern::Store& store, const std::string& name_space, const std::vector<ChunkId>& list) {
    kvern::CompletionQueue queue;
    std::string value(4096, 'x');
    std::vector<kvern::Op> ops;
    for (const ChunkId& chunk : list) {
        kvern::Op& op = ops.emplace_back();
        op.kind = kvern::OpKind::put;
        op.key = kvern::object_key(name_space, chunk, 0, "l0-31.h0-7");
        op.buffers = {{reinterpret_cast<std::byte*>(value.data()), value.size()}};
    }
    store.submit(ops, queue);
    for (std::size_t answers = 0; answers < list.size();) {
        queue.wait(std::chrono::milliseconds(-1));
        for (const kvern::Completion& completion : queue.drain()) {
            ++answers;
            if (completion.outcome.status != kvern::Status::ok) stop(completion.outcome.error.message);
        }
    }
}

std::vector<Row> measure_lookups(const Options& options) {
    const TempFolder folder(options.root);
    auto store = kvern::open_store("file://" + folder.path());
    if (!store) stop(store.error().message);
    const std::string name_space(64, 'a');
    const auto there = prompt("there"), missing = prompt("missing");
    put_all(**store, name_space, there);
    kvern::FakeClock clock;
    kvern::Presence presence(clock);
    kvern::Lookups lookups(**store, presence);
    const kvern::Lookups::Group group{{kvern::GroupKind::full, block_tokens, chunk_tokens, 0}, {"l0-31.h0-7"}};
    lookups.configure(name_space, {&group, 1});
    const auto lookup_ms = [&](const std::vector<ChunkId>& list, std::size_t expected) {
        presence.clear();
        const auto start = Clock::now();
        const auto id = lookups.start(list);
        const auto answer = lookups.wait_for(id, std::chrono::seconds(10));
        const double time = since(start, 1e3);
        lookups.cancel(id);
        if (!answer.done || answer.chunks != expected) stop(fmt::format("a lookup found {}", answer.chunks));
        return time;
    };
    // The floor: stat(2) of the same files, one after the other, with nothing around it.
    std::vector<std::string> paths;
    for (const ChunkId& chunk : there)
        paths.push_back(folder.path() + "/" + kvern::object_key(name_space, chunk, 0, "l0-31.h0-7"));
    const auto plain_ms = [&] {
        struct stat status {};
        const auto start = Clock::now();
        for (const std::string& path : paths)
            if (::stat(path.c_str(), &status) != 0) stop(fmt::format("'{}' has gone", path));
        return since(start, 1e3);
    };
    std::vector<double> all, all_cpu, first, plain;
    for (std::size_t round = 0; round <= options.rounds; ++round) {  // round 0 warms up
        for (auto* values : {&all, &all_cpu, &first, &plain})
            if (round == 1) values->clear();
        const double cpu = cpu_ms();
        all.push_back(lookup_ms(there, chunks));
        all_cpu.push_back(cpu_ms() - cpu);
        first.push_back(lookup_ms(missing, 0));
        plain.push_back(plain_ms());
    }
    return {row("lookup of 1,000 chunks, all there: exact scan", "ms", all, 4),
            row("  its CPU time, all threads", "ms", all_cpu, 0),
            row("lookup of 1,000 chunks, the first 64 decide", "ms", first, 1),
            row("stat(2) of the same 1,000 files, one thread", "ms", plain, 0)};
}

class Hashes final : public kvern::BlockHashes {
  public:
    Hashes(const std::string& name, std::size_t blocks) {
        for (std::size_t i = 0; i < blocks; ++i) hashes_.push_back(hash_bytes(name + std::to_string(i)));
    }
    std::size_t size() const override { return hashes_.size(); }
    std::string_view at(std::size_t block) const override { return hashes_[block]; }

  private:
    std::vector<std::string> hashes_;
};

// A scheduler half over a store in memory, so that no answer is waited for: its own time.
std::unique_ptr<kvern::SchedulerHalf> open_half() {
    kvern::Options options;
    options.store = "mem:";
    auto store = kvern::open_store(options.store);
    if (!store) stop(store.error().message);
    kvern::Store& values = **store;
    auto half = std::make_unique<kvern::SchedulerHalf>(options, std::move(*store), kvern::Clock::steady());
    if (auto announced = half->announce("bench"); !announced) stop(announced.error().message);
    std::string nonce(64, 0);
    kvern::Op op;
    op.key = kvern::nonce_key("bench");
    op.buffers = {{reinterpret_cast<std::byte*>(nonce.data()), nonce.size()}};
    nonce.resize(kvern::run(values, op).bytes);
    kvern::Identity identity;
    identity.groups = {{"full", "0-31", "bf16", "NHD", "none", 32, 8, 128, 128, block_tokens, 0}};
    kvern::Geometry geometry;
    geometry.groups = {{{kvern::GroupKind::full, block_tokens, chunk_tokens, 0}, {0, 31, 0, 7}}};
    geometry.identity = identity.to_json();
    geometry.nonce = nonce;
    if (auto configured = half->configure({&geometry, 1}); !configured) stop(configured.error().message);
    if (auto opened = half->open("model", "label", "seed", block_tokens); !opened) stop(opened.error().message);
    return half;
}

std::vector<Row> measure_scheduler(const Options& options) {
    constexpr std::size_t blocks = chunks * chunk_tokens / block_tokens;
    constexpr std::uint64_t prompt_tokens = chunks * chunk_tokens + 1;
    auto half = open_half();
    const std::size_t repeats = options.rounds * 10;

    // A prompt that waits for its turn is asked about in every step.
    const Hashes waiting("waiting", blocks);
    std::vector<double> first, repeated, decode;
    for (std::size_t i = 0; i < std::min<std::size_t>(options.rounds, 100); ++i) {
        const std::string id = "first" + std::to_string(i);
        const auto start = Clock::now();
        half->learn(id, waiting, prompt_tokens);
        half->add(id);
        first.push_back(since(start, 1e6));
        half->finish(id);
    }
    half->learn("waiting", waiting, prompt_tokens);
    half->add("waiting");
    while (half->match("waiting", 0, false).pending) continue;
    for (std::size_t i = 0; i < repeats; ++i) {
        const auto start = Clock::now();
        half->learn("waiting", waiting, prompt_tokens);
        half->match("waiting", 0, false);
        repeated.push_back(since(start, 1e6));
    }

    // Requests that decode: one token each, a block now and then, a chunk to store now and then.
    std::vector<Hashes> hashes;
    std::vector<std::string> ids;
    const std::vector<std::int32_t> table(blocks, 1);
    std::vector<std::uint64_t> computed(running, 0);
    for (std::size_t i = 0; i < running; ++i) {
        ids.push_back("running" + std::to_string(i));
        hashes.emplace_back(ids.back(), blocks);
        computed[i] = 1000 + 37 * i;
        half->learn(ids[i], hashes[i], prompt_tokens);
        half->scheduled(ids[i], {true, {table}, 0, computed[i], 0});
    }
    half->build_step();
    for (std::size_t i = 0; i < repeats; ++i) {
        const auto start = Clock::now();
        for (std::size_t each = 0; each < running; ++each) {
            half->learn(ids[each], hashes[each], prompt_tokens);
            half->scheduled(ids[each], {false, {}, computed[each]++, 1, 0});
        }
        half->build_step();
        decode.push_back(since(start, 1e6) / running);
    }
    return {row("scheduler half: ask again about 1,000 chunks", "us", repeated, 50),
            row(fmt::format("scheduler half: decode step of {} requests, each", running), "us", decode, 50),
            row("scheduler half: new prompt of 1,000 chunks", "us", first, 0)};
}

void print(const Options& options, const std::vector<Row>& rows) {
    if (!options.json) {
        fmt::print("{:<52} {:>4} {:>9} {:>9} {:>9}\n", "", "unit", "p50", "p99", "budget");
        for (const Row& each : rows)
            fmt::print("{:<52} {:>4} {:>9.3f} {:>9.3f} {:>9}{}\n", each.what, each.unit, each.p50, each.p99,
                       each.budget > 0 ? fmt::format("{:g}", each.budget) : "-",
                       each.budget > 0 && each.p99 > each.budget ? "  MISSED" : "");
        return;
    }
    fmt::print("{{\"bench\": \"halves\", \"rounds\": {}, \"rows\": [", options.rounds);
    for (std::size_t i = 0; i < rows.size(); ++i)
        fmt::print("{}\n  {{\"what\": \"{}\", \"unit\": \"{}\", \"p50\": {:.4f}, \"p99\": {:.4f}, \"budget\": {:g}}}",
                   i == 0 ? "" : ",", rows[i].what, rows[i].unit, rows[i].p50, rows[i].p99, rows[i].budget);
    fmt::print("\n]}}\n");
}

}  // namespace

int main(int argc, char** argv) {
    const Options options = parse(argc, argv);
    std::vector<Row> rows = measure_lookups(options);
    for (Row& each : measure_scheduler(options)) rows.push_back(std::move(each));
    print(options, rows);
    return 0;
}
