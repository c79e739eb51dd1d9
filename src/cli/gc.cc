// SPDX-License-Identifier: Apache-2.0
// kvern gc: removes what has not been used for longest until a store keeps its limits; once, or again and again.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <thread>

#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/interrupt.h"
#include "cli/keep_report.h"
#include "cli/progress.h"
#include "cli/target.h"
#include "keep/collect.h"

namespace kvern::cli {
namespace {

using std::chrono::milliseconds;

struct Options {
    std::string uri;
    CollectLimits limits;
    std::string namespace_prefix;
    std::optional<milliseconds> every;
    bool dry_run = false;
    bool json = false;
};

// Empty if they make sense, else why not.
std::string wrong_options(const Options& options) {
    const auto& limits = options.limits;
    if (!limits.bytes_max && !limits.age_max && !limits.free_percent_min) {
        return "gc: name at least one limit: --max-bytes, --max-age or --min-free-percent";
    }
    if (limits.free_percent_min && (*limits.free_percent_min < 1 || *limits.free_percent_min > 99)) {
        return "--min-free-percent must be from 1 to 99";
    }
    if (options.every && options.every->count() == 0) return "--every: name a time that is longer than nothing (10m)";
    if (options.every && options.dry_run) return "--every and --dry-run don't go together: leave one out";
    const auto& prefix = options.namespace_prefix;
    if (prefix.size() > 64 || prefix.find_first_not_of("0123456789abcdef") != std::string::npos) {
        return fmt::format("--namespace: '{}' is no beginning of a namespace: up to 64 lower-case hex digits", prefix);
    }
    return {};
}

nlohmann::ordered_json amount_json(const Amount& amount) {
    return {{"chunks", amount.chunks}, {"objects", amount.objects}, {"bytes", amount.bytes}};
}

nlohmann::ordered_json report_json(const CollectReport& report, const Options& options, double seconds) {
    return {{"dry_run", options.dry_run},
            {"found", amount_json(report.found)},
            {"removed", amount_json(report.removed)},
            {"removed_by_others", amount_json(report.gone)},
            {"kept_chunks", report.kept_chunks},
            {"failed_objects", report.failed_objects},
            {"removed_namespaces", report.removed_namespaces},
            {"removed_start_notes", report.removed_start_notes},
            {"foreign", foreign_json(report.foreign)},
            {"space", space_json(report.space)},
            {"limits_hold", report.limits_hold},
            {"seconds", seconds}};
}

std::uint64_t left_bytes(const CollectReport& report) {
    return report.found.bytes - std::min(report.found.bytes, report.removed.bytes + report.gone.bytes);
}

void print_report(const CollectReport& report, const Options& options) {
    fmt::print("found     {} in {}, {}\n", counted(report.found.objects, "object"),
               counted(report.found.chunks, "chunk"), format_size(report.found.bytes));
    fmt::print("{}   {} in {}, {}\n", options.dry_run ? "would go" : "removed ",
               counted(report.removed.objects, "object"), counted(report.removed.chunks, "chunk"),
               format_size(report.removed.bytes));
    if (report.gone.objects > 0) {
        fmt::print("others    removed {} meanwhile, {}\n", counted(report.gone.objects, "object"),
                   format_size(report.gone.bytes));
    }
    if (report.kept_chunks > 0) fmt::print("kept      {}, used meanwhile\n", counted(report.kept_chunks, "chunk"));
    if (report.removed_namespaces + report.removed_start_notes > 0) {
        fmt::print("also      {} without objects, {} of ended starts\n",
                   counted(report.removed_namespaces, "namespace"), counted(report.removed_start_notes, "note"));
    }
    fmt::print("left      {}\n", format_size(left_bytes(report)));
    if (report.foreign.files > 0) fmt::print("{}", foreign_line(report.foreign));
}

// One line a round, for logs.
void print_round(const CollectReport& report, double seconds) {
    fmt::print("{} UTC: removed {}, {}; left {}; {:.1f} s\n", format_time(WallClock::system().now_ns()),
               counted(report.removed.objects, "object"), format_size(report.removed.bytes),
               format_size(left_bytes(report)), seconds);
}

// Empty if all is well, else why the limits may not hold.
std::string trouble(const CollectReport& report) {
    if (report.interrupted) return "gc: interrupted; what was removed stays removed, the next run goes on";
    if (report.failed_objects > 0) {
        return fmt::format("gc: {} could not be removed: {}", counted(report.failed_objects, "object"),
                           report.first_error);
    }
    if (report.limits_hold) return {};
    if (report.kept_chunks > 0) return "gc: the limits don't hold yet, since chunks were used meanwhile; run it again";
    return fmt::format("gc: the limits can't hold: nothing is left to remove but {} that {} not Kvern's",
                       counted(report.foreign.files, "file"), report.foreign.files == 1 ? "is" : "are");
}

// Opens the store anew: that removes old temporaries, and finds a mount that has come back.
Result<CollectReport> run_round(const Options& options) {
    auto store = open_store(options.uri);
    if (!store) return tl::unexpected(store.error());
    Client client(std::move(*store), interrupted);
    Progress progress;
    CollectPlan plan;
    plan.limits = options.limits;
    plan.dry_run = options.dry_run;
    plan.namespace_prefix = options.namespace_prefix;
    plan.progress = [&](const CollectProgress& now) {
        if (!progress.due()) return;
        progress.show(now.removed_objects == 0 ? fmt::format("gc: {} listed", counted(now.listed_keys, "key"))
                                               : fmt::format("gc: {} removed, of {}",
                                                             counted(now.removed_objects, "object"), now.listed_keys));
    };
    return collect(client, plan);
}

int collect_once(const Options& options) {
    const auto start = std::chrono::steady_clock::now();
    const auto report = run_round(options);
    if (!report) return complain(report.error());
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (options.json) {
        fmt::print("{}\n", json_line(report_json(*report, options, took.count())));
    } else {
        print_report(*report, options);
    }
    const auto why = trouble(*report);
    return why.empty() ? exit_ok : complain(exit_failed, why);
}

void sleep_until(std::chrono::steady_clock::time_point end) {
    constexpr milliseconds look_interval{50};
    while (!interrupted() && std::chrono::steady_clock::now() < end) {
        std::this_thread::sleep_for(
            std::min<std::chrono::steady_clock::duration>(look_interval, end - std::chrono::steady_clock::now()));
    }
}

// Rounds until a signal. A store that is away for a while is no reason to end, unless it was never there.
int collect_again_and_again(const Options& options) {
    for (bool first = true; !interrupted(); first = false) {
        const auto start = std::chrono::steady_clock::now();
        const auto report = run_round(options);
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
        if (!report && first && report.error().code != ErrorCode::cancelled) return complain(report.error());
        if (report && options.json) {
            fmt::print("{}\n", json_line(report_json(*report, options, took.count())));
        } else if (report) {
            print_round(*report, took.count());
        }
        std::fflush(stdout);
        const auto why = report ? trouble(*report) : report.error().message;
        if (!why.empty() && !interrupted()) complain(exit_failed, why);
        sleep_until(start + *options.every);
    }
    return exit_ok;
}

int gc(const Options& options) {
    if (const auto why = wrong_options(options); !why.empty()) return complain(exit_usage, why);
    return options.every ? collect_again_and_again(options) : collect_once(options);
}

}  // namespace

Command gc_command() {
    return {"gc",
            "Remove what was not used for longest until limits hold",
            [](Arguments& arguments) -> Runner {
                auto options = std::make_shared<Options>();
                arguments.positional("URI", options->uri, std::string(uri_help), true);
                arguments.size("--max-bytes", options->limits.bytes_max, "Kvern's files take at most this");
                arguments.duration("--max-age", options->limits.age_max, "Nothing is unused for longer (7d)");
                arguments.number("--min-free-percent", options->limits.free_percent_min,
                                 "At least this part of the store's capacity is free");
                arguments.text("--namespace", options->namespace_prefix,
                               "Only namespaces that start with these hex digits");
                arguments.duration("--every", options->every, "Again after this time, until SIGTERM");
                arguments.flag("--dry-run", options->dry_run, "Say what would go, remove nothing");
                arguments.flag("--json", options->json, "Print JSON");
                arguments.examples(
                    "  kvern gc file:///mnt/kv --max-bytes 2TiB --dry-run\n"
                    "  kvern gc file:///mnt/kv --max-age 30d --min-free-percent 10\n"
                    "  kvern gc file:///mnt/kv --max-bytes 500GiB --every 1m      # beside an engine, as a sidecar");
                return [options] { return gc(*options); };
            },
            {}};
}

}  // namespace kvern::cli
