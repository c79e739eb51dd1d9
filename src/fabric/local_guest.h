// SPDX-License-Identifier: Apache-2.0
// LocalGuest: the client's end of the provider `local`: hands regions to a server of the same host, which then reads
// and writes them itself.
//
// One thread at a time. Its calls block for limits::fabric_hand_over_wait at most: it is made once a server and region,
// never in a transfer. It moves no bytes.
#pragma once

#include <memory>
#include <string>

#include "base/fd.h"
#include "kvern/memory.h"
#include "kvern/result.h"

namespace kvern::fabric {

class LocalGuest {
  public:
    // unavailable: nobody listens there. The address is LocalHost's.
    static Result<LocalGuest> connect(const std::string& address);

    // The window's id, for local_token(). It ends with this object, or with the server. permission: refused, and why.
    Result<std::string> hand_over(const Region& region);
    // Whether the server still has what was handed over, as far as this process has been told. Does not block.
    bool alive() const;

  private:
    explicit LocalGuest(Fd socket, std::string address) : socket_(std::move(socket)), address_(std::move(address)) {}
    Fd socket_;
    std::string address_;
};

// What two processes share if windows can be handed over between them: "BOOT-ID/NETWORK-NAMESPACE", since an abstract
// socket belongs to a network namespace. Empty where the system does not tell.
std::string local_host_id();

}  // namespace kvern::fabric
