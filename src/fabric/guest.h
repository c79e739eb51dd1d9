// SPDX-License-Identifier: Apache-2.0
// Guest: the client's end of a provider of one-sided transfers: it makes regions known to whoever will read and write
// them, and names parts of them in tokens. It moves no bytes itself.
//
// Each provider says from which threads its calls may come. hand_over() may block for as long as registering takes: it
// is called once a region, never in a transfer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kvern/memory.h"
#include "kvern/result.h"

namespace kvern::fabric {

// Of a transfer, as the memory's owner sees it: a GET lands in it, a PUT comes from it.
enum class Direction : std::uint8_t { into, from };

class Guest {
  public:
    virtual ~Guest() = default;
    virtual const char* provider() const = 0;  // a literal, for people: "local", "verbs;ofi_rxm", "cuobject"

    // A part of a region that was handed over, and what the provider calls it.
    struct Window {
        const std::byte* begin = nullptr;
        std::uint64_t size_bytes = 0;
        std::string id;
    };
    // All of the region, in as many windows as registrations may be large. It lives as long as this guest.
    virtual Result<std::vector<Window>> hand_over(const std::shared_ptr<Region>& region) = 0;

    // The text for a request's header, and what must be kept until that request has its answer.
    struct Minted {
        std::string text;
        std::shared_ptr<const void> kept;
    };
    // REQUIRES: a window of this guest's, and a range within it.
    virtual Result<Minted> token(const Window& window, std::uint64_t offset, std::uint64_t size_bytes,
                                 Direction direction) = 0;

    // Whether the other side still has what was handed over, as far as this process has been told; true where a
    // provider can't know. Does not block.
    virtual bool alive() const = 0;
};

// Registrations of memory with a network so far, of this process: regions are registered once, so that no transfer adds
// to it. Any thread.
std::uint64_t registrations();
void count_registration();

}  // namespace kvern::fabric
