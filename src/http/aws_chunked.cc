// SPDX-License-Identifier: Apache-2.0
#include "http/aws_chunked.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "http/sigv4_text.h"
#include "kvern/limits.h"

namespace kvern::http {
namespace {

constexpr std::string_view chunk_extension = ";chunk-signature=";
constexpr std::string_view trailer_signature = "x-amz-trailer-signature";
constexpr std::size_t size_digits_max = 15;  // no sum of two such sizes overflows

std::string lower(std::string_view text) {
    std::string result(text);
    for (char& c : result) {
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    return result;
}

tl::unexpected<S3Error> malformed(std::string why) {
    return refuse(S3Code::invalid_request, "aws-chunked body: " + std::move(why));
}

// Takes the next name off a list with commas.
std::string_view take_name(std::string_view& list) {
    const std::string_view part = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), part.size() + 1));
    return sigv4::trimmed(part);
}

}  // namespace

void AwsChunked::start(Expected expected) {
    form_ = expected.form;
    need_ = Need::framing;
    line_ = Line::size;
    text_.clear();
    left_ = 0;
    decoded_left_ = expected.decoded_bytes;
    trailer_bytes_ = 0;
    promised_ = lower(expected.trailers);
    trailers_.clear();
    seed_ = std::move(expected.seed);
    signature_.clear();
    chunk_.reset();
}

S3Result<std::size_t> AwsChunked::framing(std::span<const std::byte> bytes) {
    std::size_t used = 0;
    while (used < bytes.size() && need_ == Need::framing) {
        const char c = static_cast<char>(bytes[used++]);
        if (c != '\n') {
            text_ += c;
            if (text_.size() > limits::chunk_line_bytes_max) {
                return malformed(fmt::format("a line is longer than {} bytes", limits::chunk_line_bytes_max));
            }
            continue;
        }
        if (!text_.ends_with('\r')) return malformed("a line ends without CR");
        text_.pop_back();
        if (auto over = line_over(); !over) return tl::unexpected(std::move(over.error()));
        text_.clear();
    }
    return used;
}

