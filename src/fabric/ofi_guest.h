// SPDX-License-Identifier: Apache-2.0
// OfiGuest: the client's end of libfabric: regions that servers with a token write to and read from over the network.
//
// Any thread. One thread of its own, kvern-ofi, drives the library, asleep while nothing arrives: over TCP it is what
// receives; over verbs it only accepts connections.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "fabric/guest.h"
#include "fabric/ofi_endpoint.h"

namespace kvern::fabric {

class OfiGuest final : public Guest {
  public:
    // One a process, provider and address, as long as anybody holds it, over verbs for good: an endpoint costs some
    // 100 MB. As OfiEndpoint::open().
    static Result<std::shared_ptr<OfiGuest>> shared(const std::string& provider, const std::string& address);
    ~OfiGuest() override;
    OfiGuest(const OfiGuest&) = delete;
    OfiGuest& operator=(const OfiGuest&) = delete;

    const char* provider() const override { return endpoint_->provider().data(); }
    // A region that was handed over before is not registered again.
    Result<std::vector<Window>> hand_over(const std::shared_ptr<Region>& region) override;
    Result<Minted> token(const Window& window, std::uint64_t offset, std::uint64_t size_bytes, Direction) override;
    bool alive() const override { return true; }  // nobody tells when a server ends

  private:
    explicit OfiGuest(std::unique_ptr<OfiEndpoint> endpoint);
    void run();

    struct Known {
        std::shared_ptr<Region> region;  // kept mapped as long as others can reach it
        OfiEndpoint::Registered registered;
    };
    std::mutex mutex_;
    std::vector<Known> known_;  // under mutex_
    Fd stop_;
    std::unique_ptr<OfiEndpoint> endpoint_;
    std::thread thread_;
};

}  // namespace kvern::fabric
