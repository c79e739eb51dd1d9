// SPDX-License-Identifier: Apache-2.0
#include "keep/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "base/crc32c.h"
#include "base/text.h"
#include "cache/identity.h"
#include "cache/object.h"

namespace kvern {
namespace {

static_assert(limits::verify_piece_bytes >= limits::header_bytes_max &&
              limits::verify_piece_bytes >= limits::identity_bytes_max);

// What differs between a key and the header of the object that stands there; empty if nothing does.
std::string difference(const ObjectName& name, const ObjectHeader& header) {
    const auto& facts = header.facts;
    if (name.namespace_hex != to_hex(facts.name_space)) return "its header names another namespace than its key";
    if (name.chunk.hash != facts.chunk.hash) return "its header names another chunk than its key";
    if (name.chunk.parent != facts.chunk.parent) return "its header names another parent than its key";
    if (name.group != facts.group) return "its header names another group than its key";
    if (name.shard != facts.shard) return "its header names another shard than its key";
    for (std::size_t i = 0; i < header.slices.size(); ++i) {
        if (header.slices[i].layer != facts.shard.first_layer + i)
            return fmt::format("slice {} is of a wrong layer", i);
    }
    return {};
}

// Proves one object, whose bytes come piece by piece in order.
class Proof {
  public:
    Proof() = default;
    Proof(std::string key, std::uint64_t size_bytes) : key_(std::move(key)), size_bytes_(size_bytes) {}

    const std::string& key() const { return key_; }
    std::uint64_t size_bytes() const { return size_bytes_; }
    std::uint64_t offset() const { return offset_; }  // of the next piece
    bool over() const { return !wrong_.empty() || newer_ || offset_ == size_bytes_; }
    const std::string& wrong() const { return wrong_; }
    bool newer() const { return newer_; }

    void take(std::span<const std::byte> piece) {
        if (offset_ == 0 && !take_header(piece)) return;
        const auto skipped = offset_ == 0 ? header_.header_bytes : 0;
        offset_ += piece.size();
        sum(piece.subspan(skipped));
    }
    void fail(std::string why) { wrong_ = std::move(why); }

  private:
    bool take_header(std::span<const std::byte> piece) {
        auto header = decode_header(piece);
        if (!header) {
            newer_ = header.error().code == ErrorCode::not_supported;
            wrong_ = newer_ ? "" : header.error().message;
            return false;
        }
        header_ = std::move(*header);
        if (header_.object_bytes != size_bytes_) {
            wrong_ = fmt::format("the object has {} bytes, its header says {}", size_bytes_, header_.object_bytes);
        } else if (const auto name = parse_object_key(key_)) {
            wrong_ = difference(*name, header_);
        }
        return wrong_.empty();
    }

    // Bytes of the slices, each with the gap behind it.
    void sum(std::span<const std::byte> bytes) {
        while (!bytes.empty() && wrong_.empty()) {
            const auto& slice = header_.slices[slice_];
            const auto part =
                bytes.first(std::min<std::uint64_t>(bytes.size(), stored_bytes(slice.length) - summed_bytes_));
            crc_ = crc32c(crc_, part.data(), part.size());
            summed_bytes_ += part.size();
            bytes = bytes.subspan(part.size());
            if (summed_bytes_ < stored_bytes(slice.length)) return;
            if (crc_ != slice.crc) {
                wrong_ = fmt::format("layer {}: checksum {:08x}, the header says {:08x}", slice.layer, crc_, slice.crc);
            }
            ++slice_;
            summed_bytes_ = 0;
            crc_ = 0;
        }
    }

    std::string key_;
    std::uint64_t size_bytes_ = 0;
    std::uint64_t offset_ = 0;
    ObjectHeader header_;
    std::size_t slice_ = 0;
    std::uint64_t summed_bytes_ = 0;  // of the slice
    std::uint32_t crc_ = 0;           // of these
    std::string wrong_;
    bool newer_ = false;
};

class Verifier {
  public:
    Verifier(Client& client, Region& memory, const Catalogue& catalogue, const VerifyPlan& plan,
             const VerifyHooks& hooks)
        : client_(client), memory_(memory), catalogue_(catalogue), plan_(plan), hooks_(hooks) {}

