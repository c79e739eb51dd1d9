// SPDX-License-Identifier: Apache-2.0
// LocalHost: the server's end of the provider `local`: takes sealed memfds from processes of the same host, and finds
// the memory that their tokens name.
//
// find() and stats() from any thread. One thread of its own waits for connections and offers, asleep otherwise. It
// moves no bytes: whoever finds a span reads from a store straight into it, or copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "fabric/token.h"
#include "kvern/result.h"

namespace kvern::fabric {

// A guest's memory in this process. Mapped as long as a span of it is held, even if the guest has died meanwhile; it
// can't shrink, so touching it is always safe. The guest may change its bytes at any time.
struct Span {
    std::shared_ptr<const void> mapping;
    std::byte* data = nullptr;
    std::size_t size_bytes = 0;
};

struct LocalStats {
    std::size_t windows = 0;
    std::uint64_t window_bytes = 0;
};

class LocalHost {
  public:
    // `address`: a path (made with mode 0660), "@name", or empty for an abstract one that nobody can guess. Errors name
    // the address.
    static Result<std::unique_ptr<LocalHost>> listen(const std::string& address);
    ~LocalHost();  // ends all windows; spans that are held stay mapped
    LocalHost(const LocalHost&) = delete;
    LocalHost& operator=(const LocalHost&) = delete;

    const std::string& address() const;
    // unavailable: no such window, any more or ever; invalid_argument: the token names more than there is.
    // REQUIRES: a token of kind local.
    Result<Span> find(const Token& token) const;
    LocalStats stats() const;

  private:
    struct Impl;
    explicit LocalHost(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace kvern::fabric
