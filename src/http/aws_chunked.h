// SPDX-License-Identifier: Apache-2.0
// The content coding aws-chunked, in which S3's clients stream bodies: chunks that may be signed, and trailers that
// hold checksums. A pure decoder, like TransferChunked: it says whether framing or payload comes next, and never holds
// payload, so that this can be received straight into its place.
//
// One body after the other, one thread. It verifies what is signed, and that the length and the trailers are those that
// the head promised; that a checksum in a trailer is right is for the caller, who sums the payload anyway.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/sha256.h"
#include "http/s3_error.h"
#include "http/sigv4.h"

namespace kvern::http {

class AwsChunked {
  public:
    struct Expected {
        PayloadForm form = PayloadForm::streaming_unsigned_trailer;  // one of the streaming ones
        std::uint64_t decoded_bytes = 0;                             // x-amz-decoded-content-length
        std::string_view trailers;  // x-amz-trailer: names in any case, with commas between them; may be empty
        ChunkSeed seed;             // of signed forms: Verifier::chunk_seed()
    };
    void start(Expected expected);

    enum class Need : std::uint8_t { framing, payload, end };
    Need need() const { return need_; }

    // Need::framing: looks at the next bytes and says how many were used, which is all of them unless payload or the
    // end is reached. After a failure nothing but start() may be called.
    S3Result<std::size_t> framing(std::span<const std::byte> bytes);

    // Need::payload: so many bytes of the chunk are to come; `bytes` have been taken. The last ones of a chunk whose
    // signature is wrong fail: what was received until then is not the client's.
    std::uint64_t payload_left() const { return left_; }
    S3Result<> payload(std::span<const std::byte> bytes);

    // The error where the body ends and need() is not Need::end.
    S3Error cut_short() const;

    struct Trailer {
        std::string name;  // lower case
        std::string value;
    };
    // After Need::end: all but the signature.
    std::span<const Trailer> trailers() const { return trailers_; }

  private:
    enum class Line : std::uint8_t { size, after_payload, trailer };

    bool is_signed() const { return form_ != PayloadForm::streaming_unsigned_trailer; }
    S3Result<> line_over();
    S3Result<> size_line();
    S3Result<> trailer_line();
    S3Result<> chunk_over();
    S3Result<> body_over();
    S3Result<> check_signature(std::string_view kind, const Digest& digest, bool is_chunk);
    S3Result<> check_promised();

    PayloadForm form_ = PayloadForm::streaming_unsigned_trailer;
    Need need_ = Need::end;
    Line line_ = Line::size;
    std::string text_;                // of the line so far
    std::uint64_t left_ = 0;          // of this chunk's payload
    std::uint64_t decoded_left_ = 0;  // of the whole payload
    std::size_t trailer_bytes_ = 0;
    std::string promised_;
    std::vector<Trailer> trailers_;
    ChunkSeed seed_;         // its signature: that of the chunk before
    std::string signature_;  // of this chunk, or of the trailers
    std::optional<Sha256> chunk_;
    std::string scratch_;
};

}  // namespace kvern::http
