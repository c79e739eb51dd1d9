// SPDX-License-Identifier: Apache-2.0
// For each row the ways take turns (ours, io_uring loop, thread loop, fio, ours, …) and the best round of each counts:
// what else happens on the machine meets all alike. Objects lie in 256 folders on both sides, and a put of a plain loop
// publishes its file as the engine does, because both cost more than the bytes of a small object.
#include "cli/bench_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <random>
#include <string_view>

#include "base/text.h"
#include "base/uri.h"
#include "cli/bench_engine.h"
#include "cli/fio.h"
#include "cli/interrupt.h"
#include "cli/plain_loops.h"
#include "kvern/limits.h"
#include "store/s3/store.h"

namespace kvern::cli {
namespace {

constexpr std::size_t objects_max = 4096;  // of one run: more costs time in folders and shows nothing new
constexpr std::uint64_t memory_bytes_max = std::uint64_t{8} << 30;
constexpr unsigned rounds_default = 3;
constexpr unsigned rounds_cached_put = 7;  // page-cache writes swing up to tenfold from round to round
constexpr std::chrono::seconds touch_wait{120};

unsigned cores_allowed() {
    cpu_set_t set;
    CPU_ZERO(&set);
    return sched_getaffinity(0, sizeof set, &set) == 0 ? static_cast<unsigned>(CPU_COUNT(&set)) : 1;
}

std::string random_prefix() {
    std::random_device random;
    return fmt::format("bench-{:08x}{:08x}", random(), random());
}

// The URI with the mode as its direct= parameter.
std::string uri_for(const BenchPlan& plan, const Uri& uri, const std::string& mode) {
    if (uri.scheme != "file") return plan.uri;
    std::string text = plan.uri;
    const auto add = [&text](const std::string& pair) {
        text += (text.find('?') == std::string::npos ? "?" : "&") + pair;
    };
    if (!uri.params.contains("direct")) add(mode == "direct" ? "direct=on" : "direct=off");
    // The plain loops get this depth, so the engine must not be held to less.
    if (!uri.params.contains("depth") && plan.depth > limits::file_depth_default) {
        add("depth=" + std::to_string(std::min(plan.depth, limits::file_depth_max)));
    }
    return text;
}

struct Row {
    std::string op;
    std::string mode;
    std::uint64_t size_bytes;
};

// The best rounds so far of one row.
struct Best {
    StoreResult ours;
    std::map<std::string, PlainResult> plain;
};

double gbps(std::uint64_t bytes, double seconds) {
    return seconds > 0 ? static_cast<double>(bytes) / seconds / 1e9 : 0;
}
double cpu_per_gb(double cpu_seconds, std::uint64_t bytes) {
    return bytes > 0 ? cpu_seconds / (static_cast<double>(bytes) / 1e9) : 0;
}

class Bench {
  public:
    Bench(const BenchPlan& plan, Uri uri) : plan_(plan), uri_(std::move(uri)) { report_.uri = plan.uri; }

    Result<BenchReport> run() {
        if (auto memory = take_memory(); !memory) return tl::unexpected(memory.error());
        if (uri_.scheme == "s3") {
            if (auto made = create_s3_bucket(uri_); !made) return tl::unexpected(made.error());
        }
        Result<void> done = measure_modes();
        if (auto cleaned = clean(); done && !cleaned) done = tl::unexpected(cleaned.error());
        progress("");
        if (!done) return tl::unexpected(done.error());
        return std::move(report_);
    }

  private:
    bool on_files() const { return uri_.scheme == "file"; }

