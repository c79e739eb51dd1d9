// SPDX-License-Identifier: Apache-2.0
// LocalGuest: the client's end of the provider `local`: hands regions to a server of the same host, which then reads
// and writes them itself.
//
// One thread at a time. Its calls block for limits::fabric_hand_over_wait at most.
#pragma once

#include <memory>
#include <string>

#include "base/fd.h"
#include "fabric/guest.h"

namespace kvern::fabric {

class LocalGuest final : public Guest {
  public:
    // unavailable: nobody listens there. The address is LocalHost's.
    static Result<std::shared_ptr<LocalGuest>> connect(const std::string& address);

    const char* provider() const override { return "local"; }
    // A window's id ends with this object, or with the server. permission: refused, and why.
    Result<std::vector<Window>> hand_over(const std::shared_ptr<Region>& region) override;
    Result<Minted> token(const Window& window, std::uint64_t offset, std::uint64_t size_bytes, Direction) override;
    bool alive() const override;

  private:
    explicit LocalGuest(Fd socket, std::string address) : socket_(std::move(socket)), address_(std::move(address)) {}
    Fd socket_;
    std::string address_;
};

// What two processes share if windows can be handed over between them: "BOOT-ID/NETWORK-NAMESPACE", since an abstract
// socket belongs to a network namespace. Empty where the system does not tell.
std::string local_host_id();

}  // namespace kvern::fabric
