// SPDX-License-Identifier: Apache-2.0
// kvern du: who keeps how much in a store, and how long ago it was used.
#include <fmt/format.h>

#include <array>
#include <memory>

#include "base/clock.h"
#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/interrupt.h"
#include "cli/keep_report.h"
#include "cli/progress.h"
#include "cli/target.h"
#include "keep/usage.h"

namespace kvern::cli {
namespace {

constexpr std::array<std::string_view, 3> tables{"model", "age", "namespace"};

struct Options {
    std::string uri;
    std::string by;
    bool json = false;
};

struct Measured {
    Usage usage;
    Foreign foreign;
    Space space;
};

Result<Measured> measure(const std::string& uri) {
    auto store = open_store(uri);
    if (!store) return tl::unexpected(store.error());
    Client client(std::move(*store), interrupted);
    Progress progress;
    const auto catalogue = read_catalogue(client, "", [&](std::uint64_t keys) {
        if (progress.due()) progress.show(fmt::format("du: {} listed", counted(keys, "key")));
    });
    if (!catalogue) return tl::unexpected(catalogue.error());
    const auto labels = read_labels(client, *catalogue);
    if (!labels) return tl::unexpected(labels.error());
    Op op;
    op.kind = OpKind::space;
    const auto space = client.call(op);
    if (!space) return tl::unexpected(space.error());
    return Measured{measure_usage(*catalogue, *labels, WallClock::system().now_ns()), catalogue->foreign, space->space};
}

nlohmann::ordered_json row_json(std::string_view what, const UsageRow& row) {
    nlohmann::ordered_json json{{what, row.name}};
    if (what == "model") json["namespaces"] = row.namespaces;
    if (what == "namespace") json["model"] = row.label;
    json.update(
        {{"chunks", row.chunks}, {"objects", row.objects}, {"bytes", row.bytes}, {"newest_use_ns", row.newest_use_ns}});
    return json;
}

nlohmann::ordered_json rows_json(std::string_view what, const std::vector<UsageRow>& rows) {
    auto list = nlohmann::ordered_json::array();
    for (const auto& row : rows) list.push_back(row_json(what, row));
    return list;
}

void print_rows(std::string_view what, const std::vector<UsageRow>& rows) {
    fmt::print("{:<40} {:>10} {:>10} {:>12}  {}\n", what, "chunks", "objects", "size", "last used (UTC)");
    for (const auto& row : rows) {
        auto name = row.name.empty() ? std::string("(no label)") : row.name;
        if (what == "namespace") name = fmt::format("{} {}", row.name.substr(0, 12), row.label);
        fmt::print("{:<40} {:>10} {:>10} {:>12}  {}\n", name, row.chunks, row.objects, format_size(row.bytes),
                   row.chunks == 0 ? "-" : format_time(row.newest_use_ns));
    }
    fmt::print("\n");
}

int du(const Options& options) {
    const bool all = options.by.empty();
    if (!all && std::find(tables.begin(), tables.end(), options.by) == tables.end()) {
        return complain(exit_usage,
                        fmt::format("--by: '{}' is not possible{}", options.by, suggestion(options.by, tables)));
    }
    const auto measured = measure(options.uri);
    if (!measured) return complain(measured.error());
    const auto& usage = measured->usage;
    if (options.json) {
        nlohmann::ordered_json document;
        if (all || options.by == "model") document["models"] = rows_json("model", usage.models);
        if (all || options.by == "age") document["ages"] = rows_json("age", usage.ages);
        if (options.by == "namespace") document["namespaces"] = rows_json("namespace", usage.namespaces);
        document["total"] = {{"namespaces", usage.total.namespaces},
                             {"chunks", usage.total.chunks},
                             {"objects", usage.total.objects},
                             {"bytes", usage.total.bytes}};
        document["foreign"] = foreign_json(measured->foreign);
        document["space"] = space_json(measured->space);
        fmt::print("{}\n", json_line(document));
        return exit_ok;
    }
    if (all || options.by == "model") print_rows("model", usage.models);
    if (all || options.by == "age") print_rows("age", usage.ages);
    if (options.by == "namespace") print_rows("namespace", usage.namespaces);
    fmt::print("total: {} in {} of {}, {}\n", counted(usage.total.objects, "object"),
               counted(usage.total.chunks, "chunk"), counted(usage.total.namespaces, "namespace"),
               format_size(usage.total.bytes));
    if (measured->foreign.files > 0) fmt::print("{}", foreign_line(measured->foreign));
    fmt::print("{}", space_line(measured->space));
    return exit_ok;
}

}  // namespace

Command du_command() {
    return {"du",
            "Show who keeps how much, and when it was last used",
            [](Arguments& arguments) -> Runner {
                auto options = std::make_shared<Options>();
                arguments.positional("URI", options->uri, std::string(uri_help), true);
                arguments.text("--by", options->by, "One table: model, age or namespace; the first two if not given");
                arguments.flag("--json", options->json, "Print JSON");
                arguments.examples(
                    "  kvern du file:///mnt/kv\n"
                    "  kvern du file:///mnt/kv --by namespace\n"
                    "  kvern du file:///mnt/kv --json | jq .total.bytes");
                return [options] { return du(*options); };
            },
            {}};
}

}  // namespace kvern::cli
