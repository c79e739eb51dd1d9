// SPDX-License-Identifier: Apache-2.0
// kvern stat: what the store knows about one value.
#include <fmt/format.h>

#include <memory>

#include "base/text.h"
#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/target.h"

namespace kvern::cli {
namespace {

struct Options {
    std::string uri;
    std::string key;
    bool json = false;
};

int print_stat(const Options& options) {
    auto target = open_target(options.uri, options.key);
    if (!target) return complain(target.error());
    Op op;
    op.kind = OpKind::stat;
    op.with_metadata = true;
    op.key = target->key;
    const Outcome outcome = ask(*target->store, op);
    if (outcome.status != Status::ok) return complain(op, outcome);
    const Stat& stat = outcome.stat;
    if (options.json) {
        fmt::print("{}\n", stat_json(target->key, stat));
    } else {
        fmt::print("key       {}\nsize      {} ({} bytes)\nmodified  {} UTC\netag      {}\nmetadata  {} bytes\n",
                   url_escape(target->key), format_size(stat.size_bytes), stat.size_bytes, format_time(stat.mtime_ns),
                   stat.etag, stat.metadata.size());
    }
    return exit_ok;
}

}  // namespace

Command stat_command() {
    return {"stat",
            "Show size, time and version of a value",
            [](Arguments& arguments) -> Runner {
                auto options = std::make_shared<Options>();
                arguments.positional("URI", options->uri, std::string(uri_help), true);
                arguments.positional("KEY", options->key, std::string(key_help), true);
                arguments.flag("--json", options->json, "Print JSON");
                arguments.examples("  kvern stat file:///mnt/kv models/a --json");
                return [options] { return print_stat(*options); };
            },
            {}};
}

}  // namespace kvern::cli
