// SPDX-License-Identifier: Apache-2.0
// kvern put: one value from a file or standard input. A value that fits into one piece is one put; a longer one is an
// upload in pieces, invisible until its commit, so that memory stays bounded and an interrupt leaves nothing.
#include <fmt/format.h>

#include <memory>

#include "base/text.h"
#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/interrupt.h"
#include "cli/local_file.h"
#include "cli/target.h"

namespace kvern::cli {
namespace {

struct Options {
    std::string uri;
    std::string key;
    std::string file = "-";
    bool if_absent = false;
    bool json = false;
};

class Put {
  public:
    Put(const Options& options, Target& target, Input& input, Lease& lease)
        : options_(options), target_(target), input_(input), lease_(lease) {}

    int run_all() {
        auto first = next_piece();
        if (!first) return complain(first.error());
        return *first < piece_bytes ? put_whole(*first) : upload(*first);
    }

  private:
    Result<std::size_t> next_piece() { return input_.read({lease_.data(), piece_bytes}); }

    Op make(OpKind kind, std::size_t size_bytes = 0) const {
        Op op;
        op.kind = kind;
        op.key = target_.key;
        op.upload = upload_;
        if (options_.if_absent && (kind == OpKind::put || kind == OpKind::commit)) op.condition = Condition::absent;
        if (size_bytes > 0) op.buffers.push_back(Buffer{lease_.data(), size_bytes});
        return op;
    }

    int put_whole(std::size_t size_bytes) {
        if (interrupted()) return gave_up();
        const Op op = make(OpKind::put, size_bytes);
        const Outcome outcome = ask(*target_.store, op, &lease_);
        return outcome.status == Status::ok ? report(outcome.stat) : complain(op, outcome);
    }

    int upload(std::size_t first_bytes) {
        const Op begin = make(OpKind::begin);
        const Outcome begun = ask(*target_.store, begin);
        if (begun.status != Status::ok) return complain(begin, begun);
        upload_ = begun.upload;
        const int appended = append_all(first_bytes);
        if (appended != exit_ok) {
            ask(*target_.store, make(OpKind::abort));
            return appended;
        }
        const Op commit = make(OpKind::commit);
        const Outcome committed = ask(*target_.store, commit);
        if (committed.status == Status::ok) return report(committed.stat);
        ask(*target_.store, make(OpKind::abort));  // frees what a refused commit still holds
        // Name the key, not the number of the upload.
        Op put = make(OpKind::put);
        return complain(put, committed);
    }

    int append_all(std::size_t size_bytes) {
        while (size_bytes > 0) {
            const Op op = make(OpKind::append, size_bytes);
            const Outcome outcome = ask(*target_.store, op, &lease_);
            if (outcome.status != Status::ok) return complain(make(OpKind::put), outcome);
            auto next = next_piece();
            if (!next) return complain(next.error());
            size_bytes = *next;
        }
        return interrupted() ? gave_up() : exit_ok;
    }

    int report(const Stat& stat) const {
        if (options_.json) fmt::print("{}\n", stat_json(target_.key, stat));
        return exit_ok;
    }

    int gave_up() const {
        return complain(exit_failed, fmt::format("put '{}': interrupted, nothing was stored", target_.key));
    }

    const Options& options_;
    Target& target_;
    Input& input_;
    Lease& lease_;
    std::uint64_t upload_ = 0;
};

int put(const Options& options) {
    auto target = open_target(options.uri, options.key);
    if (!target) return complain(target.error());
    auto input = Input::open(options.file);
    if (!input) return complain(input.error());
    auto lease = lease_memory(piece_bytes);
    if (!lease) return complain(lease.error());
    return Put(options, *target, *input, *lease).run_all();
}

}  // namespace

Command put_command() {
    return {"put",
            "Store a value",
            [](Arguments& arguments) -> Runner {
                auto options = std::make_shared<Options>();
                arguments.positional("URI", options->uri, std::string(uri_help), true);
                arguments.positional("KEY", options->key, std::string(key_help), true);
                arguments.positional("FILE", options->file, "File to read; '-' or nothing is standard input", false);
                arguments.flag("--if-absent", options->if_absent, "Fail if the key exists, and change nothing");
                arguments.flag("--json", options->json, "Print what was stored as JSON");
                arguments.examples(
                    "  kvern put file:///mnt/kv models/a weights.bin\n"
                    "  tar c folder | kvern put file:///mnt/kv backups/folder.tar --if-absent");
                return [options] { return put(*options); };
            },
            {}};
}

}  // namespace kvern::cli
