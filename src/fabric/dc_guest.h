// SPDX-License-Identifier: Apache-2.0
// DcGuest: the client's end of mlx5's dynamically connected transport, without cuObject: the same tokens for the same
// servers, made with libibverbs and libmlx5 alone, so that a client needs nothing of CUDA. NOT RUN ON HARDWARE: what is
// tested is this code with a library that stands in for the card's.
//
// Any thread. The libraries are loaded when a guest is first asked for, and nothing needs them before. It posts nothing
// and burns nothing: the card alone answers whoever has a token and the key (KVERN_DC_KEY, which must be the server's).
// Who has the key of a fabric and guesses an rkey reaches what was handed over: keep other keys than the default, as
// with any RDMA. One card, one port; a pair that is bonded is used as one.
#pragma once

#include <memory>
#include <string>

#include "fabric/guest.h"

namespace kvern::fabric {

class DcGuest final : public Guest {
  public:
    // One a process and address, as long as anybody holds it: registering a region takes long. `address`: of this host,
    // where the card is to be reached, or the GID of an InfiniBand port, as IPv6; empty: the first card with an active
    // port. not_supported: no libraries or no such card; invalid_argument: address or key.
    static Result<std::shared_ptr<DcGuest>> open(const std::string& address);
    ~DcGuest() override;  // REQUIRES: no server writes any more
    DcGuest(const DcGuest&) = delete;
    DcGuest& operator=(const DcGuest&) = delete;

    const char* provider() const override { return "dc"; }
    // In parts of limits::registration_bytes_max; what lies across two of them can't be named by one token. A region
    // that was handed over before is not registered again. resource: the limit of locked memory, most likely.
    Result<std::vector<Window>> hand_over(const std::shared_ptr<Region>& region) override;
    // Either direction: the same token serves both.
    Result<Minted> token(const Window& window, std::uint64_t offset, std::uint64_t size_bytes, Direction) override;
    bool alive() const override { return true; }  // nobody tells when a server ends

  private:
    struct Impl;
    explicit DcGuest(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace kvern::fabric
