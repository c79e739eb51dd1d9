// SPDX-License-Identifier: Apache-2.0
// Presence: what is believed about chunks in the store, for a while: there, not there, or there but not loadable.
//
// Belongs to one thread. Bounded: when full, the older half is forgotten. Beliefs only save work; a wrong "there" ends
// in a failed load, a wrong "not there" in a recompute. A chunk has several parts, which are believed in apart: the
// caller numbers them (see Lookups).
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>

#include "base/clock.h"
#include "cache/key.h"

namespace kvern {

enum class Belief : std::uint8_t { present, absent, failed };

class Presence {
  public:
    explicit Presence(const Clock& clock, std::size_t entries_max = limits::presence_entries_max)
        : clock_(clock), half_max_(entries_max / 2 + 1) {}

    // What is believed now; nothing once its time to live is over.
    std::optional<Belief> find(const ChunkHash& hash, unsigned part) const;
    // `failed` outlives `present` and `absent` notes until it expires or is forgotten: a lookup that sees the object
    // again must not undo what a load has shown.
    void note(const ChunkHash& hash, unsigned part, Belief belief);
    void forget(const ChunkHash& hash, unsigned part);
    void clear();
    std::size_t size() const { return young_.size() + old_.size(); }

  private:
    struct Key {
        ChunkHash hash;
        unsigned part;
        bool operator==(const Key&) const = default;
    };
    struct Hasher {
        std::size_t operator()(const Key& key) const { return ChunkHashHasher()(key.hash) + key.part; }
    };
    struct Entry {
        Belief belief;
        TimePoint until;
    };
    using Map = std::unordered_map<Key, Entry, Hasher>;
    const Entry* entry(const Key& key) const;

    const Clock& clock_;
    std::size_t half_max_;
    Map young_, old_;
};

}  // namespace kvern
