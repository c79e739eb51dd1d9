// SPDX-License-Identifier: Apache-2.0
// SHA-256 of a few bytes or of a stream of them (OpenSSL). Any thread; one Sha256 belongs to one thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

namespace kvern {

using Digest = std::array<std::uint8_t, 32>;

class Sha256 {
  public:
    Sha256();
    ~Sha256();
    void update(std::string_view bytes);
    Digest finish();  // once

  private:
    struct Context;
    std::unique_ptr<Context> context_;
};

Digest sha256(std::string_view bytes);

}  // namespace kvern
