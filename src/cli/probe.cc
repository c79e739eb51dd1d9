// SPDX-License-Identifier: Apache-2.0
// kvern probe: which ways there are for bytes to go straight into memory, here and to one store.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/target.h"
#include "fabric/probe.h"
#include "kvern/limits.h"

namespace kvern::cli {
namespace {

using nlohmann::json;

constexpr std::string_view absent_key = ".probe/nothing-is-here";

struct Options {
    std::string uri;
    std::string address;
    bool json = false;
};

// Asks for what is not there, twice, into memory that can be reached: the first answer tells what a server offers, the
// second is asked for in that way. Then the store says what it found; why not stands in its log.
Result<std::string> describe(const std::string& uri) {
    auto store = open_store(uri);
    if (!store) return tl::unexpected(store.error());
    auto memory = lease_memory(limits::page_bytes);
    if (!memory) return tl::unexpected(memory.error());
    (*store)->attach(memory->region()->shared_from_this());
    for (int i = 0; i < 2 && *memory; ++i) {
        Op op;
        op.kind = OpKind::get;
        op.key = absent_key;
        op.length = whole_value;
        op.buffers.push_back({memory->data(), memory->size_bytes()});
        const auto outcome = ask(**store, op, &*memory);
        if (outcome.status == Status::failed) return tl::unexpected(outcome.error);
    }
    auto text = (*store)->describe();
    (*store)->close(limits::close_wait);
    return text;
}

int probe(const Options& options) {
    const auto providers = fabric::probe_providers(options.address);
    Result<std::string> store;
    if (!options.uri.empty()) store = describe(options.uri);
    if (options.json) {
        json out{{"providers", json::array()}};
        for (const auto& one : providers) {
            out["providers"].push_back({{"name", one.name}, {"usable", one.usable}, {"reason", one.reason}});
        }
        if (!options.uri.empty() && store) out["store"] = *store;
        fmt::print("{}\n", out.dump(2));
    } else {
        for (const auto& one : providers) {
            fmt::print("{:<15} {:<4} {}\n", one.name, one.usable ? "yes" : "no", one.reason);
        }
        if (!options.uri.empty() && store) fmt::print("\n{}\n", *store);
    }
    return store ? exit_ok : complain(store.error());
}

}  // namespace

Command probe_command() {
    return {"probe",
            "Show the providers of one-sided transfers that are here, and what a store uses",
            [](Arguments& arguments) -> Runner {
                auto options = std::make_shared<Options>();
                arguments.positional("URI", options->uri, "Store that is asked, too, such as s3://bucket/prefix",
                                     false);
                arguments.text("--address", options->address, "This host's address in the network of the transfers");
                arguments.flag("--json", options->json, "Print JSON");
                arguments.examples(
                    "  kvern probe\n"
                    "  kvern probe 's3://kv/m?endpoint=http://10.0.0.5:9000&rdma=ofi' --address 10.0.0.9 --json");
                return [options] { return probe(*options); };
            },
            {}};
}

}  // namespace kvern::cli
