// SPDX-License-Identifier: Apache-2.0
#include "engine/step.h"

#include <cstring>

namespace kvern {
namespace {

constexpr std::size_t chunk_bytes_min = 21;       // of an encoded chunk: group, parent, one byte of hash, no blocks
constexpr std::uint32_t step_magic = 0x3250564b;  // "KVP2"

class Writer {
  public:
    template <class Number>
    void number(Number value) {
        char bytes[sizeof value];
        std::memcpy(bytes, &value, sizeof value);
        out_.append(bytes, sizeof value);
    }
    void text(std::string_view value) {
        number(static_cast<std::uint32_t>(value.size()));
        out_.append(value);
    }
    void chunk(const ChunkBlocks& chunk) {
        number(chunk.group);
        number(chunk.chunk.parent);
        text(chunk.chunk.hash.bytes());
        number(static_cast<std::uint32_t>(chunk.blocks.size()));
        out_.append(reinterpret_cast<const char*>(chunk.blocks.data()), chunk.blocks.size() * sizeof(std::int32_t));
    }
    std::string take() { return std::move(out_); }

  private:
    std::string out_;
};

// Every read is checked; after the first failure all further ones yield nothing and ok() is false.
class Reader {
  public:
    explicit Reader(std::string_view in) : in_(in) {}
    bool ok() const { return ok_; }
    bool at_end() const { return in_.empty(); }

    template <class Number>
    Number number() {
        Number value{};
        const std::string_view bytes = take(sizeof value);
        if (ok_) std::memcpy(&value, bytes.data(), sizeof value);
        return value;
    }
    // A count of things of at least `bytes_each`: more than the rest can hold is broken, and never allocated for.
    std::uint32_t count(std::size_t bytes_each) {
        const auto value = number<std::uint32_t>();
        if (value > in_.size() / bytes_each) ok_ = false;
        return ok_ ? value : 0;
    }
    std::string_view text() { return take(count(1)); }
    ChunkBlocks chunk() {
        ChunkBlocks chunk;
        chunk.group = number<std::uint32_t>();
        chunk.chunk.parent = number<std::uint64_t>();
        const std::string_view hash = text();
        if (ok_ && !ChunkHash::valid(hash)) ok_ = false;
        if (ok_) chunk.chunk.hash = ChunkHash(hash);
        chunk.blocks.resize(count(sizeof(std::int32_t)));
        const std::string_view blocks = take(chunk.blocks.size() * sizeof(std::int32_t));
        if (ok_ && !blocks.empty()) std::memcpy(chunk.blocks.data(), blocks.data(), blocks.size());
        return chunk;
    }

  private:
    std::string_view take(std::size_t size_bytes) {
        if (!ok_ || size_bytes > in_.size()) {
            ok_ = false;
            return {};
        }
        const std::string_view head = in_.substr(0, size_bytes);
        in_.remove_prefix(size_bytes);
        return head;
    }
    std::string_view in_;
    bool ok_ = true;
};

}  // namespace

std::string Step::encode() const {
    Writer out;
    out.number(step_magic);
    out.number(sequence);
    out.number(name_space);
    out.number(static_cast<std::uint32_t>(ended.size()));
    for (const std::uint64_t incarnation : ended) out.number(incarnation);
    out.number(static_cast<std::uint32_t>(loads.size()));
    for (const LoadJob& load : loads) {
        out.text(load.request);
        out.number(static_cast<std::uint8_t>(load.refused));
        out.number(static_cast<std::uint8_t>(load.whole));
        out.number(static_cast<std::uint32_t>(load.chunks.size()));
        for (const ChunkBlocks& chunk : load.chunks) out.chunk(chunk);
    }
    out.number(static_cast<std::uint32_t>(stores.size()));
    for (const StoreJob& store : stores) {
        out.number(store.incarnation);
        out.number(static_cast<std::uint8_t>(store.fleeting));
        out.chunk(store.object);
    }
    return out.take();
}

Result<Step> Step::decode(std::string_view bytes) {
    Reader in(bytes);
    Step step;
    if (in.number<std::uint32_t>() != step_magic)
        return fail(ErrorCode::corrupt, "step metadata: no magic at its start");
    step.sequence = in.number<std::uint64_t>();
    step.name_space = in.number<Digest>();
    step.ended.resize(in.count(sizeof(std::uint64_t)));
    for (std::uint64_t& incarnation : step.ended) incarnation = in.number<std::uint64_t>();
    step.loads.resize(in.count(10));
    for (LoadJob& load : step.loads) {
        load.request = in.text();
        load.refused = in.number<std::uint8_t>() != 0;
        load.whole = in.number<std::uint8_t>() != 0;
        load.chunks.resize(in.count(chunk_bytes_min));
        for (ChunkBlocks& chunk : load.chunks) chunk = in.chunk();
    }
    step.stores.resize(in.count(9 + chunk_bytes_min));
    for (StoreJob& store : step.stores) {
        store.incarnation = in.number<std::uint64_t>();
        store.fleeting = in.number<std::uint8_t>() != 0;
        store.object = in.chunk();
    }
    if (!in.ok() || !in.at_end()) return fail(ErrorCode::corrupt, "step metadata: its length does not fit its content");
    return step;
}

}  // namespace kvern
