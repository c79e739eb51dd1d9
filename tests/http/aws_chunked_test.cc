// SPDX-License-Identifier: Apache-2.0
// aws-chunked: AWS's published example, bodies made here, and everything that may be wrong with them.
#include "http/aws_chunked.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <string>

#include "base/text.h"

namespace kvern::http {
namespace {

const std::string signature_zero(64, '0');

ChunkSeed example_seed(std::string signature) {
    SigningKey key;
    return {key.of("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "20130524", "us-east-1"), "20130524T000000Z",
            "20130524/us-east-1/s3/aws4_request", std::move(signature)};
}

// Signs as a client does, by the rule told another way.
class SignedBody {
  public:
    explicit SignedBody(ChunkSeed seed) : seed_(std::move(seed)) {}

    void chunk(std::string_view data) {
        seed_.signature =
            to_hex(seed_.key.sign("AWS4-HMAC-SHA256-PAYLOAD\n" + seed_.amz_date + "\n" + seed_.scope + "\n" +
                                  seed_.signature + "\n" + to_hex(sha256("")) + "\n" + to_hex(sha256(data))));
        char size[32];
        std::snprintf(size, sizeof size, "%zx", data.size());
        text += size + (";chunk-signature=" + seed_.signature) + "\r\n";
        if (!data.empty()) text += std::string(data) + "\r\n";
    }

    void trailer(std::string_view name, std::string_view value) {
        text += std::string(name) + ":" + std::string(value) + "\r\n";
        canonical_ += std::string(name) + ":" + std::string(value) + "\n";
    }

    void sign_trailers() {
        seed_.signature = to_hex(seed_.key.sign("AWS4-HMAC-SHA256-TRAILER\n" + seed_.amz_date + "\n" + seed_.scope +
                                                "\n" + seed_.signature + "\n" + to_hex(sha256(canonical_))));
        text += "x-amz-trailer-signature:" + seed_.signature + "\r\n";
    }

    void end() { text += "\r\n"; }

    std::string text;

  private:
    ChunkSeed seed_;
    std::string canonical_;
};

struct Decoded {
    std::string code;  // "ok", or of the error
    std::string payload;
    std::string trailers;  // "name=value;..."
    std::size_t used = 0;
};

// Feeds `text` in pieces of so many bytes, to framing and payload alike.
Decoded decode(AwsChunked::Expected expected, std::string_view text, std::size_t piece_bytes = 1 << 20) {
    AwsChunked decoder;
    decoder.start(std::move(expected));
    Decoded result;
    const auto bytes = std::as_bytes(std::span(text));
    while (decoder.need() != AwsChunked::Need::end) {
        const auto rest = bytes.subspan(result.used);
        if (rest.empty()) {
            result.code = to_string(decoder.cut_short().code);
            return result;
        }
        if (decoder.need() == AwsChunked::Need::framing) {
            const auto used = decoder.framing(rest.first(std::min(rest.size(), piece_bytes)));
            if (!used) {
                result.code = to_string(used.error().code);
                return result;
            }
            result.used += *used;
        } else {
            const auto piece = rest.first(static_cast<std::size_t>(
                std::min({std::uint64_t{rest.size()}, decoder.payload_left(), std::uint64_t{piece_bytes}})));
            result.payload += text.substr(result.used, piece.size());
            result.used += piece.size();
            if (const auto taken = decoder.payload(piece); !taken) {
                result.code = to_string(taken.error().code);
                return result;
            }
        }
    }
    for (const auto& trailer : decoder.trailers()) result.trailers += trailer.name + "=" + trailer.value + ";";
    result.code = "ok";
    return result;
}

AwsChunked::Expected expect_unsigned(std::uint64_t size_bytes, std::string_view trailers = "x-amz-checksum-crc32") {
    return {PayloadForm::streaming_unsigned_trailer, size_bytes, trailers, {}};
}

AwsChunked::Expected expect_signed(std::uint64_t size_bytes) {
    return {PayloadForm::streaming_signed, size_bytes, "", example_seed(signature_zero)};
}

AwsChunked::Expected expect_signed_trailer(std::uint64_t size_bytes) {
    return {PayloadForm::streaming_signed_trailer, size_bytes, "x-amz-checksum-crc32c", example_seed(signature_zero)};
}

// ------------------------------------------------------------------------------------------------------ AWS's examples

const std::string example_payload(66560, 'a');

TEST(AwsChunkedExample, SignedChunks) {
    const std::string body =
        "10000;chunk-signature=ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648\r\n" +
        std::string(65536, 'a') +
        "\r\n400;chunk-signature=0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497\r\n" +
        std::string(1024, 'a') +
        "\r\n0;chunk-signature=b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9\r\n\r\n";
    const auto seed = example_seed("4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9");
    const Decoded whole = decode({PayloadForm::streaming_signed, example_payload.size(), "", seed}, body);
    EXPECT_EQ(whole.code, "ok");
    EXPECT_EQ(whole.payload, example_payload);
    EXPECT_EQ(whole.used, body.size());
}

TEST(AwsChunkedExample, SignedTrailers) {
    const std::string body =
        "10000;chunk-signature=b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2\r\n" +
        std::string(65536, 'a') +
        "\r\n400;chunk-signature=1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7\r\n" +
        std::string(1024, 'a') +
        "\r\n0;chunk-signature=2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992\r\n"
        "x-amz-checksum-crc32c:sOO8/Q==\r\n"
        "x-amz-trailer-signature:d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435\r\n\r\n";
    const auto seed = example_seed("106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e");
    const Decoded whole =
        decode({PayloadForm::streaming_signed_trailer, example_payload.size(), "x-amz-checksum-crc32c", seed}, body);
    EXPECT_EQ(whole.code, "ok");
    EXPECT_EQ(whole.payload, example_payload);
    EXPECT_EQ(whole.trailers, "x-amz-checksum-crc32c=sOO8/Q==;");
}

// --------------------------------------------------------------------------------------------------------- good bodies

TEST(AwsChunked, AnyCutOfTheWireGivesTheSame) {
    EXPECT_TRUE(rc::check("chunks of any size, read in any pieces", [](const std::vector<std::string>& chunks) {
        const auto piece_bytes = *rc::gen::inRange<std::size_t>(1, 70);
        std::string payload;
        SignedBody body(example_seed(signature_zero));
        std::string plain;
        for (const std::string& chunk : chunks) {
            if (chunk.empty()) continue;
            payload += chunk;
            body.chunk(chunk);
            char size[32];
            std::snprintf(size, sizeof size, "%zX\r\n", chunk.size());
            plain += size + chunk + "\r\n";
        }
        body.chunk("");
        body.trailer("x-amz-checksum-crc32c", "value");
        body.sign_trailers();
        body.end();
        const Decoded decoded = decode(expect_signed_trailer(payload.size()), body.text, piece_bytes);
        RC_ASSERT(decoded.code == "ok");
        RC_ASSERT(decoded.payload == payload);
        plain += "0\r\nX-Amz-Checksum-CRC32: value \r\n\r\n";
        const Decoded unsigned_one = decode(expect_unsigned(payload.size()), plain + "next", piece_bytes);
        RC_ASSERT(unsigned_one.code == "ok");
        RC_ASSERT(unsigned_one.payload == payload);
        RC_ASSERT(unsigned_one.trailers == "x-amz-checksum-crc32=value;");
        RC_ASSERT(unsigned_one.used == plain.size());
    }));
}

TEST(AwsChunked, EmptyBodiesAreBodies) {
    EXPECT_EQ(decode(expect_unsigned(0, ""), "0\r\n\r\n").code, "ok");
    SignedBody body(example_seed(signature_zero));
    body.chunk("");
    body.end();
    EXPECT_EQ(decode(expect_signed(0), body.text).code, "ok");
}

TEST(AwsChunked, OneDecoderServesManyBodies) {
    AwsChunked decoder;
    for (int i = 0; i < 2; ++i) {
        decoder.start(expect_unsigned(1));
        const std::string_view text = "1\r\n";
        ASSERT_EQ(decoder.framing(std::as_bytes(std::span(text))).value(), 3u);
        ASSERT_EQ(decoder.payload_left(), 1u);
        ASSERT_TRUE(decoder.payload(std::as_bytes(std::span(text).first(1))));
        const std::string_view rest = "\r\n0\r\nx-amz-checksum-crc32:a\r\n\r\n";
        ASSERT_EQ(decoder.framing(std::as_bytes(std::span(rest))).value(), rest.size());
        EXPECT_EQ(decoder.need(), AwsChunked::Need::end);
        EXPECT_EQ(decoder.trailers().size(), 1u);
    }
}

// --------------------------------------------------------------------------------------------------------------
// refusals

TEST(AwsChunked, AnyChangedByteOfASignedBodyIsRefused) {
    SignedBody body(example_seed(signature_zero));
    body.chunk("some payload");
    body.chunk("and more");
    body.chunk("");
    body.trailer("x-amz-checksum-crc32c", "sOO8/Q==");
    body.sign_trailers();
    body.end();
    const std::string right = body.text;
    ASSERT_EQ(decode(expect_signed_trailer(20), right).code, "ok");
    for (std::size_t i = 0; i < right.size(); ++i) {
        std::string wrong = right;
        wrong[i] = static_cast<char>(wrong[i] ^ 1);
        const Decoded decoded = decode(expect_signed_trailer(20), wrong);
        EXPECT_NE(decoded.code, "ok") << "byte " << i;
    }
    // Names of trailers may be written in any case.
    std::string upper = right;
    upper[upper.find("x-amz-checksum")] = 'X';
    EXPECT_EQ(decode(expect_signed_trailer(20), upper).code, "ok");
}

TEST(AwsChunked, ChunksCannotBeSwappedOrLeftOut) {
    const auto body_of = [](std::initializer_list<std::string_view> chunks) {
        SignedBody body(example_seed(signature_zero));
        for (const std::string_view chunk : chunks) body.chunk(chunk);
        body.end();
        return body.text;
    };
    const std::string right = body_of({"aaaa", "bbbb", ""});
    EXPECT_EQ(decode(expect_signed(8), right).code, "ok");
    const std::size_t line = right.find("4;chunk", 1);
    const std::string first = right.substr(0, line);
    const std::string second = right.substr(line, line);
    const std::string last = right.substr(2 * line);
    EXPECT_EQ(decode(expect_signed(8), second + first + last).code, "SignatureDoesNotMatch");
    EXPECT_EQ(decode(expect_signed(4), first + last).code, "SignatureDoesNotMatch");
    EXPECT_EQ(decode(expect_signed(4), second + last).code, "SignatureDoesNotMatch");
}

TEST(AwsChunked, EveryTruncationIsIncomplete) {
    const std::string right = "3\r\nabc\r\n0\r\nx-amz-checksum-crc32:x\r\n\r\n";
    ASSERT_EQ(decode(expect_unsigned(3), right).code, "ok");
    for (std::size_t size_bytes = 0; size_bytes < right.size(); ++size_bytes) {
        EXPECT_EQ(decode(expect_unsigned(3), right.substr(0, size_bytes)).code, "IncompleteBody") << size_bytes;
    }
}

TEST(AwsChunked, TheLengthIsTheOnePromised) {
    EXPECT_EQ(decode(expect_unsigned(2, ""), "3\r\nabc\r\n0\r\n\r\n").code, "IncompleteBody");
    EXPECT_EQ(decode(expect_unsigned(4, ""), "3\r\nabc\r\n0\r\n\r\n").code, "IncompleteBody");
    EXPECT_EQ(decode(expect_unsigned(~std::uint64_t{0}, ""), "ffffffffffffffff\r\n").code, "InvalidRequest");
    EXPECT_EQ(decode(expect_unsigned(~std::uint64_t{0}, ""), "fffffffffffffff\r\n").code, "IncompleteBody");
}

TEST(AwsChunked, FramingIsReadStrictly) {
    for (const char* wrong :
         {"\r\n", "g\r\n", "-1\r\n", "+1\r\n", "0x1\r\n", " 1\r\n", "1 \r\nx", "1;\r\nx", "1;chunk-signature=0\r\nx",
          "1\nx", "1\r\nxx\r\n", "1\r\nx\n", "1\r\nx0\r\n", "11111111111111111\r\n"}) {
        EXPECT_EQ(decode(expect_unsigned(100, ""), wrong).code, "InvalidRequest") << wrong;
    }
    for (const char* wrong : {"1\r\nx", "1;signature=0\r\nx", "1;chunk-signature\r\n"}) {
        EXPECT_EQ(decode(expect_signed(100), wrong).code, "InvalidRequest") << wrong;
    }
    EXPECT_EQ(decode(expect_signed(1), "1;chunk-signature=\r\nx").code, "SignatureDoesNotMatch");
    EXPECT_EQ(decode(expect_unsigned(1), std::string(2000, '0')).code, "InvalidRequest");
}

TEST(AwsChunked, TrailersAreThosePromised) {
    const auto with = [](std::string_view trailers, std::string_view promised = "x-amz-checksum-crc32") {
        return decode(expect_unsigned(0, promised), "0\r\n" + std::string(trailers) + "\r\n").code;
    };
    EXPECT_EQ(with("x-amz-checksum-crc32:a\r\n"), "ok");
    EXPECT_EQ(with("x-amz-meta-a:b\r\nx-amz-checksum-crc32:a\r\n", "X-Amz-Checksum-Crc32, x-amz-meta-a"), "ok");
    for (const char* wrong :
         {"", "x-amz-checksum-sha1:a\r\n", "x-amz-checksum-crc32\r\n", ":a\r\n",
          "x-amz-checksum-crc32:a\r\nx-amz-checksum-crc32:a\r\n", "x-amz-checksum-crc32:a\r\nx-amz-meta-a:a\r\n"}) {
        EXPECT_EQ(with(wrong), "MalformedTrailerError") << wrong;
    }
    std::string many;
    std::string names;
    for (int i = 0; i < 17; ++i) {
        many += "t" + std::to_string(i) + ":v\r\n";
        names += "t" + std::to_string(i) + ",";
    }
    EXPECT_EQ(with(many, names), "MalformedTrailerError");
}

TEST(AwsChunked, SignedTrailersNeedTheirSignature) {
    SignedBody body(example_seed(signature_zero));
    body.chunk("");
    const std::string chunks = body.text;
    body.trailer("x-amz-checksum-crc32c", "a");
    EXPECT_EQ(decode(expect_signed_trailer(0), body.text + "\r\n").code, "MalformedTrailerError");
    EXPECT_EQ(decode(expect_signed_trailer(0), body.text + "x-amz-trailer-signature:\r\n\r\n").code,
              "MalformedTrailerError");
    EXPECT_EQ(decode(expect_signed_trailer(0), body.text + "x-amz-trailer-signature:0\r\n\r\n").code,
              "SignatureDoesNotMatch");
    body.sign_trailers();
    EXPECT_EQ(decode(expect_signed_trailer(0), body.text + "x-amz-meta-late:a\r\n\r\n").code, "MalformedTrailerError");
    EXPECT_EQ(decode(expect_signed_trailer(0), body.text + "\r\n").code, "ok");
    // A form without trailers has none.
    EXPECT_EQ(decode(expect_signed(0), chunks + "x-amz-checksum-crc32c:a\r\n\r\n").code, "MalformedTrailerError");
}

}  // namespace
}  // namespace kvern::http
