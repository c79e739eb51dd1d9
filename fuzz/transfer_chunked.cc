// SPDX-License-Identifier: Apache-2.0
// Bodies in chunks: any bytes, cut in any way, are decoded the same or refused.
#include "http/transfer_chunked.h"

#include <algorithm>

#include "fuzz.h"

namespace kvern::fuzz {
namespace {

using namespace http;

struct Decoded {
    bool refused = false;
    bool ended = false;
    std::string payload;
    std::size_t used = 0;
    bool operator==(const Decoded&) const = default;
};

Decoded decode(std::string_view text, std::size_t piece_bytes) {
    TransferChunked decoder;
    decoder.start();
    Decoded result;
    const auto bytes = std::as_bytes(std::span(text));
    while (decoder.need() != TransferChunked::Need::end && result.used < text.size()) {
        const auto piece = bytes.subspan(result.used, std::min(piece_bytes, text.size() - result.used));
        if (decoder.need() == TransferChunked::Need::framing) {
            const auto used = decoder.framing(piece);
            if (!used) {
                FUZZ_REQUIRE(!used.error().message.empty());
                result.used = 0;  // depends on the cut
                result.refused = true;
                return result;
            }
            FUZZ_REQUIRE(*used > 0 && *used <= piece.size());
            result.used += *used;
        } else {
            FUZZ_REQUIRE(decoder.payload_left() > 0);
            const auto taken = std::min<std::uint64_t>(piece.size(), decoder.payload_left());
            result.payload += text.substr(result.used, taken);
            decoder.payload(taken);
            result.used += taken;
        }
    }
    result.ended = decoder.need() == TransferChunked::Need::end;
    return result;
}

}  // namespace

void check(std::string_view input) {
    const Decoded whole = decode(input, input.size() + 1);
    FUZZ_REQUIRE(decode(input, 1) == whole);
    FUZZ_REQUIRE(decode(input, 7) == whole);
    FUZZ_REQUIRE(whole.payload.size() <= whole.used || whole.refused);
}

std::vector<std::string> seeds() {
    return {"3\r\nabc\r\n0\r\n\r\n", "a;name=\"value\"\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\nHTTP/1.1 200 OK",
            "fffffffffffffff\r\nx", "0\r\n"};
}

}  // namespace kvern::fuzz
