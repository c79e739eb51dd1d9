// SPDX-License-Identifier: Apache-2.0
// kvern inspect: what an object says it is, and whether every byte of it is what it must be.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/crc32c.h"
#include "base/text.h"
#include "cache/identity.h"
#include "cache/object.h"
#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/target.h"

namespace kvern::cli {
namespace {

using nlohmann::json;

struct Options {
    std::string uri;
    std::string key;
    bool json = false;
};

struct SliceVerdict {
    Slice slice;
    std::uint32_t found_crc = 0;
    bool right = false;
};

class Inspection {
  public:
    explicit Inspection(Target& target) : target_(target) {}

    // exit_ok if the object could be looked at, whatever was found; findings are in wrong().
    int look() {
        Op op;
        op.kind = OpKind::stat;
        op.key = target_.key;
        const Outcome outcome = ask(*target_.store, op);
        if (outcome.status != Status::ok) return complain(op, outcome);
        stat_ = outcome.stat;
        name_ = parse_object_key(target_.key);
        if (!name_)
            wrong_.push_back("the key is no name of an object: <namespace>/<hh>/<hash>.p<parent>.g<group>.<shard>");
        const int read = read_header();
        if (read != exit_ok || !header_) return read;
        compare_names();
        read_identity();
        return read_slices();
    }

    const std::vector<std::string>& wrong() const { return wrong_; }

    json to_json() const {
        json out{{"key", url_escape(target_.key)},
                 {"size_bytes", stat_.size_bytes},
                 {"ok", wrong_.empty()},
                 {"wrong", wrong_}};
        if (header_) {
            const ObjectFacts& facts = header_->facts;
            out["header"] = {{"namespace", to_hex(facts.name_space)},
                             {"hash", to_hex(facts.chunk.hash.bytes())},
                             {"parent", fmt::format("{:016x}", facts.chunk.parent)},
                             {"group", facts.group},
                             {"shard", facts.shard.text()},
                             {"chunk_tokens", facts.chunk_tokens},
                             {"block_tokens", facts.block_tokens},
                             {"pages", facts.pages},
                             {"header_bytes", header_->header_bytes},
                             {"object_bytes", header_->object_bytes}};
            out["slices"] = json::array();
            for (const SliceVerdict& verdict : slices_)
                out["slices"].push_back({{"layer", verdict.slice.layer},
                                         {"offset", verdict.slice.offset},
                                         {"length", verdict.slice.length},
                                         {"crc", fmt::format("{:08x}", verdict.slice.crc)},
                                         {"found_crc", fmt::format("{:08x}", verdict.found_crc)},
                                         {"ok", verdict.right}});
        }
        if (!identity_.empty()) out["identity"] = json::parse(identity_, nullptr, false);
        return out;
    }

    void print() const {
        fmt::print("key        {}\nsize       {} ({} bytes)\n", url_escape(target_.key), format_size(stat_.size_bytes),
                   stat_.size_bytes);
        if (header_) print_header();
        if (!identity_.empty()) print_identity();
        if (!slices_.empty()) print_slices();
        for (const std::string& finding : wrong_) fmt::print("WRONG      {}\n", finding);
        fmt::print("verdict    {}\n",
                   wrong_.empty() ? "every checksum is right" : "not usable: a load treats it as a miss");
    }

  private:
    // The beginning of the value, up to `size_bytes`, into memory that lives as long as the lease.
    Result<Lease> read(std::uint64_t offset, std::uint64_t size_bytes) {
        auto lease = lease_memory(std::max<std::uint64_t>(size_bytes, 1));
        if (!lease) return lease;
        Op op;
        op.kind = OpKind::get;
        op.key = target_.key;
        op.offset = offset;
        op.length = size_bytes;
        op.buffers.push_back({lease->data(), size_bytes});
        const Outcome outcome = ask(*target_.store, op, &*lease);
        if (outcome.status == Status::miss || (!outcome.stat.etag.empty() && outcome.stat.etag != stat_.etag))
            return fail(ErrorCode::io,
                        fmt::format("inspect '{}': the object was replaced or removed while it was read; try again",
                                    target_.key));
        if (outcome.status != Status::ok) return fail(outcome.error.code, explain(op, outcome));
        return lease;
    }

    int read_header() {
        const std::uint64_t head_bytes = std::min<std::uint64_t>(stat_.size_bytes, limits::header_bytes_max);
        auto lease = read(0, head_bytes);
        if (!lease) return complain(lease.error());
        auto header = decode_header({lease->data(), head_bytes});
        if (!header) {
            wrong_.push_back(header.error().message);
            return exit_ok;
        }
        header_ = std::move(*header);
        if (header_->object_bytes != stat_.size_bytes)
            wrong_.push_back(
                fmt::format("the object has {} bytes, its header says {}", stat_.size_bytes, header_->object_bytes));
        return exit_ok;
    }

    void compare_names() {
        if (!name_) return;
        const ObjectFacts& facts = header_->facts;
        const auto differs = [&](std::string_view what, const std::string& key, const std::string& header) {
            if (key != header)
                wrong_.push_back(fmt::format("{} is {} in the key and {} in the header", what, key, header));
        };
        differs("namespace", name_->namespace_hex, to_hex(facts.name_space));
        differs("hash", to_hex(name_->chunk.hash.bytes()), to_hex(facts.chunk.hash.bytes()));
        differs("parent", fmt::format("{:016x}", name_->chunk.parent), fmt::format("{:016x}", facts.chunk.parent));
        differs("group", fmt::to_string(name_->group), fmt::to_string(facts.group));
        differs("shard", name_->shard.text(), facts.shard.text());
    }

