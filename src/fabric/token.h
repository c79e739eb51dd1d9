// SPDX-License-Identifier: Apache-2.0
// Token: what names a part of somebody's memory for a one-sided transfer, as it stands in a header of S3 over RDMA.
//
// Pure values and functions, any thread. A token is a right to read and write that memory: it is never logged whole.
// It is believed only inside a request whose signature covers it, which is the caller's to check.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kvern/result.h"

namespace kvern::fabric {

enum class TokenKind : std::uint8_t {
    local,      // base:size:local1:window, of a memfd on the same host; base is an offset into it
    ofi,        // base:size:ofi1:provider:endpoint:key, of libfabric
    descriptor  // addr:size:rkey:lid:dctn:gidflag:gid in fixed widths, of cuObject and who mints the same
};

struct Token {
    TokenKind kind = TokenKind::local;
    std::uint64_t base = 0;
    std::uint64_t size_bytes = 0;
    std::string window;              // local: 32 hex digits
    std::string provider, endpoint;  // ofi: "tcp;ofi_rxm"; the bytes of its name
    std::uint64_t key = 0;           // ofi
    std::string descriptor;          // descriptor: the 81 characters, for whoever understands them
};

// Tolerant of what stores and clients have been seen to send: a descriptor may be followed by addr16:size16, which must
// say no more than it does, and by ';'. invalid_argument otherwise; not_supported: a later version of a known kind.
Result<Token> parse_token(std::string_view text);
// REQUIRES: `window` as the host gave it.
std::string local_token(std::string_view window, std::uint64_t offset, std::uint64_t size_bytes);
// `base`: what the provider's write operation takes. REQUIRES: a provider and an endpoint as parse_token() takes them.
std::string ofi_token(std::string_view provider, std::string_view endpoint, std::uint64_t key, std::uint64_t base,
                      std::uint64_t size_bytes);
// What reaches memory by mlx5's dynamically connected transport, as cuObject writes it: the 81 characters.
struct Descriptor {
    std::uint64_t address = 0;
    std::uint32_t size_bytes = 0;
    std::uint32_t rkey = 0;
    std::uint16_t lid = 0;                            // of an InfiniBand port; 0 on RoCE
    std::uint32_t dct_number = 0;                     // of the target, 24 bits
    std::optional<std::array<std::uint8_t, 16>> gid;  // none: the lid says it all
};
std::string descriptor_text(const Descriptor& descriptor);

}  // namespace kvern::fabric
