// SPDX-License-Identifier: Apache-2.0
// OfiMover: the server's end of libfabric: writes to and reads from the memory that tokens name, each transfer within
// its own time, whatever its peer does.
//
// move() and stats() from any thread. One thread of its own, kvern-mover, makes all calls into the library and is
// asleep while nothing is under way. Tokens are believed here: whether one may be followed is the caller's to check.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "fabric/guest.h"
#include "fabric/token.h"

namespace kvern::fabric {

struct Transfer {
    Token token;                  // of kind ofi, and of this provider
    std::uint64_t offset = 0;     // into what the token names
    std::byte* memory = nullptr;  // within the region that the mover was given
    std::uint64_t size_bytes = 0;
    Direction direction = Direction::into;
    // Called once, on the mover's thread, when nothing of it touches the server's memory any more. unavailable: nothing
    // was begun, since the peer can't be reached; io: the peer refuses the token, was too slow or is gone, and some
    // bytes may still be on their way into its memory.
    std::function<void(Result<void>)> done;
};

struct OfiMoverStats {
    std::size_t peers = 0;  // connected now
    std::uint64_t cut = 0;  // connections, because their peers stood still
};

class OfiMover {
  public:
    // `memory` is registered once, here: this may take a while. Errors as of OfiEndpoint::open().
    static Result<std::unique_ptr<OfiMover>> open(const std::string& provider, const std::string& address,
                                                  std::shared_ptr<Region> memory, const Clock& clock = Clock::steady());
    ~OfiMover();  // what is under way fails
    OfiMover(const OfiMover&) = delete;
    OfiMover& operator=(const OfiMover&) = delete;

    std::string_view provider() const;  // one of ofi_providers
    // REQUIRES: a range within the token's, and memory within the region.
    void move(Transfer transfer);
    OfiMoverStats stats() const;

  private:
    struct Impl;
    explicit OfiMover(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace kvern::fabric
