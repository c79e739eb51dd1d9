// SPDX-License-Identifier: Apache-2.0
// OfiEndpoint: libfabric, as far as one-sided transfers need it: an endpoint that others reach, memory that is
// registered with it, peers, and operations on their memory. All that this project knows of libfabric is here.
//
// The library is loaded when the first endpoint is opened, and nothing needs it before. One thread at a time, but for
// add_memory(), which may come from any. It retries nothing and knows no deadlines: that is for OfiMover.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "fabric/guest.h"
#include "kvern/result.h"

namespace kvern::fabric {

// What may be opened, the better one first. Never "shm": there a peer can crash the memory's owner.
inline constexpr std::array<std::string_view, 2> ofi_providers{"verbs;ofi_rxm", "tcp;ofi_rxm"};

class OfiEndpoint {
  public:
    // `address`: of this host, where it is to be reached; empty: the provider's choice. not_supported: without the
    // library, or none of its providers fits, and why.
    static Result<std::unique_ptr<OfiEndpoint>> open(const std::string& provider, const std::string& address);
    ~OfiEndpoint();  // REQUIRES: as reopen()
    OfiEndpoint(const OfiEndpoint&) = delete;
    OfiEndpoint& operator=(const OfiEndpoint&) = delete;

    std::string_view provider() const;  // one of ofi_providers
    const std::string& name() const;    // the bytes that make it a peer of others
    std::size_t message_bytes_max() const;

    // What others need to reach memory: `base` is what they count from.
    struct Registered {
        std::uint64_t key = 0, base = 0;
    };
    // For good. `reachable`: by others; else only for operations of this endpoint.
    Result<Registered> add_memory(std::byte* begin, std::uint64_t size_bytes, bool reachable);

    using Peer = std::uint64_t;
    Result<Peer> insert(const std::string& name);
    void remove(Peer peer);  // and its connection; REQUIRES: no operation on it under way

    // Starts moving `local`, within memory that was added. 0: under way until take() gives `context` back; EAGAIN: not
    // now, or not connected yet; else an errno value. Into: the peer's memory is written.
    int post(Direction direction, Peer peer, std::span<std::byte> local, std::uint64_t remote, std::uint64_t key,
             void* context);
    struct Done {
        void* context = nullptr;
        int error = 0;  // an errno value
        std::string reason;
    };
    // Drives progress, and gives what has ended, as many as `into` has room for.
    std::size_t take(std::span<Done> into);
    // Sleeps until there may be something to take, `wake_fd` is readable, or the time is over.
    void wait(int wake_fd, std::chrono::milliseconds limit);

    // Cuts the connection to a peer below the library, which then gives back all that is under way on it, as failed.
    // False: this provider has no connections that can be cut so.
    bool cut(const std::string& name);
    // Ends whatever is under way: nothing of it touches memory afterwards, and nothing is given back. All peers are
    // forgotten, and the name may be another. REQUIRES: over TCP nothing under way, since libfabric 1.17 then crashes,
    // as it does when it is closed: cut() first.
    Result<void> reopen();

  private:
    struct Impl;
    explicit OfiEndpoint(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

// The library's version, "1.17"; not_supported: why it can't be used.
Result<std::string> ofi_version();

}  // namespace kvern::fabric
