// SPDX-License-Identifier: Apache-2.0
// kvern rm: removes one value.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

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

int remove_value(const Options& options) {
    auto target = open_target(options.uri, options.key);
    if (!target) return complain(target.error());
    Op op;
    op.kind = OpKind::remove;
    op.key = target->key;
    const Outcome outcome = ask(*target->store, op);
    if (outcome.status != Status::ok) return complain(op, outcome);
    if (options.json) {
        const nlohmann::ordered_json document{{"key", url_escape(target->key)}, {"removed", true}};
        fmt::print("{}\n", document.dump());
    }
    return exit_ok;
}

}  // namespace

Command rm_command() {
    return {"rm",
            "Remove a value",
            [](Arguments& arguments) -> Runner {
                auto options = std::make_shared<Options>();
                arguments.positional("URI", options->uri, std::string(uri_help), true);
                arguments.positional("KEY", options->key, std::string(key_help), true);
                arguments.flag("--json", options->json, "Print JSON");
                arguments.examples("  kvern rm file:///mnt/kv models/a");
                return [options] { return remove_value(*options); };
            },
            {}};
}

}  // namespace kvern::cli