    Result<void> take_memory() {
        const auto largest = *std::max_element(plan_.sizes_bytes.begin(), plan_.sizes_bytes.end());
        if (largest > memory_bytes_max / plan_.depth) {
            return fail(ErrorCode::invalid_argument,
                        fmt::format("{} objects of {} in flight need more than {} of memory; ask for less --depth",
                                    plan_.depth, format_size(largest), format_size(memory_bytes_max)));
        }
        RegionOptions options;
        options.name = "kvern-bench";
        options.size_bytes = largest * plan_.depth;
        auto region = Region::create(options);
        if (!region) return tl::unexpected(region.error());
        region_ = std::move(*region);
        if (!region_->wait_touched(touch_wait))
            return fail(ErrorCode::resource, "memory is not ready after two minutes");
        auto lease = region_->try_lease(options.size_bytes);
        if (!lease) return fail(ErrorCode::internal, "a fresh region has no room");
        lease_ = std::move(*lease);
        std::mt19937_64 random(1);  // a file system or disk that compresses must not shine
        std::generate_n(reinterpret_cast<std::uint64_t*>(lease_.data()), lease_.size_bytes() / 8, std::ref(random));
        return {};
    }

    Result<void> measure_modes() {
        const bool chosen = !plan_.modes.empty();
        std::vector<std::string> modes = plan_.modes;
        if (!chosen)
            modes = on_files() ? std::vector<std::string>{"direct", "cached"} : std::vector<std::string>{"cached"};
        for (const std::string& mode : modes) {
            auto store = open_store(uri_for(plan_, uri_, mode));
            if (!store && !chosen && modes.size() > 1 && store.error().code == ErrorCode::not_supported) {
                note(fmt::format("{}: left out: {}", mode, store.error().message));
                continue;
            }
            if (!store) return tl::unexpected(store.error());
            store_ = std::move(*store);
            store_->attach(region_);
            if (auto measured = measure_mode(mode); !measured) return measured;
            if (auto cleaned = clean(); !cleaned) return cleaned;  // the next mode needs the room
        }
        return {};
    }

    Result<void> measure_mode(const std::string& mode) {
        for (const std::uint64_t size_bytes : plan_.sizes_bytes) {
            for (const std::string& op : plan_.ops) {
                if (auto measured = measure(Row{op, mode, size_bytes}); !measured) return measured;
            }
        }
        return {};
    }

    Result<void> measure(const Row& row) {
        std::vector<std::string> keys = names(row, "get");
        if (row.op == "get") {
            if (auto filled = fill(row, keys); !filled) return filled;
        }
        const bool cached_put = row.op == "put" && row.mode == "cached";
        const unsigned rounds = plan_.rounds != 0 ? plan_.rounds : cached_put ? rounds_cached_put : rounds_default;
        Best best;
        // Round 0 warms up: folders, page cache, memory of the guest.
        for (unsigned round = 0; round <= rounds; ++round) {
            progress(
                fmt::format("{} {} {}, round {} of {}", row.mode, row.op, format_size(row.size_bytes), round, rounds));
            if (round == 1) best = Best{};
            if (auto done = one_round(row, keys, best); !done) return done;
            if (interrupted()) return fail(ErrorCode::cancelled, "bench: interrupted; what it had stored is removed");
        }
        add_row(row, best);
        if (row.op == "get") return remove(keys);
        return {};
    }

    Result<void> one_round(const Row& row, std::vector<std::string>& keys, Best& best) {
        if (auto done = ours(row, keys, best); !done) return done;
        if (!on_files()) return {};
        if (auto done = plain(row, keys, best, "io_uring loop", uring_loop); !done) return done;
        if (auto done = plain(row, keys, best, "pread/pwrite loop", thread_loop); !done) return done;
        return row.op == "get" ? fio(row, best) : Result<void>{};
    }

    Result<void> ours(const Row& row, std::vector<std::string>& keys, Best& best) {
        if (row.op == "put") keys = names(row, fmt::format("put{}", ++runs_));
        if (auto made = make_folders(row.op); !made) return made;
        StoreJob job = store_job(row.op == "put" ? OpKind::put : OpKind::get, row, keys);
        StoreResult result = run_job(*store_, job);
        if (!result.error.empty()) return fail(ErrorCode::io, "bench: " + result.error);
        if (row.op == "put") {
            if (auto removed = remove(keys); !removed) return removed;
        }
        if (gbps(result.bytes, result.seconds) > gbps(best.ours.bytes, best.ours.seconds))
            best.ours = std::move(result);
        return {};
    }