S3Result<> AwsChunked::payload(std::span<const std::byte> bytes) {
    if (chunk_) chunk_->update({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    left_ -= bytes.size();
    if (left_ > 0) return {};
    need_ = Need::framing;
    return chunk_over();
}

S3Error AwsChunked::cut_short() const {
    return {S3Code::incomplete_body,
            fmt::format("the body ends before its last chunk; of x-amz-decoded-content-length {} bytes "
                        "are missing",
                        decoded_left_ + left_)};
}

S3Result<> AwsChunked::line_over() {
    switch (line_) {
        case Line::size:
            return size_line();
        case Line::after_payload:
            if (!text_.empty()) return malformed("a chunk is longer than it says");
            line_ = Line::size;
            return {};
        case Line::trailer:
            return text_.empty() ? body_over() : trailer_line();
    }
    return refuse(S3Code::internal_error, "aws-chunked body: unknown state");
}

// "10000;chunk-signature=<64 hex digits>", or without the signature.
S3Result<> AwsChunked::size_line() {
    const std::string_view line = text_;
    std::uint64_t size_bytes = 0;
    const auto [rest, error] = std::from_chars(line.data(), line.data() + line.size(), size_bytes, 16);
    const auto digits = static_cast<std::size_t>(rest - line.data());
    if (error != std::errc{} || digits == 0 || digits > size_digits_max) return malformed("a chunk's size is not hex");
    std::string_view extension = line.substr(digits);
    if (is_signed()) {
        if (!extension.starts_with(chunk_extension)) return malformed("a chunk has no signature");
        extension.remove_prefix(chunk_extension.size());
        signature_ = extension;
        chunk_.emplace();
    } else if (!extension.empty()) {
        return malformed("a chunk's size is followed by something");
    }
    if (size_bytes > decoded_left_) {
        return refuse(S3Code::incomplete_body, "the chunks hold more bytes than x-amz-decoded-content-length says");
    }
    left_ = size_bytes;
    decoded_left_ -= size_bytes;
    if (size_bytes > 0) {
        line_ = Line::after_payload;
        need_ = Need::payload;
        return {};
    }
    line_ = Line::trailer;
    if (decoded_left_ > 0) return tl::unexpected(cut_short());
    return chunk_over();
}

// "x-amz-checksum-crc32c:sOO8/Q=="
S3Result<> AwsChunked::trailer_line() {
    const auto wrong = [](std::string why) { return refuse(S3Code::malformed_trailer, "a trailer " + std::move(why)); };
    trailer_bytes_ += text_.size();
    const std::size_t colon = text_.find(':');
    if (colon == text_.npos || colon == 0) return wrong("is no 'name:value'");
    Trailer trailer{lower(std::string_view(text_).substr(0, colon)),
                    std::string(sigv4::trimmed(std::string_view(text_).substr(colon + 1)))};
    if (form_ == PayloadForm::streaming_signed) return wrong("is there, and the request promised none");
    if (trailer_bytes_ > limits::trailer_bytes_max || trailers_.size() == limits::trailers_max) {
        return wrong("is one too many, or they are too long");
    }
    if (!signature_.empty()) return wrong("follows the signature of the trailers");
    if (form_ == PayloadForm::streaming_signed_trailer && trailer.name == trailer_signature) {
        signature_ = std::move(trailer.value);
        if (signature_.empty()) return wrong("signature is empty");
        return {};
    }
    const auto same = [&](const Trailer& known) { return known.name == trailer.name; };
    if (std::any_of(trailers_.begin(), trailers_.end(), same))
        return wrong(fmt::format("'{}' is there twice", trailer.name));
    trailers_.push_back(std::move(trailer));
    return {};
}

// The chunk's payload is complete: does its signature continue that of the chunk before?
S3Result<> AwsChunked::chunk_over() {
    if (!chunk_) return {};
    const Digest digest = chunk_->finish();
    chunk_.reset();
    return check_signature("AWS4-HMAC-SHA256-PAYLOAD", digest, true);
}

S3Result<> AwsChunked::body_over() {
    if (form_ == PayloadForm::streaming_signed_trailer) {
        if (signature_.empty()) return refuse(S3Code::malformed_trailer, "the trailers are not signed");
        scratch_.clear();
        for (const Trailer& trailer : trailers_) scratch_ += trailer.name + ':' + trailer.value + '\n';
        if (auto checked = check_signature("AWS4-HMAC-SHA256-TRAILER", sha256(scratch_), false); !checked)
            return checked;
    }
    if (auto checked = check_promised(); !checked) return checked;
    need_ = Need::end;
    return {};
}

S3Result<> AwsChunked::check_signature(std::string_view kind, const Digest& digest, bool is_chunk) {
    scratch_.clear();
    for (const std::string_view line :
         {kind, std::string_view(seed_.amz_date), std::string_view(seed_.scope), std::string_view(seed_.signature)}) {
        scratch_ += line;
        scratch_ += '\n';
    }
    if (is_chunk) {  // a field that is always the hash of nothing
        scratch_ += sigv4::empty_hash;
        scratch_ += '\n';
    }
    sigv4::append_hex(scratch_, digest);
    std::string right;
    sigv4::append_hex(right, seed_.key.sign(scratch_));
    const bool matches = sigv4::equal_in_constant_time(right, signature_);
    seed_.signature = std::move(right);
    signature_.clear();
    if (matches) return {};
    return refuse(S3Code::signature_does_not_match,
                  fmt::format("the signature of {} of the body is not the one that the secret key gives",
                              is_chunk ? "a chunk" : "the trailers"));
}

// The trailers that came are those that x-amz-trailer names.
S3Result<> AwsChunked::check_promised() {
    std::size_t count = 0;
    for (std::string_view rest = promised_; !rest.empty();) {
        const std::string_view name = take_name(rest);
        if (name.empty()) continue;
        const auto same = [&](const Trailer& trailer) { return trailer.name == name; };
        if (std::none_of(trailers_.begin(), trailers_.end(), same)) {
            return refuse(S3Code::malformed_trailer,
                          fmt::format("the trailer '{}' was promised and did not come", name));
        }
        ++count;
    }
    if (count >= trailers_.size()) return {};
    return refuse(S3Code::malformed_trailer, "a trailer came that x-amz-trailer does not name");
}

}  // namespace kvern::http
