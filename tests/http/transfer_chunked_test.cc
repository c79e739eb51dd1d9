// SPDX-License-Identifier: Apache-2.0
#include "http/transfer_chunked.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <string>
#include <vector>

namespace kvern::http {
namespace {

struct Decoded {
    bool good = false;
    bool ended = false;
    std::string payload;
    std::size_t used = 0;
};

Decoded decode(std::string_view text, std::size_t piece_bytes = 1 << 20) {
    TransferChunked decoder;
    decoder.start();
    Decoded result;
    const auto bytes = std::as_bytes(std::span(text));
    while (decoder.need() != TransferChunked::Need::end && result.used < text.size()) {
        const auto piece = bytes.subspan(result.used, std::min(piece_bytes, text.size() - result.used));
        if (decoder.need() == TransferChunked::Need::framing) {
            const auto used = decoder.framing(piece);
            if (!used) return result;
            result.used += *used;
        } else {
            const auto taken = std::min<std::uint64_t>(piece.size(), decoder.payload_left());
            result.payload += text.substr(result.used, taken);
            decoder.payload(taken);
            result.used += taken;
        }
    }
    result.good = true;
    result.ended = decoder.need() == TransferChunked::Need::end;
    return result;
}

TEST(TransferChunked, AnyCutOfTheWireGivesTheSame) {
    EXPECT_TRUE(rc::check("chunks of any size, read in any pieces", [](const std::vector<std::string>& chunks) {
        const auto piece_bytes = *rc::gen::inRange<std::size_t>(1, 30);
        std::string payload;
        std::string wire;
        for (const std::string& chunk : chunks) {
            if (chunk.empty()) continue;
            char size[32];
            std::snprintf(size, sizeof size, "%zX;a=b\r\n", chunk.size());
            wire += size + chunk + "\r\n";
            payload += chunk;
        }
        wire += "000 \r\nTrailer: x\r\n\r\n";
        const Decoded decoded = decode(wire + "next message", piece_bytes);
        RC_ASSERT(decoded.good);
        RC_ASSERT(decoded.ended);
        RC_ASSERT(decoded.payload == payload);
        RC_ASSERT(decoded.used == wire.size());
    }));
}

TEST(TransferChunked, TruncationIsNoEnd) {
    const std::string right = "3\r\nabc\r\n0\r\nx:y\r\n\r\n";
    EXPECT_TRUE(decode(right).ended);
    for (std::size_t size_bytes = 0; size_bytes < right.size(); ++size_bytes) {
        EXPECT_FALSE(decode(right.substr(0, size_bytes)).ended) << size_bytes;
    }
}

TEST(TransferChunked, FramingIsReadStrictly) {
    for (const char* wrong : {"\r\n", "g\r\n", "-1\r\n", "0x1\r\n", " 1\r\n", "1\nx", "1\r\nxx\r\n", "1\r\nx\n",
                              "1\r\nx0\r\n", "1111111111111111\r\n", "1z\r\n"}) {
        EXPECT_FALSE(decode(wrong).good) << wrong;
    }
    EXPECT_FALSE(decode(std::string(2000, '0')).good);
    std::string trailers = "0\r\n";
    for (int i = 0; i < 1000; ++i) trailers += "abcdefgh: i\r\n";
    EXPECT_FALSE(decode(trailers + "\r\n").good);
}

}  // namespace
}  // namespace kvern::http