    Result<void> plain(const Row& row, std::vector<std::string>& keys, Best& best, const std::string& name,
                       const std::function<PlainResult(const PlainJob&)>& loop) {
        if (interrupted()) return {};
        if (row.op == "put") keys = names(row, fmt::format("put{}", ++runs_));
        if (auto made = make_folders(row.op); !made) return made;
        PlainJob job = plain_job(row);
        for (const std::string& key : keys) job.paths.push_back(uri_.path + "/" + key);
        keep(best, name, loop(job));
        if (row.op == "put") {
            for (const std::string& path : job.paths) ::unlink(path.c_str());
        }
        return {};
    }

    Result<void> fio(const Row& row, Best& best) {
        static const bool installed = fio_installed();
        if (!installed) {
            note("fio is not installed: it is left out as a ceiling");
        } else if (!interrupted()) {
            keep(best, "fio", fio_read(plain_job(row), uri_.path + "/" + prefix_));
        }
        return {};
    }

    void keep(Best& best, const std::string& name, PlainResult result) {
        if (!result.error.empty()) {
            note(fmt::format("{}: left out: {}", name, result.error));
            return;
        }
        PlainResult& kept = best.plain[name];
        if (gbps(result.bytes, result.seconds) > gbps(kept.bytes, kept.seconds)) kept = std::move(result);
    }

    PlainJob plain_job(const Row& row) const {
        PlainJob job;
        job.put = row.op == "put";
        job.direct = row.mode == "direct";
        job.size_bytes = row.size_bytes;
        job.depth = plan_.depth;
        job.memory = lease_.data();
        job.bound = plan_.bound;
        return job;
    }

    StoreJob store_job(OpKind kind, const Row& row, const std::vector<std::string>& keys) const {
        StoreJob job;
        job.kind = kind;
        job.size_bytes = row.size_bytes;
        job.depth = plan_.depth;
        job.keys = keys;
        job.memory = lease_.data();
        job.bound = plan_.bound;
        return job;
    }

    // The keys of one run, spread over 256 folders.
    std::vector<std::string> names(const Row& row, const std::string& run) const {
        std::uint64_t run_bytes = plan_.run_bytes;
        if (uri_.scheme == "mem") {  // it must not evict what is about to be read
            const auto size = uri_.size("size", limits::mem_store_bytes_default, 1);
            if (size) run_bytes = std::min(run_bytes, *size / 4);
        }
        const std::uint64_t least = uri_.scheme == "mem" ? 1 : plan_.depth;
        const std::size_t count = std::clamp<std::uint64_t>(run_bytes / row.size_bytes, least, objects_max);
        std::vector<std::string> keys;
        keys.reserve(count);
        for (std::size_t i = 0; i < count; ++i) {
            keys.push_back(fmt::format("{}/{:02x}/{}-{}-{}", prefix_, i % 256, run, row.size_bytes, i));
        }
        return keys;
    }

    // Stores what gets will read, through the engine and in the row's mode, so that direct reads find nothing cached.
    Result<void> fill(const Row& row, const std::vector<std::string>& keys) {
        progress(fmt::format("{}: storing {} objects of {}", row.mode, keys.size(), format_size(row.size_bytes)));
        StoreJob job = store_job(OpKind::put, row, keys);
        job.bound = std::chrono::hours(1);
        const StoreResult result = run_job(*store_, job);
        if (!result.error.empty()) return fail(ErrorCode::io, "bench: " + result.error);
        if (interrupted()) return fail(ErrorCode::cancelled, "bench: interrupted; what it had stored is removed");
        if (!on_files()) return {};
        if (!std::filesystem::exists(uri_.path + "/" + keys.front())) {
            return fail(ErrorCode::internal,
                        "bench: the file engine keeps its values somewhere else than under their keys");
        }
        // Writing back while the rounds run would slow down whoever comes first.
        const int fd = ::open(uri_.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd >= 0) {
            syncfs(fd);
            ::close(fd);
        }
        return {};
    }

