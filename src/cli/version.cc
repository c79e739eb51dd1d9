// SPDX-License-Identifier: Apache-2.0
// kvern version: what this build is and which code paths it takes here.
#include "kvern/version.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/crc32c.h"
#include "cli/commands.h"
#include "cli/exit_code.h"

namespace kvern::cli {
namespace {

int print_version(bool json) {
    if (json) {
        const nlohmann::ordered_json document{{"version", version()}, {"crc32c", crc32c_path()}};
        fmt::print("{}\n", document.dump());
    } else {
        fmt::print("kvern {} (checksums by {})\n", version(), crc32c_path());
    }
    return exit_ok;
}

}  // namespace

Command version_command() {
    return {"version",
            "Print the version",
            [](Arguments& arguments) -> Runner {
                auto json = std::make_shared<bool>(false);
                arguments.flag("--json", *json, "Print JSON");
                arguments.examples("  kvern version --json");
                return [json] { return print_version(*json); };
            },
            {}};
}

}  // namespace kvern::cli
