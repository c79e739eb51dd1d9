// SPDX-License-Identifier: Apache-2.0
// kvern fsck: reads objects and proves every checksum in them; can remove the bad ones.
#include <fmt/format.h>

#include <charconv>
#include <memory>
#include <random>

#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/interrupt.h"
#include "cli/keep_report.h"
#include "cli/progress.h"
#include "cli/target.h"
#include "keep/verify.h"

namespace kvern::cli {
namespace {

struct Options {
    std::string uri;
    std::string sample = "100%";
    bool remove = false;
    bool json = false;
};

Result<VerifyPlan> plan_from(const Options& options) {
    VerifyPlan plan;
    plan.remove = options.remove;
    plan.seed = std::random_device{}();
    std::string_view text = options.sample;
    const bool percent = text.ends_with('%');
    if (percent) text.remove_suffix(1);
    const auto* const end = text.data() + text.size();
    double part = 0;
    const auto read =
        percent ? std::from_chars(text.data(), end, part) : std::from_chars(text.data(), end, plan.objects_max);
    const bool possible = percent ? part > 0 && part <= 100 : plan.objects_max > 0;
    if (read.ec != std::errc{} || read.ptr != end || !possible) {
        return fail(ErrorCode::invalid_argument,
                    fmt::format("--sample: '{}' is neither a part such as 10% nor a number of objects such as 500",
                                options.sample));
    }
    if (percent) plan.fraction = part / 100;
    return plan;
}

std::string progress_text(const VerifyProgress& done, double seconds) {
    const double rate = static_cast<double>(done.bytes) / std::max(seconds, 1e-3);
    const double left_s =
        static_cast<double>(done.bytes_all - std::min(done.bytes_all, done.bytes)) / std::max(rate, 1.0);
    return fmt::format("fsck: {} of {} objects, {} of {}, {}/s, {:.0f} s left", done.objects, done.objects_all,
                       format_size(done.bytes), format_size(done.bytes_all),
                       format_size(static_cast<std::uint64_t>(rate)), left_s);
}

nlohmann::ordered_json report_json(const VerifyReport& report, nlohmann::ordered_json&& findings, double seconds) {
    return {{"ok", report.bad == report.removed && !report.interrupted},
            {"objects", report.done.objects},
            {"bytes", report.done.bytes},
            {"bad", report.bad},
            {"removed", report.removed},
            {"changed", report.changed},
            {"newer_format", report.newer},
            {"nameless_namespaces", report.nameless_namespaces},
            {"findings", std::move(findings)},
            {"seconds", seconds}};
}

void print_report(const VerifyReport& report, double seconds) {
    fmt::print(
        "read {}, {} in {:.1f} s: {}\n", counted(report.done.objects, "object"), format_size(report.done.bytes),
        seconds,
        report.bad == 0 ? "every checksum is right" : fmt::format("{} bad, {} removed", report.bad, report.removed));
    if (report.changed > 0) fmt::print("{} changed meanwhile\n", counted(report.changed, "object"));
    if (report.newer > 0) fmt::print("{} of another format version: not checked\n", counted(report.newer, "object"));
    if (report.nameless_namespaces > 0) {
        fmt::print("{} without identity.json: usable, but nobody can say whose\n",
                   counted(report.nameless_namespaces, "namespace"));
    }
}

int fsck(const Options& options) {
    const auto plan = plan_from(options);
    if (!plan) return complain(plan.error());
    auto store = open_store(options.uri);
    if (!store) return complain(store.error());
    const auto memory = verify_memory();  // outlives the client
    if (!memory) return complain(memory.error());
    Client client(std::move(*store), interrupted);
    Progress progress;
    const auto catalogue = read_catalogue(client, "", [&](std::uint64_t keys) {
        if (progress.due()) progress.show(fmt::format("fsck: {} listed", counted(keys, "key")));
    });
    if (!catalogue) return complain(catalogue.error());
    auto findings = nlohmann::ordered_json::array();
    VerifyHooks hooks;
    hooks.found = [&](const Finding& finding) {
        const auto key = url_escape(finding.key);
        if (options.json) {
            findings.push_back({{"key", key}, {"why", finding.why}, {"removed", finding.removed}});
        } else {
            progress.clear();
            fmt::print("{}  {}: {}\n", finding.removed ? "REMOVED" : "BAD    ", key, finding.why);
        }
    };
    const Progress reading;
    hooks.progress = [&](const VerifyProgress& done) {
        if (progress.due()) progress.show(progress_text(done, reading.seconds()));
    };
    const auto report = verify(client, **memory, *catalogue, *plan, hooks);
    progress.clear();
    if (!report) return complain(report.error());
    if (options.json) {
        fmt::print("{}\n", json_line(report_json(*report, std::move(findings), reading.seconds())));
    } else {
        print_report(*report, reading.seconds());
    }
    if (report->interrupted) return complain(exit_failed, "fsck: interrupted; not everything was read");
    if (report->bad == report->removed) return exit_ok;
    return complain(exit_failed,
                    fmt::format("fsck: {} bad and left; {}", counted(report->bad - report->removed, "file"),
                                options.remove ? "see above why" : "--remove removes what is bad"));
}

}  // namespace

Command fsck_command() {
    return {"fsck",
            "Read objects and check every checksum in them",
            [](Arguments& arguments) -> Runner {
                auto options = std::make_shared<Options>();
                arguments.positional("URI", options->uri, std::string(uri_help), true);
                arguments.text("--sample", options->sample, "Part of the objects (10%), or how many (500), by chance");
                arguments.flag("--remove", options->remove, "Remove what is bad");
                arguments.flag("--json", options->json, "Print JSON");
                arguments.examples(
                    "  kvern fsck file:///mnt/kv\n"
                    "  kvern fsck file:///mnt/kv --sample 1% --json | jq .ok\n"
                    "  kvern fsck file:///mnt/kv --remove");
                return [options] { return fsck(*options); };
            },
            {}};
}

}  // namespace kvern::cli
