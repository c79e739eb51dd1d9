// SPDX-License-Identifier: Apache-2.0
#include "server/body.h"

#include <algorithm>
#include <cstring>

#include "base/crc32c.h"
#include "base/text.h"
#include "kvern/limits.h"
#include "server/windows.h"

namespace kvern::server {

using http::Checksum;
using http::ChecksumAlgorithm;
using http::PayloadForm;
using http::refuse;
using http::S3Code;
using http::S3Result;
using http::Task;

namespace {

bool streaming(PayloadForm form) {
    return form != PayloadForm::hash && form != PayloadForm::not_signed;
}

// A read that failed: the peer is gone or too slow, or its framing is broken.
http::S3Error broken_body(const Error& error) {
    if (error.code == ErrorCode::invalid_argument) return {S3Code::incomplete_body, error.message};
    return {S3Code::request_timeout, error.message};
}

}  // namespace

S3Result<Checksum> make_sum(ChecksumAlgorithm algorithm) {
    auto sum = Checksum::make(algorithm);
    if (!sum) return refuse(S3Code::not_implemented, sum.error().message);
    return std::move(*sum);
}

std::string fast_etag(const http::ChecksumValue& sum, const ObjectRecord& record) {
    const auto of_blocks = crc32c(0, record.block_sums.data(), record.block_sums.size() * sizeof(std::uint32_t));
    std::string bytes(16, '\0');
    const auto size = record.size_bytes;
    std::memcpy(bytes.data(), sum.bytes.data(), 8);
    std::memcpy(bytes.data() + 8, &of_blocks, 4);
    for (int i = 0; i < 4; ++i) bytes[12 + static_cast<std::size_t>(i)] = static_cast<char>(size >> (8 * i));
    return to_hex(std::string_view(bytes));
}

S3Result<std::unique_ptr<Body>> Body::create(Request& request, Of of, std::optional<ChecksumAlgorithm> computed) {
    std::unique_ptr<Body> body(new Body(request, of));
    if (auto read = body->read_promises(computed); !read) return tl::unexpected(read.error());
    return body;
}

S3Result<> Body::read_promises(std::optional<ChecksumAlgorithm> computed) {
    const auto& head = request_.exchange.request();
    const auto& authorization = request_.authorization;
    if (streaming(authorization.payload)) {
        const auto text = request_.header("x-amz-decoded-content-length");
        const auto size = text ? parse_number(*text, limits::object_bytes_max) : std::nullopt;
        if (!size)
            return refuse(S3Code::missing_content_length, "x-amz-decoded-content-length is missing or no number");
        size_bytes_ = *size;
    } else if (request_.window) {
        size_bytes_ = request_.window->size_bytes();
    } else if (head.content_length) {
        size_bytes_ = *head.content_length;
    } else if (!head.chunked) {
        return refuse(S3Code::missing_content_length, "You must provide the Content-Length HTTP header");
    }
    if (size_bytes_ && *size_bytes_ > limits::object_bytes_max) {
        return refuse(S3Code::entity_too_large, "Your proposed upload exceeds the maximum allowed size of " +
                                                    format_size(limits::object_bytes_max));
    }
    if (auto digests = read_digests(); !digests) return digests;
    if (auto chosen = choose_checksum(computed); !chosen) return chosen;
    if (streaming(authorization.payload)) {
        const bool trailers = authorization.payload != PayloadForm::streaming_signed;
        const auto announced = request_.header("x-amz-trailer");
        if (!trailers && announced)
            return refuse(S3Code::invalid_request, "x-amz-trailer without a form that has trailers");
        const bool is_signed = authorization.payload != PayloadForm::streaming_unsigned_trailer;
        if (is_signed && !request_.chunk_seed) {
            return refuse(S3Code::access_denied, "Signed chunks need a signed request");
        }
        chunked_ = std::make_unique<http::AwsChunked>();
        chunked_->start({authorization.payload, *size_bytes_, announced.value_or(""),
                         request_.chunk_seed.value_or(http::ChunkSeed{})});
    }
    block_bytes_ = block_bytes_for(size_bytes_.value_or(0));
    blocks_.emplace(block_bytes_);
    return {};
}

S3Result<> Body::read_digests() {
    if (request_.authorization.payload == PayloadForm::hash && request_.who != nullptr) {
        payload_hash_ = request_.authorization.payload_hash;
        auto sum = make_sum(ChecksumAlgorithm::sha256);
        if (!sum) return tl::unexpected(sum.error());
        sha256_ = std::move(*sum);
    }
    if (const auto md5 = request_.header("content-md5")) {
        const auto value = http::parse_checksum(ChecksumAlgorithm::md5, *md5);
        if (!value) return refuse(S3Code::invalid_digest, "The Content-MD5 you specified is not valid");
        content_md5_ = value->raw();
    }
    return {};
}

S3Result<> Body::choose_checksum(std::optional<ChecksumAlgorithm> computed) {
    bool given_by_client = false;
    for (const auto algorithm : http::s3_checksums) {
        const auto value = request_.header(http::header_name(algorithm));
        if (!value || of_ == Of::completion) continue;
        if (given_by_client) return refuse(S3Code::invalid_request, "Expecting a single x-amz-checksum- header");
        if (!http::parse_checksum(algorithm, *value)) {
            return refuse(S3Code::invalid_request,
                          "Value for " + std::string(http::header_name(algorithm)) + " header is invalid");
        }
        algorithm_ = algorithm;
        checksum_ = *value;
        given_by_client = true;
    }
    if (const auto trailer = request_.header("x-amz-trailer"); trailer && !given_by_client) {
        std::string name(*trailer);
        std::transform(name.begin(), name.end(), name.begin(),
                       [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
        const auto algorithm = http::checksum_of_header(name);
        if (!algorithm || *algorithm == ChecksumAlgorithm::md5) {
            return refuse(S3Code::invalid_request, "x-amz-trailer names no checksum that is known here");
        }
        algorithm_ = *algorithm;
        trailer_name_ = name;
        given_by_client = true;
    }
    if (!algorithm_) algorithm_ = computed.value_or(ChecksumAlgorithm::crc64nvme);
    auto sum = make_sum(*algorithm_);
    if (!sum) return tl::unexpected(sum.error());
    sum_ = std::move(*sum);
    // An ETag that is an MD5 is what some clients compare with. It costs more than receiving the bytes, so where a
    // client brings a CRC of its own, or a window, only short objects get one.
    const bool fast = (given_by_client && http::is_crc(*algorithm_)) || request_.window;
    wants_md5_ = !content_md5_.empty() || !fast || (size_bytes_ && *size_bytes_ <= limits::object_md5_bytes_max);
    if (wants_md5_) {
        auto md5 = Checksum::make(ChecksumAlgorithm::md5);
        if (md5) md5_ = std::move(*md5);
        if (!md5 && !content_md5_.empty()) return refuse(S3Code::not_implemented, md5.error().message);
    }
    return {};
}

void Body::arrived(std::span<const std::byte> bytes) {
    received_ += bytes.size();
    blocks_->update(bytes);
    sum_->update(bytes);
    if (sha256_) sha256_->update(bytes);
    if (md5_) md5_->update(bytes);
}

Task<S3Result<std::size_t>> Body::read_chunked(std::span<std::byte> into) {
    std::size_t done = 0;
    while (done < into.size() && chunked_->need() != http::AwsChunked::Need::end) {
        if (chunked_->need() == http::AwsChunked::Need::framing) {
            const auto seen = co_await request_.exchange.look();
            if (!seen) co_return tl::unexpected(broken_body(seen.error()));
            if (seen->empty()) co_return tl::unexpected(chunked_->cut_short());
            const auto used = chunked_->framing(*seen);
            if (!used) co_return tl::unexpected(used.error());
            request_.exchange.take(*used);
            continue;
        }
        const auto size = std::min<std::uint64_t>(chunked_->payload_left(), into.size() - done);
        const auto part = into.subspan(done, size);
        S3Result<> good;
        const http::Arrived told = [this, &good](std::span<const std::byte> bytes) {
            if (good) good = chunked_->payload(bytes);
        };
        const auto moved = co_await request_.exchange.read(part, &told);
        if (!moved) co_return tl::unexpected(broken_body(moved.error()));
        if (!good) co_return tl::unexpected(good.error());
        if (*moved < size) co_return tl::unexpected(chunked_->cut_short());
        arrived(part);
        done += size;
    }
    co_return done;
}

// Copied first and summed then: the client may change its bytes at any time, and what is stored is what was summed.
Task<S3Result<std::size_t>> Body::read_window(std::span<std::byte> into) {
    const auto& window = *request_.window;
    const auto size = std::min<std::uint64_t>(into.size(), window.size_bytes() - received_);
    if (size == 0) co_return std::size_t{0};
    if (window.data() == nullptr) {
        auto moving = window.start(request_.exchange.loop(), fabric::Direction::from, received_, into.first(size));
        const auto moved = co_await moving.ended();
        if (!moved) {
            decline_window(request_);
            co_return refuse(S3Code::not_implemented, "The memory that the token names: " + moved.error().message);
        }
    }
    for (std::size_t done = 0; done < size;) {
        const auto piece = into.subspan(done, std::min(size - done, limits::http_piece_bytes));
        if (window.data() != nullptr) std::memcpy(piece.data(), window.data() + received_, piece.size());
        arrived(piece);
        done += piece.size();
    }
    request_.window_bytes_in = received_;
    co_return size;
}

Task<S3Result<std::size_t>> Body::read(std::span<std::byte> into) {
    if (request_.window) co_return co_await read_window(into);
    if (chunked_) co_return co_await read_chunked(into);
    if (!size_bytes_ && received_ + into.size() > limits::object_bytes_max) {
        co_return refuse(S3Code::entity_too_large, "Your proposed upload exceeds the maximum allowed size of " +
                                                       format_size(limits::object_bytes_max));
    }
    const http::Arrived told = [this](std::span<const std::byte> bytes) { arrived(bytes); };
    const auto moved = co_await request_.exchange.read(into, &told);
    if (!moved) co_return tl::unexpected(broken_body(moved.error()));
    co_return *moved;
}

// Everything behind the last byte of payload: the last chunk, trailers, nothing else.
Task<S3Result<>> Body::end_of_body() {
    while (chunked_ && chunked_->need() != http::AwsChunked::Need::end) {
        if (chunked_->need() == http::AwsChunked::Need::payload) {
            co_return refuse(S3Code::incomplete_body, "The body is longer than x-amz-decoded-content-length says");
        }
        const auto seen = co_await request_.exchange.look();
        if (!seen) co_return tl::unexpected(broken_body(seen.error()));
        if (seen->empty()) co_return tl::unexpected(chunked_->cut_short());
        const auto used = chunked_->framing(*seen);
        if (!used) co_return tl::unexpected(used.error());
        request_.exchange.take(*used);
    }
    const auto beyond = co_await request_.exchange.look();
    if (!beyond) co_return tl::unexpected(broken_body(beyond.error()));
    if (!beyond->empty()) co_return refuse(S3Code::incomplete_body, "The body is longer than its length says");
    if (size_bytes_ && received_ != *size_bytes_) {
        co_return refuse(S3Code::incomplete_body,
                         "You did not provide the number of bytes specified by the Content-Length HTTP header");
    }
    co_return S3Result<>{};
}

S3Result<> Body::verify(ObjectRecord& record) {
    if (sha256_) {
        const auto value = sha256_->finish();
        if (to_hex(value.raw()) != payload_hash_) {
            return refuse(S3Code::content_sha256_mismatch,
                          "The provided 'x-amz-content-sha256' header does not match what was computed");
        }
    }
    std::string md5;
    if (md5_) {
        const auto value = md5_->finish();
        md5 = value.raw();
        if (!content_md5_.empty() && md5 != content_md5_) {
            return refuse(S3Code::bad_digest, "The Content-MD5 you specified did not match what we received");
        }
    }
    if (!trailer_name_.empty()) {
        for (const auto& trailer : chunked_ ? chunked_->trailers() : std::span<const http::AwsChunked::Trailer>()) {
            if (trailer.name == trailer_name_) checksum_ = trailer.value;
        }
        if (!http::parse_checksum(*algorithm_, checksum_)) {
            return refuse(S3Code::malformed_trailer, "The trailer " + trailer_name_ + " is missing or invalid");
        }
    }
    const auto sum = sum_->finish();
    if (!checksum_.empty() && http::parse_checksum(*algorithm_, checksum_) != sum) {
        return refuse(S3Code::bad_digest, "The " + std::string(http::to_string(*algorithm_)) +
                                              " you specified did not match what we received");
    }
    record.size_bytes = received_;
    record.algorithm = algorithm_;
    record.checksum = sum.text();
    record.block_bytes = block_bytes_;
    record.block_sums = blocks_->finish();
    record.etag = md5.empty() ? fast_etag(sum, record) : to_hex(md5);
    // As of an object that came in one part: clients then know that it is no MD5. Those of parts are joined as hex.
    if (md5.empty() && of_ == Of::object) record.etag += "-1";
    return {};
}

Task<S3Result<>> Body::finish(ObjectRecord& record) {
    const auto ended = co_await end_of_body();
    if (!ended) co_return ended;
    co_return verify(record);
}

Task<S3Result<std::string>> Body::read_text(std::size_t bytes_max) {
    if (size_bytes_ && *size_bytes_ > bytes_max) {
        co_return refuse(S3Code::max_message_length_exceeded, "Your request was too big");
    }
    std::string text(size_bytes_.value_or(bytes_max), '\0');
    const auto read_bytes = co_await read(std::as_writable_bytes(std::span(text)));
    if (!read_bytes) co_return tl::unexpected(read_bytes.error());
    text.resize(*read_bytes);
    ObjectRecord ignored;
    const auto finished = co_await finish(ignored);
    if (!finished) co_return tl::unexpected(finished.error());
    co_return text;
}

}  // namespace kvern::server