    Result<VerifyReport> run() {
        choose();
        auto done = read_objects();
        if (done) done = check_identities();
        if (!done && done.error().code != ErrorCode::cancelled) return tl::unexpected(done.error());
        report_.interrupted = !done;
        return report_;
    }

  private:
    struct Lane {  // one object at a time
        Proof proof;
        std::string etag;  // of the version that is read
        bool removing = false;
    };

    void choose();
    std::string key_of(std::uint32_t object);
    Result<void> read_objects();
    void start(std::size_t lane);
    void submit(std::size_t lane, Op op);
    void read_piece(std::size_t lane);
    void take_piece(std::size_t lane, const Outcome& outcome);
    void end_object(std::size_t lane);
    void report_bad(const std::string& key, const std::string& why, bool removed);
    Result<void> check_identities();
    Result<void> check_identity(const StoredNamespace& space);
    std::byte* piece_of(std::size_t lane) const { return memory_.base() + lane * limits::verify_piece_bytes; }

    Client& client_;
    Region& memory_;
    const Catalogue& catalogue_;
    const VerifyPlan& plan_;
    const VerifyHooks& hooks_;
    VerifyReport report_;
    std::vector<std::uint32_t> chosen_;  // objects, in the order of the listing
    std::size_t next_ = 0;               // in chosen_
    std::uint32_t chunk_ = 0;            // of the object that was started last
    std::vector<Lane> lanes_{limits::verify_reads};
};

Op get_op(std::string key, std::uint64_t offset, std::uint64_t length, std::byte* memory) {
    Op op;
    op.kind = OpKind::get;
    op.key = std::move(key);
    op.offset = offset;
    op.length = length;
    op.buffers = {{memory, length}};
    return op;
}

Op remove_op(std::string key, std::string etag) {
    Op op;
    op.kind = OpKind::remove;
    op.key = std::move(key);
    op.condition = Condition::etag;
    op.etag = std::move(etag);
    return op;
}

void Verifier::choose() {
    std::vector<std::uint32_t> all(catalogue_.objects.size());
    std::iota(all.begin(), all.end(), 0U);
    std::mt19937_64 random(plan_.seed);
    if (plan_.objects_max > 0) {
        std::sample(all.begin(), all.end(), std::back_inserter(chosen_), plan_.objects_max, random);
    } else if (plan_.fraction < 1) {
        std::bernoulli_distribution takes(plan_.fraction);
        std::copy_if(all.begin(), all.end(), std::back_inserter(chosen_), [&](std::uint32_t) { return takes(random); });
    } else {
        chosen_ = std::move(all);
    }
    report_.done.objects_all = chosen_.size();
    for (const auto object : chosen_) report_.done.bytes_all += catalogue_.objects[object].size_bytes;
}

// REQUIRES: objects come in ascending order.
std::string Verifier::key_of(std::uint32_t object) {
    const auto& chunks = catalogue_.chunks;
    while (object >= chunks[chunk_].first_object + chunks[chunk_].objects) ++chunk_;
    return catalogue_.key_of(chunks[chunk_], catalogue_.objects[object]);
}

Result<void> Verifier::read_objects() {
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane) start(lane);
    while (client_.in_flight() > 0) {
        const auto completion = client_.next();
        if (!completion) return tl::unexpected(completion.error());
        const auto index = completion->tag;
        auto& lane = lanes_[index];
        if (lane.removing) {
            const bool removed = completion->outcome.status == Status::ok;
            report_bad(lane.proof.key(), lane.proof.wrong(), removed);
            start(index);
        } else {
            take_piece(index, completion->outcome);
        }
    }
    if (next_ < chosen_.size()) return fail(ErrorCode::cancelled, "interrupted");
    return {};
}

void Verifier::start(std::size_t lane) {
    if (next_ == chosen_.size() || client_.stopped()) return;
    const auto object = chosen_[next_++];
    lanes_[lane] = {Proof(key_of(object), catalogue_.objects[object].size_bytes), {}, false};
    read_piece(lane);
}

void Verifier::submit(std::size_t lane, Op op) {
    op.tag = lane;
    client_.submit({&op, 1});
}

void Verifier::read_piece(std::size_t lane) {
    const auto& proof = lanes_[lane].proof;
    const auto length = std::min<std::uint64_t>(limits::verify_piece_bytes, proof.size_bytes() - proof.offset());
    submit(lane, get_op(proof.key(), proof.offset(), length, piece_of(lane)));
}

void Verifier::take_piece(std::size_t index, const Outcome& outcome) {
    auto& lane = lanes_[index];
    const auto& etag = outcome.stat.etag;
    if (lane.etag.empty()) lane.etag = etag;
    const bool corrupt = outcome.status == Status::failed && outcome.error.code == ErrorCode::corrupt;
    const bool same = lane.etag == etag && (corrupt || outcome.stat.size_bytes == lane.proof.size_bytes());
    if (outcome.status == Status::miss || (!etag.empty() && !same)) {
        ++report_.changed;
        return end_object(index);
    }
    if (outcome.status == Status::ok) {
        report_.done.bytes += outcome.bytes;
        lane.proof.take({piece_of(index), outcome.bytes});
    } else {
        lane.proof.fail("it can't be read: " + outcome.error.message);
    }
    if (!lane.proof.over()) return read_piece(index);
    report_.newer += lane.proof.newer() ? 1 : 0;
    if (lane.proof.wrong().empty()) return end_object(index);
    ++report_.done.objects;
    if (plan_.remove && !lane.etag.empty()) {
        lane.removing = true;
        return submit(index, remove_op(lane.proof.key(), lane.etag));
    }
    report_bad(lane.proof.key(), lane.proof.wrong(), false);
    start(index);
}

void Verifier::end_object(std::size_t lane) {
    ++report_.done.objects;
    if (hooks_.progress) hooks_.progress(report_.done);
    start(lane);
}

void Verifier::report_bad(const std::string& key, const std::string& why, bool removed) {
    ++report_.bad;
    report_.removed += removed ? 1 : 0;
    if (hooks_.found) hooks_.found({key, why, removed});
}

Result<void> Verifier::check_identities() {
    for (const auto& space : catalogue_.namespaces) {
        if (client_.stopped()) return fail(ErrorCode::cancelled, "interrupted");
        if (auto checked = check_identity(space); !checked) return checked;
    }
    return {};
}

Result<void> Verifier::check_identity(const StoredNamespace& space) {
    if (!space.identity) {
        ++report_.nameless_namespaces;
        return {};
    }
    const auto& entry = *space.identity;
    std::string why;
    std::string etag = entry.etag;
    if (entry.size_bytes > limits::identity_bytes_max) {
        why = fmt::format("{} bytes are too many for an identity", entry.size_bytes);
    } else {
        const auto outcome = client_.call(get_op(entry.key, 0, entry.size_bytes, memory_.base()));
        if (!outcome) return tl::unexpected(outcome.error());
        etag = outcome->stat.etag;
        const std::string_view text(reinterpret_cast<const char*>(memory_.base()), outcome->bytes);
        if (outcome->status == Status::miss || (!etag.empty() && etag != entry.etag)) {
            ++report_.changed;
        } else if (outcome->status != Status::ok) {
            why = "it can't be read: " + outcome->error.message;
        } else if (to_hex(namespace_of(text)) != space.hex) {
            why = "its SHA-256 is not the namespace";
        }
    }
    if (why.empty()) return {};
    bool removed = false;
    if (plan_.remove && !etag.empty()) {
        const auto outcome = client_.call(remove_op(entry.key, etag));
        if (!outcome) return tl::unexpected(outcome.error());
        removed = outcome->status == Status::ok;
    }
    report_bad(entry.key, why, removed);
    return {};
}

}  // namespace

Result<std::shared_ptr<Region>> verify_memory() {
    RegionOptions options;
    options.name = "kvern-verify";
    options.size_bytes = limits::verify_reads * limits::verify_piece_bytes;
    options.touch_in_background = false;  // small objects need only a part
    return Region::create(options);
}

Result<VerifyReport> verify(Client& client, Region& memory, const Catalogue& catalogue, const VerifyPlan& plan,
                            const VerifyHooks& hooks) {
    return Verifier(client, memory, catalogue, plan, hooks).run();
}

}  // namespace kvern
