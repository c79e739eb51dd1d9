// SPDX-License-Identifier: Apache-2.0
// The namespace that an engine works in, and the two small values in the store that say what it is.
//
// Belongs to the engine's scheduler thread; never blocks on I/O.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "base/clock.h"
#include "cache/identity.h"
#include "kvern/store.h"

namespace kvern {

class NameSpace {
  public:
    // The store must be closed first. `writes`: false where nothing is to be put into it.
    NameSpace(Store& store, const Clock& clock, bool writes) : store_(store), clock_(clock), writes_(writes) {}

    // Begins one, or another in place of it. `label`: the model's name for people.
    void open(const Identity& identity, std::string label);
    // To be called in every step: takes answers, and marks the namespace as used every now and then.
    void tend();
    // The store could not be closed: the texts being put, which it may still read, are kept for ever.
    void abandon();

    bool is_open() const { return !hex_.empty(); }
    const Digest& digest() const { return digest_; }
    const std::string& hex() const { return hex_; }

  private:
    // Puts what says what the namespace is, where it is not there, and marks it as used: else a collector would take an
    // idle engine's namespace for a left-over.
    void publish();
    void publish(std::string key, std::string text);

    Store& store_;
    const Clock& clock_;
    const bool writes_;
    std::string text_, label_;
    Digest digest_{};
    std::string hex_;
    std::unordered_map<std::uint64_t, std::string> published_;  // texts being put, by tag
    std::uint64_t next_tag_ = 1;
    TimePoint published_at_{};
    CompletionQueue answers_;
};

}  // namespace kvern
