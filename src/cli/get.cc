// SPDX-License-Identifier: Apache-2.0
// kvern get: one value, or a part of it, to a file or standard output. It is read in pieces, and every piece must be of
// the version that the first look saw: a value that is replaced meanwhile is an error, never a mixture of two.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/text.h"
#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/local_file.h"
#include "cli/target.h"

namespace kvern::cli {
namespace {

struct Options {
    std::string uri;
    std::string key;
    std::string file = "-";
    std::uint64_t offset = 0;
    std::uint64_t length = whole_value;
    bool json = false;
};

class Get {
  public:
    Get(const Options& options, Target& target) : options_(options), target_(target) {}

    int run_all() {
        if (const int looked = look(); looked != exit_ok) return looked;
        auto output = Output::open(options_.file);
        if (!output) return complain(output.error());
        auto lease = lease_memory(std::clamp<std::size_t>(end_ - options_.offset, 1, piece_bytes));
        if (!lease) return complain(lease.error());
        for (std::uint64_t at = options_.offset; at < end_;) {
            const std::size_t size_bytes = std::min<std::uint64_t>(end_ - at, piece_bytes);
            if (const int moved = piece(at, *lease, size_bytes, *output); moved != exit_ok) return moved;
            at += size_bytes;
        }
        if (auto published = output->publish(); !published) return complain(failed(published.error()));
        if (options_.json) fmt::print("{}\n", stat_json(target_.key, stat_));
        return exit_ok;
    }

  private:
    int look() {
        Op op;
        op.kind = OpKind::stat;
        op.with_metadata = true;
        op.key = target_.key;
        Outcome outcome = ask(*target_.store, op);
        op.kind = OpKind::get;  // the word in messages
        if (outcome.status != Status::ok) return complain(op, outcome);
        stat_ = std::move(outcome.stat);
        end_ = stat_.size_bytes;
        const std::uint64_t size_bytes = stat_.size_bytes;
        const bool bounded = options_.length != whole_value;
        if (options_.offset > size_bytes || (bounded && options_.length > size_bytes - options_.offset)) {
            return complain(exit_failed,
                            fmt::format("get '{}': the value has {} bytes, the range ends beyond them; ask "
                                        "for less ('kvern stat' shows the size)",
                                        target_.key, size_bytes));
        }
        if (bounded) end_ = options_.offset + options_.length;
        return exit_ok;
    }

    int piece(std::uint64_t at, Lease& lease, std::size_t size_bytes, Output& output) {
        Op op;
        op.kind = OpKind::get;
        op.key = target_.key;
        op.offset = at;
        op.length = size_bytes;
        op.buffers.push_back(Buffer{lease.data(), size_bytes});
        const Outcome outcome = ask(*target_.store, op, &lease);
        // A shorter new version fails by its size before its etag can be compared: look at the etag first.
        const bool other_version = !outcome.stat.etag.empty() && outcome.stat.etag != stat_.etag;
        if (other_version || outcome.status == Status::miss) return replaced();
        if (outcome.status != Status::ok) return complain(op, outcome);
        if (auto written = output.write({lease.data(), size_bytes}); !written) return complain(failed(written.error()));
        return exit_ok;
    }

    int replaced() const {
        return complain(
            exit_failed,
            fmt::format("get '{}': the value was replaced or removed while it was read; try again", target_.key));
    }

    Error failed(const Error& error) const {
        return {ErrorCode::io, fmt::format("get '{}': {}", target_.key, error.message)};
    }

    const Options& options_;
    Target& target_;
    Stat stat_;
    std::uint64_t end_ = 0;  // of the range
};

int get(const Options& options) {
    if (options.json && options.file == "-") {
        return complain(exit_usage, "get: --json needs a FILE, since standard output carries the value");
    }
    auto target = open_target(options.uri, options.key);
    if (!target) return complain(target.error());
    return Get(options, *target).run_all();
}

}  // namespace

Command get_command() {
    return {"get",
            "Read a value or a part of it",
            [](Arguments& arguments) -> Runner {
                auto options = std::make_shared<Options>();
                arguments.positional("URI", options->uri, std::string(uri_help), true);
                arguments.positional("KEY", options->key, std::string(key_help), true);
                arguments.positional("FILE", options->file,
                                     "File to write, replaced only when all is read; '-' or nothing is standard output",
                                     false);
                arguments.size("--offset", options->offset, "First byte");
                arguments.size("--length", options->length, "Number of bytes; up to the end if not given");
                arguments.flag("--json", options->json, "Print what was read as JSON; needs FILE");
                arguments.examples(
                    "  kvern get file:///mnt/kv models/a copy.bin\n"
                    "  kvern get file:///mnt/kv models/a --offset 4KiB --length 64KiB | sha256sum");
                return [options] { return get(*options); };
            },
            {}};
}

}  // namespace kvern::cli
