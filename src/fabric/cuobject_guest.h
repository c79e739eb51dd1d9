// SPDX-License-Identifier: Apache-2.0
// CuObjectGuest: the client's end of NVIDIA's cuObject: regions that a storage server with a token reads and writes
// itself, through a ConnectX on either side. NOT RUN ON HARDWARE: what is tested is this code with a library that
// stands in for NVIDIA's.
//
// Any thread; the library, which promises nothing of threads, gets one call at a time. It is loaded when a guest is
// first asked for, and nothing needs it before; neither it nor CUDA is needed to build. Only memory of the host is
// handed over. Of the library, only registrations and tokens are used: never its own GET and PUT, which wait for a
// server in the thread that calls them.
//
// What the library does not support is kept by whoever uses it:
// - cuFile beside it: both share one runtime, so a process that uses cuFile itself must not use this.
// - Two transfers at a time on one registered buffer. A token names the bytes of one transfer, which are of one lease,
//   and leases never overlap: no two servers touch the same byte. But leases do share a registration, since registering
//   each would cost more than its transfer; whether the library means that, too, only hardware will tell.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "fabric/guest.h"

namespace kvern::fabric {

class CuObjectGuest final : public Guest, public std::enable_shared_from_this<CuObjectGuest> {
  public:
    // One a process, as long as anybody holds it. not_supported: the library (KVERN_CUOBJECT_LIBRARY, or
    // libcuobjclient.so.1) can't be loaded, or is another than this was made for; unavailable: it found no network.
    static Result<std::shared_ptr<CuObjectGuest>> shared();
    ~CuObjectGuest() override;  // REQUIRES: no server writes any more. Takes back what was handed over
    CuObjectGuest(const CuObjectGuest&) = delete;
    CuObjectGuest& operator=(const CuObjectGuest&) = delete;

    const char* provider() const override { return "cuobject"; }
    // In parts of limits::registration_bytes_max; what lies across two of them can't be named by one token. A region
    // that was handed over before is not registered again.
    Result<std::vector<Window>> hand_over(const std::shared_ptr<Region>& region) override;
    // Kept: the token itself, which goes back to the library when it dies. internal: the library's token is not the
    // bare descriptor of exactly these bytes.
    Result<Minted> token(const Window& window, std::uint64_t offset, std::uint64_t size_bytes,
                         Direction direction) override;
    bool alive() const override { return true; }  // nobody tells when a server ends

  private:
    struct Client;
    explicit CuObjectGuest(Client& client) : client_(client) {}
    static Result<Client*> connected_client();

    struct Known {
        std::shared_ptr<Region> region;  // kept mapped as long as others can reach it
        std::vector<Window> windows;
    };
    Client& client_;  // the process's: never destroyed
    std::mutex mutex_;
    std::vector<Known> known_;  // under mutex_
};

}  // namespace kvern::fabric