    // Making folders is no part of a put: neither side may pay for it.
    Result<void> make_folders(const std::string& op) {
        if (!on_files() || op != "put") return {};
        for (unsigned i = 0; i < 256; ++i) {
            std::error_code error;
            std::filesystem::create_directories(fmt::format("{}/{}/{:02x}", uri_.path, prefix_, i), error);
            if (error) {
                return fail(ErrorCode::io, fmt::format("bench: no folder under '{}': {}", uri_.path, error.message()));
            }
        }
        return {};
    }

    Result<void> remove(const std::vector<std::string>& keys) {
        StoreJob job;
        job.kind = OpKind::remove;
        job.depth = plan_.depth;
        job.keys = keys;
        const StoreResult result = run_job(*store_, job);
        if (!result.error.empty()) return fail(ErrorCode::io, "bench: " + result.error);
        return {};
    }

    Result<void> clean() {
        if (!store_) return {};
        progress("removing what was stored");
        const std::string why = remove_all(*store_, prefix_ + "/");
        if (!why.empty()) {
            return fail(ErrorCode::io, fmt::format("bench: objects under '{}' may be left: {}", prefix_, why));
        }
        if (on_files()) {
            std::error_code error;
            std::filesystem::remove_all(uri_.path + "/" + prefix_, error);
            if (error) {
                return fail(ErrorCode::io, fmt::format("bench: folder '{}/{}' is left: {}; remove it", uri_.path,
                                                       prefix_, error.message()));
            }
        }
        return {};
    }

    void add_row(const Row& row, const Best& best) {
        BenchRow out;
        out.op = row.op;
        out.size_bytes = row.size_bytes;
        out.depth = plan_.depth;
        out.mode = row.mode;
        out.engine = uri_.scheme;
        out.path = store_->describe();
        out.cores = cores_allowed();
        out.gbps = gbps(best.ours.bytes, best.ours.seconds);
        out.cpu_s_per_gb = cpu_per_gb(best.ours.cpu_seconds, best.ours.bytes);
        out.p50_us = best.ours.p50_us;
        out.p99_us = best.ours.p99_us;
        for (const auto& [name, result] : best.plain) {
            out.loops.push_back(
                BenchLoop{name, gbps(result.bytes, result.seconds), cpu_per_gb(result.cpu_seconds, result.bytes)});
            if (!out.ceiling || out.loops.back().gbps > out.ceiling->gbps) out.ceiling = out.loops.back();
        }
        report_.rows.push_back(std::move(out));
    }

    void note(const std::string& text) {
        if (std::find(report_.notes.begin(), report_.notes.end(), text) == report_.notes.end()) {
            report_.notes.push_back(text);
        }
    }

    static void progress(const std::string& text) {
        static const bool terminal = isatty(STDERR_FILENO) != 0;
        if (terminal) fmt::print(stderr, "\r\x1b[K{}", text);
    }

    const BenchPlan& plan_;
    const Uri uri_;
    const std::string prefix_ = random_prefix();
    BenchReport report_;
    std::shared_ptr<Region> region_;
    Lease lease_;
    std::unique_ptr<Store> store_;
    unsigned runs_ = 0;
};

}  // namespace

Result<BenchReport> bench_store(const BenchPlan& plan) {
    auto uri = Uri::parse(plan.uri);
    if (!uri) return tl::unexpected(uri.error());
    return Bench(plan, std::move(*uri)).run();
}

}  // namespace kvern::cli
