// SPDX-License-Identifier: Apache-2.0
// Bodies in aws-chunked: any bytes, cut in any way, are decoded the same or refused, and payload is never more than the
// head promised.
#include "http/aws_chunked.h"

#include <algorithm>

#include "base/text.h"
#include "fuzz.h"

namespace kvern::fuzz {
namespace {

using namespace http;

constexpr std::size_t head_bytes = 2;  // of an input: form and promised length

ChunkSeed chunk_seed() {
    SigningKey key;
    return {key.of("secret", "20130524", "us-east-1"), "20130524T000000Z", "20130524/us-east-1/s3/aws4_request",
            std::string(64, '0')};
}

struct Decoded {
    std::string code;
    std::string payload;
    std::size_t used = 0;
    std::size_t trailers = 0;
    bool operator==(const Decoded&) const = default;
};

Decoded decode(AwsChunked::Expected expected, std::string_view text, std::size_t piece_bytes) {
    const std::uint64_t promised = expected.decoded_bytes;
    AwsChunked decoder;
    decoder.start(std::move(expected));
    Decoded result;
    const auto bytes = std::as_bytes(std::span(text));
    const auto refused = [&](const S3Error& error) {
        FUZZ_REQUIRE(!error.message.empty());
        result.code = to_string(error.code);
        result.used = 0;  // depends on the cut
        return result;
    };
    while (decoder.need() != AwsChunked::Need::end) {
        if (result.used == text.size()) return refused(decoder.cut_short());
        auto piece = bytes.subspan(result.used, std::min(piece_bytes, text.size() - result.used));
        if (decoder.need() == AwsChunked::Need::framing) {
            const auto used = decoder.framing(piece);
            if (!used) return refused(used.error());
            FUZZ_REQUIRE(*used > 0 && *used <= piece.size());
            result.used += *used;
            continue;
        }
        FUZZ_REQUIRE(decoder.payload_left() > 0);
        piece = piece.first(static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), decoder.payload_left())));
        result.payload += text.substr(result.used, piece.size());
        FUZZ_REQUIRE(result.payload.size() <= promised);
        result.used += piece.size();
        if (const auto taken = decoder.payload(piece); !taken) return refused(taken.error());
    }
    FUZZ_REQUIRE(result.payload.size() == promised);
    result.code = "ok";
    result.trailers = decoder.trailers().size();
    return result;
}

std::string signed_body() {
    ChunkSeed seed = chunk_seed();
    std::string text;
    for (const std::string_view data : {"abc", ""}) {
        seed.signature =
            to_hex(seed.key.sign("AWS4-HMAC-SHA256-PAYLOAD\n" + seed.amz_date + "\n" + seed.scope + "\n" +
                                 seed.signature + "\n" + to_hex(sha256("")) + "\n" + to_hex(sha256(data))));
        text += to_hex(std::string(1, static_cast<char>(data.size()))) + ";chunk-signature=" + seed.signature + "\r\n";
        if (!data.empty()) text += std::string(data) + "\r\n";
    }
    return text;
}

}  // namespace

void check(std::string_view input) {
    if (input.size() < head_bytes) return;
    constexpr PayloadForm forms[] = {PayloadForm::streaming_signed, PayloadForm::streaming_signed_trailer,
                                     PayloadForm::streaming_unsigned_trailer};
    const PayloadForm form = forms[static_cast<unsigned char>(input[0]) % 3];
    const AwsChunked::Expected expected{form, static_cast<unsigned char>(input[1]), "x-amz-checksum-crc32",
                                        chunk_seed()};
    const std::string_view text = input.substr(head_bytes);
    const Decoded whole = decode(expected, text, text.size() + 1);
    FUZZ_REQUIRE(decode(expected, text, 1) == whole);
    FUZZ_REQUIRE(decode(expected, text, 7) == whole);
}

std::vector<std::string> seeds() {
    const std::string unsigned_body = "3\r\nabc\r\n0\r\nx-amz-checksum-crc32:NSRBwg==\r\n\r\n";
    return {std::string("\x02\x03") + unsigned_body, std::string("\x00\x03", 2) + signed_body() + "\r\n",
            std::string("\x01\x03") + signed_body() +
                "x-amz-checksum-crc32:NSRBwg==\r\nx-amz-trailer-signature:00\r\n\r\n"};
}

}  // namespace kvern::fuzz
