// SPDX-License-Identifier: Apache-2.0
// SHA-256 of a few bytes or of a stream of them, and HMAC under a key that is used often (OpenSSL).
//
// Any thread; one Sha256 belongs to one thread, an HmacSha256 may be shared once it is made.
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

Digest sha256(std::string_view bytes);  // takes no memory: quick for short texts

// HMAC-SHA-256. The blocks that the key fills are hashed once, so a short text costs two blocks instead of four, and no
// memory.
class HmacSha256 {
  public:
    HmacSha256() : HmacSha256(std::string_view()) {}
    explicit HmacSha256(std::string_view key);
    Digest sign(std::string_view text) const;

  private:
    using State = std::array<std::uint32_t, 8>;
    State inner_{};
    State outer_{};
};

}  // namespace kvern
