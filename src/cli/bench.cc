// SPDX-License-Identifier: Apache-2.0
// kvern bench: measurements that users run on their own machines. Here: options; the work is in bench_store.cc.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>

#include "base/text.h"
#include "base/uri.h"
#include "cli/bench_report.h"
#include "cli/bench_store.h"
#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/target.h"
#include "kvern/limits.h"

namespace kvern::cli {
namespace {

struct Options {
    std::string uri;
    std::string sizes = "4MiB,64KiB";
    std::string ops = "put,get";
    std::string modes;
    std::uint64_t depth = 8;
    std::uint64_t rounds = 0;
    std::uint64_t run_bytes = std::uint64_t{512} << 20;
    std::uint64_t seconds = 10;
    bool json = false;
};

constexpr std::uint64_t seconds_max = 3600;
constexpr std::uint64_t rounds_max = 1000;

std::vector<std::string> split(std::string_view list) {
    std::vector<std::string> words;
    while (!list.empty()) {
        const std::string_view word = list.substr(0, list.find(','));
        list.remove_prefix(std::min(list.size(), word.size() + 1));
        words.emplace_back(word);
    }
    return words;
}

tl::unexpected<Error> wrong(std::string message) {
    return fail(ErrorCode::invalid_argument, std::move(message));
}

Result<std::vector<std::string>> words_of(std::string_view option, std::string_view list,
                                          std::span<const std::string_view> known) {
    auto words = split(list);
    for (const std::string& word : words) {
        if (std::find(known.begin(), known.end(), word) == known.end()) {
            return wrong(fmt::format("{}: '{}' is not possible{}", option, word, suggestion(word, known)));
        }
    }
    return words;
}

Result<std::vector<std::uint64_t>> sizes_of(std::string_view list) {
    std::vector<std::uint64_t> sizes;
    for (const std::string& word : split(list)) {
        auto size = parse_size(word);
        if (!size) return wrong("--size: " + size.error().message);
        if (*size == 0 || *size % limits::page_bytes != 0 || *size > (std::uint64_t{1} << 30)) {
            return wrong(fmt::format("--size: {} must be a multiple of 4KiB, up to 1GiB", word));
        }
        sizes.push_back(*size);
    }
    if (sizes.empty()) return wrong("--size: name at least one size, as in 4MiB,64KiB");
    return sizes;
}

Result<void> check_modes(const BenchPlan& plan) {
    auto uri = Uri::parse(plan.uri);
    if (!uri) return tl::unexpected(uri.error());
    if (uri->scheme != "file" && !plan.modes.empty()) return wrong("--mode is for file: stores only; leave it out");
    if (uri->params.contains("direct"))
        return wrong("bench: choose direct or cached by --mode, not by direct= in the URI");
    return {};
}

Result<BenchPlan> plan_from(const Options& options) {
    constexpr std::array<std::string_view, 2> known_ops{"put", "get"};
    constexpr std::array<std::string_view, 2> known_modes{"direct", "cached"};
    auto sizes = sizes_of(options.sizes);
    if (!sizes) return tl::unexpected(sizes.error());
    auto ops = words_of("--ops", options.ops, known_ops);
    if (!ops) return tl::unexpected(ops.error());
    auto modes = words_of("--mode", options.modes, known_modes);
    if (!modes) return tl::unexpected(modes.error());
    if (options.depth < 1 || options.depth > limits::file_depth_max) {
        return wrong(fmt::format("--depth must be from 1 to {}", limits::file_depth_max));
    }
    if (options.rounds > rounds_max) return wrong(fmt::format("--rounds must be at most {}", rounds_max));
    if (options.seconds < 1 || options.seconds > seconds_max) {
        return wrong(fmt::format("--seconds must be from 1 to {}", seconds_max));
    }
    BenchPlan plan;
    plan.uri = options.uri;
    plan.sizes_bytes = std::move(*sizes);
    plan.ops = std::move(*ops);
    plan.modes = std::move(*modes);
    plan.depth = static_cast<unsigned>(options.depth);
    plan.rounds = static_cast<unsigned>(options.rounds);
    plan.run_bytes = options.run_bytes;
    plan.bound = std::chrono::seconds(options.seconds);
    if (auto checked = check_modes(plan); !checked) return tl::unexpected(checked.error());
    return plan;
}

int bench(const Options& options) {
    auto plan = plan_from(options);
    if (!plan) return complain(plan.error());
    auto report = bench_store(*plan);
    if (!report) return complain(report.error());
    options.json ? print_json(*report) : print_table(*report);
    return exit_ok;
}

Command bench_store_command() {
    return {"store",
            "Measure a store against plain loops over the same files",
            [](Arguments& arguments) -> Runner {
                auto options = std::make_shared<Options>();
                arguments.positional("URI", options->uri, std::string(uri_help), true);
                arguments.text("--size", options->sizes, "Sizes of the objects");
                arguments.text("--ops", options->ops, "What to measure");
                arguments.text("--mode", options->modes, "direct, cached or both (file: only); both if not given");
                arguments.number("--depth", options->depth, "Objects in flight");
                arguments.number("--rounds", options->rounds,
                                 "Rounds, of which the best counts; 0: 3, and 7 for cached puts");
                arguments.size("--bytes", options->run_bytes, "Bytes of one run");
                arguments.number("--seconds", options->seconds, "A run ends after this time, done or not");
                arguments.flag("--json", options->json, "Print JSON");
                arguments.examples(
                    "  kvern bench store file:///mnt/kv\n"
                    "  kvern bench store file:///mnt/kv --size 4MiB --ops get --mode direct --depth 16 --json");
                return [options] { return bench(*options); };
            },
            {}};
}

}  // namespace

Command bench_command() {
    return {"bench", "Measure", {}, {bench_store_command()}};
}

}  // namespace kvern::cli
