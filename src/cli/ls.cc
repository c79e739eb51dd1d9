// SPDX-License-Identifier: Apache-2.0
// kvern ls: all values under a prefix, page by page, so that memory stays bounded however many there are.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/interrupt.h"
#include "cli/target.h"
#include "kvern/limits.h"

namespace kvern::cli {
namespace {

struct Options {
    std::string uri;
    std::string prefix;
    bool json = false;
};

class Printer {
  public:
    explicit Printer(bool json) : json_(json) {
        if (json_) fmt::print("{{\"entries\": [");
    }
    void print(const Entry& entry) {
        if (json_) {
            const nlohmann::ordered_json document{{"key", url_escape(entry.key)},
                                                  {"size_bytes", entry.size_bytes},
                                                  {"mtime_ns", entry.mtime_ns},
                                                  {"etag", entry.etag}};
            fmt::print("{}\n{}", first_ ? "" : ",",
                       document.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
        } else {
            fmt::print("{:>12}  {}  {}\n", entry.size_bytes, format_time(entry.mtime_ns), url_escape(entry.key));
        }
        first_ = false;
    }
    void finish() {
        if (json_) fmt::print("{}]}}\n", first_ ? "" : "\n");
    }

  private:
    bool json_;
    bool first_ = true;
};

int list(const Options& options) {
    auto prefix = url_unescape(options.prefix);
    if (!prefix) return complain(prefix.error());
    auto store = open_store(options.uri);
    if (!store) return complain(store.error());
    Op op;
    op.kind = OpKind::list;
    op.key = *prefix;
    op.limit = limits::list_entries_max;
    // The first page comes before anything is printed: a wrong prefix leaves no half of a document.
    Outcome page = ask(**store, op);
    if (page.status != Status::ok) {
        return page.error.code == ErrorCode::invalid_argument ? complain(page.error) : complain(op, page);
    }
    Printer printer(options.json);
    for (;;) {
        for (const Entry& entry : page.entries) printer.print(entry);
        if (!page.more || page.entries.empty()) break;
        if (interrupted()) return complain(exit_failed, "ls: interrupted, the list is not complete");
        op.after = page.entries.back().key;
        page = ask(**store, op);
        if (page.status != Status::ok) return complain(op, page);
    }
    printer.finish();
    return exit_ok;
}

}  // namespace

Command ls_command() {
    return {"ls",
            "List values in byte order of their keys",
            [](Arguments& arguments) -> Runner {
                auto options = std::make_shared<Options>();
                arguments.positional("URI", options->uri, std::string(uri_help), true);
                arguments.positional("PREFIX", options->prefix, "Only keys that start with this; escaped as a key",
                                     false);
                arguments.flag("--json", options->json, "Print JSON");
                arguments.examples("  kvern ls file:///mnt/kv\n  kvern ls file:///mnt/kv models/ --json");
                return [options] { return list(*options); };
            },
            {}};
}

}  // namespace kvern::cli