    void read_identity() {
        auto lease = lease_memory(limits::identity_bytes_max);
        if (!lease) return wrong_.push_back(lease.error().message);
        Op op;
        op.kind = OpKind::get;
        op.key = identity_key(to_hex(header_->facts.name_space));
        op.buffers.push_back({lease->data(), limits::identity_bytes_max});
        const Outcome outcome = ask(*target_.store, op, &*lease);
        if (outcome.status != Status::ok) return wrong_.push_back(explain(op, outcome));
        const std::string text(reinterpret_cast<const char*>(lease->data()), outcome.bytes);
        if (namespace_of(text) != header_->facts.name_space)
            return wrong_.push_back(fmt::format("'{}' does not have the namespace's SHA-256", op.key));
        if (const auto identity = Identity::from_json(text); !identity) wrong_.push_back(identity.error().message);
        if (!json_deeper_than(text, limits::json_depth_max)) identity_ = text;  // printing calls itself once a level
    }

    int read_slices() {
        for (const Slice& slice : header_->slices) {
            const std::uint64_t padded =
                (slice.length + limits::page_bytes - 1) / limits::page_bytes * limits::page_bytes;
            if (slice.offset + padded > stat_.size_bytes) {
                wrong_.push_back(fmt::format("layer {} lies beyond the end", slice.layer));
                continue;
            }
            auto lease = read(slice.offset, padded);
            if (!lease) return complain(lease.error());
            const std::uint32_t crc = crc32c(0, lease->data(), padded);
            slices_.push_back({slice, crc, crc == slice.crc});
            if (crc != slice.crc)
                wrong_.push_back(
                    fmt::format("layer {}: checksum {:08x}, the header says {:08x}", slice.layer, crc, slice.crc));
        }
        return exit_ok;
    }

    void print_header() const {
        const ObjectFacts& facts = header_->facts;
        fmt::print("namespace  {}\nhash       {}\nparent     {:016x}{}\n", to_hex(facts.name_space),
                   to_hex(facts.chunk.hash.bytes()), facts.chunk.parent,
                   facts.chunk.parent == 0 ? " (first chunk)" : "");
        fmt::print("group      {}\nshard      {} (layers {} to {}, KV heads {} to {})\n", facts.group,
                   facts.shard.text(), facts.shard.first_layer, facts.shard.last_layer, facts.shard.first_head,
                   facts.shard.last_head);
        fmt::print("chunk      {} tokens in blocks of {}, the last {} of them kept\n", facts.chunk_tokens,
                   facts.block_tokens, facts.pages);
        fmt::print("header     {} bytes, checksum right\n", header_->header_bytes);
    }

    void print_identity() const {
        fmt::print("identity\n");
        const json identity = json::parse(identity_, nullptr, false);
        if (!identity.is_object()) return;
        for (const auto& [name, value] : identity.items())
            fmt::print("  {:<16} {}\n", name, value.is_string() ? value.get<std::string>() : value.dump());
    }

    void print_slices() const {
        fmt::print("slices\n  {:>5} {:>12} {:>12}  {:<8}  {}\n", "layer", "offset", "length", "crc", "verdict");
        for (const SliceVerdict& verdict : slices_)
            fmt::print("  {:>5} {:>12} {:>12}  {:08x}  {}\n", verdict.slice.layer, verdict.slice.offset,
                       verdict.slice.length, verdict.slice.crc,
                       verdict.right ? "right" : fmt::format("WRONG: {:08x}", verdict.found_crc));
    }

    Target& target_;
    Stat stat_;
    std::optional<ObjectName> name_;
    std::optional<ObjectHeader> header_;
    std::string identity_;
    std::vector<SliceVerdict> slices_;
    std::vector<std::string> wrong_;
};

int inspect(const Options& options) {
    auto target = open_target(options.uri, options.key);
    if (!target) return complain(target.error());
    Inspection inspection(*target);
    if (const int looked = inspection.look(); looked != exit_ok) return looked;
    if (options.json)
        fmt::print("{}\n", inspection.to_json().dump(2));
    else
        inspection.print();
    return inspection.wrong().empty() ? exit_ok : exit_failed;
}

}  // namespace

Command inspect_command() {
    return {"inspect",
            "Show an object's identity and check every checksum in it",
            [](Arguments& arguments) -> Runner {
                auto options = std::make_shared<Options>();
                arguments.positional("URI", options->uri, std::string(uri_help), true);
                arguments.positional("KEY", options->key, std::string(key_help), true);
                arguments.flag("--json", options->json, "Print JSON");
                arguments.examples(
                    "  kvern inspect file:///mnt/kv \"$(kvern ls file:///mnt/kv | grep -m1 '\\.g0\\.')\"\n"
                    "  kvern inspect file:///mnt/kv KEY --json | jq .ok      # exit status 1 if anything is wrong");
                return [options] { return inspect(*options); };
            },
            {}};
}

}  // namespace kvern::cli
