// SPDX-License-Identifier: Apache-2.0
#include "cache/presence.h"

namespace kvern {
namespace {

Duration time_to_live(Belief belief) {
    switch (belief) {
        case Belief::present:
            return limits::presence_positive_ttl;
        case Belief::absent:
            return limits::presence_negative_ttl;
        case Belief::failed:
            return limits::presence_failed_ttl;
    }
    return Duration::zero();
}

}  // namespace

const Presence::Entry* Presence::entry(const Key& key) const {
    for (const Map* map : {&young_, &old_})
        if (const auto found = map->find(key); found != map->end())
            return found->second.until > clock_.now() ? &found->second : nullptr;
    return nullptr;
}

std::optional<Belief> Presence::find(const ChunkHash& hash, unsigned part) const {
    const Entry* found = entry({hash, part});
    return found ? std::optional(found->belief) : std::nullopt;
}

void Presence::note(const ChunkHash& hash, unsigned part, Belief belief) {
    const Key key{hash, part};
    if (const Entry* found = entry(key); found && found->belief == Belief::failed && belief != Belief::failed) return;
    if (young_.size() >= half_max_) {
        old_ = std::move(young_);
        young_.clear();
    }
    old_.erase(key);
    young_[key] = {belief, clock_.now() + time_to_live(belief)};
}

void Presence::forget(const ChunkHash& hash, unsigned part) {
    young_.erase({hash, part});
    old_.erase({hash, part});
}

void Presence::clear() {
    young_.clear();
    old_.clear();
}

}  // namespace kvern
