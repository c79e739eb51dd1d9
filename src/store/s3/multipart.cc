// SPDX-License-Identifier: Apache-2.0
#include "store/s3/multipart.h"

#include <algorithm>

#include "kvern/limits.h"
#include "store/op_check.h"
#include "store/s3/reads.h"
#include "store/s3/writes.h"

namespace kvern {
namespace {

constexpr unsigned complete_attempts_max = 3;  // of those that are answered 200 and then fail

}  // namespace

std::uint64_t s3_part_bytes(std::uint64_t size_bytes, std::uint64_t multipart_bytes) {
    constexpr std::uint64_t usual = 2 * limits::s3_part_bytes_min;
    const auto least = (size_bytes + limits::upload_parts_max - 1) / limits::upload_parts_max;
    const auto wanted = std::max<std::uint64_t>(std::min(usual, multipart_bytes), limits::s3_part_bytes_min);
    const auto bytes = std::max(wanted, least);
    return (bytes + limits::page_bytes - 1) / limits::page_bytes * limits::page_bytes;
}

S3Request S3Multipart::request(std::string_view method) const {
    S3Request request;
    request.method = method;
    request.key = key_;
    if (!id_.empty()) request.query.push_back({"uploadId", id_});
    return request;
}

http::Task<std::optional<Outcome>> S3Multipart::create() {
    auto create = request("POST");
    create.query.push_back({"uploads", ""});
    if (!metadata_.empty()) create.headers.emplace_back("x-amz-meta-kvern", metadata_);
    if (const auto algorithm = endpoint_.options().checksum) {
        create.headers.emplace_back("x-amz-checksum-algorithm", std::string(http::to_string(*algorithm)));
        create.headers.emplace_back("x-amz-checksum-type", "FULL_OBJECT");
    }
    auto answer = co_await endpoint_.call(create, endpoint_.deadline());
    if (answer.ended) co_return std::move(answer.ended);
    auto id = answer.good() ? parse_upload_id(answer.http.text)
                            : Result<std::string>(fail(ErrorCode::io, "answered " + std::to_string(answer.status())));
    if (!id) co_return failed(id.error().code, endpoint_.named(key_) + ": " + id.error().message);
    id_ = std::move(*id);
    co_return std::nullopt;
}

http::Task<std::optional<Outcome>> S3Multipart::upload(unsigned number, std::vector<Buffer> bytes) {
    auto put = request("PUT");
    put.query.push_back({"partNumber", std::to_string(number)});
    put.body = std::move(bytes);
    Part part;
    part.size_bytes = total_bytes(put.body);
    if (const auto algorithm = endpoint_.options().checksum) {
        auto text = checksum_text(*algorithm, put.body);
        part.sum = http::parse_checksum(*algorithm, text);
        put.headers.emplace_back(http::header_name(*algorithm), std::move(text));
    }
    auto answer = co_await endpoint_.call(put, endpoint_.deadline());
    if (answer.ended) co_return std::move(answer.ended);
    const auto etag = answer.http.head.find("etag");
    if (!answer.good() || !etag) {
        co_return failed(ErrorCode::io, endpoint_.named(key_) + ": part " + std::to_string(number) + " was answered " +
                                            std::to_string(answer.status()) + " " + answer.error.code + " " +
                                            answer.error.message);
    }
    part.etag = *etag;
    if (parts_.size() < number) parts_.resize(number);
    size_bytes_ += part.size_bytes;
    parts_[number - 1] = std::move(part);
    co_return std::nullopt;
}

std::string S3Multipart::document() const {
    std::string text = "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">";
    for (std::size_t i = 0; i < parts_.size(); ++i) {
        text += "<Part><PartNumber>" + std::to_string(i + 1) + "</PartNumber><ETag>" + xml_escaped(parts_[i].etag) +
                "</ETag>";
        if (parts_[i].sum) {
            const std::string name(http::element_name(parts_[i].sum->algorithm));
            text += "<" + name + ">" + parts_[i].sum->text() + "</" + name + ">";
        }
        text += "</Part>";
    }
    return text + "</CompleteMultipartUpload>";
}

std::string S3Multipart::whole_checksum() const {
    if (parts_.empty() || !parts_.front().sum) return {};
    auto whole = *parts_.front().sum;
    for (std::size_t i = 1; i < parts_.size(); ++i) whole = http::combine(whole, *parts_[i].sum, parts_[i].size_bytes);
    return whole.text();
}

http::Task<Outcome> S3Multipart::complete(Condition condition, const std::string& etag) {
    S3Written known;
    known.size_bytes = size_bytes_;
    known.checksum = whole_checksum();
    auto post = request("POST");
    post.text = document();
    post.headers.emplace_back("content-type", "application/xml");
    if (!known.checksum.empty()) {
        post.headers.emplace_back(http::header_name(*endpoint_.options().checksum), known.checksum);
        post.headers.emplace_back("x-amz-checksum-type", "FULL_OBJECT");
    }
    if (condition != Condition::any && endpoint_.honours_conditions()) add_condition(post, condition, etag);
    for (unsigned attempt = 1;; ++attempt) {
        auto answer = co_await endpoint_.call(post, endpoint_.deadline());
        // An earlier attempt may have completed it: then the upload is gone, and the value is there.
        const bool gone = answer.status() == 404 && answer.unclear;
        if (gone) answer.http.head.status = 412;
        if (gone && condition == Condition::any) {
            auto outcome = co_await s3_write_outcome(endpoint_, key_, std::move(answer), Condition::absent, known);
            if (outcome.error.code == ErrorCode::precondition) {
                outcome.error = {ErrorCode::io, endpoint_.named(key_) + ": the upload is gone: NoSuchUpload"};
            }
            co_return outcome;
        }
        if (!answer.good()) co_return co_await s3_write_outcome(endpoint_, key_, std::move(answer), condition, known);
        auto completed = parse_completed(answer.http.text);
        if (!completed)
            co_return failed(completed.error().code, endpoint_.named(key_) + ": " + completed.error().message);
        if (completed->error.code.empty()) {
            auto outcome = co_await s3_write_outcome(endpoint_, key_, std::move(answer), condition, known);
            outcome.stat.etag = std::move(completed->etag);
            co_return outcome;
        }
        const auto& error = completed->error;
        if (error.code == "PreconditionFailed") {
            answer.http.head.status = 412;
            co_return co_await s3_write_outcome(endpoint_, key_, std::move(answer), condition, known);
        }
        const auto verdict = judge(500, error.code);
        const bool again = verdict == S3Verdict::trouble || verdict == S3Verdict::throttled;
        auto text = endpoint_.named(key_) + ": " + error.code + ": " + error.message;
        if (!again) co_return failed(ErrorCode::io, std::move(text));
        if (attempt == complete_attempts_max) {
            co_return verdict == S3Verdict::throttled ? busy(std::move(text))
                                                      : failed(ErrorCode::unavailable, std::move(text));
        }
        co_await endpoint_.pause(limits::s3_backoff * attempt);
    }
}

http::Task<void> S3Multipart::abort() {
    if (!created()) co_return;
    const auto remove = request("DELETE");
    (void)co_await endpoint_.call(remove, endpoint_.deadline());
}

// -------------------------------------------------------------------------------------------------------- a large put

namespace {

http::Task<void> upload_into(S3Multipart& multipart, unsigned number, std::vector<Buffer> bytes,
                             std::optional<Outcome>& trouble) {
    auto ended = co_await multipart.upload(number, std::move(bytes));
    if (ended && !trouble) trouble = std::move(ended);
}

}  // namespace

http::Task<Outcome> s3_put_parts(S3Endpoint& endpoint, const Op& op) {
    const auto metadata = s3_metadata_text(op.metadata);
    if (!metadata) co_return failed(metadata.error());
    S3Multipart multipart(endpoint, endpoint.s3_key(op.key), *metadata);
    auto trouble = co_await multipart.create();
    if (trouble) co_return std::move(*trouble);
    const auto size = total_bytes(op.buffers);
    const auto part_bytes = s3_part_bytes(size, endpoint.options().multipart_bytes);
    http::Together parts;
    unsigned number = 0;
    for (std::uint64_t at = 0; at < size && !trouble; at += part_bytes) {
        auto bytes = part_of(op.buffers, at, std::min(part_bytes, size - at));
        parts.start(upload_into(multipart, ++number, std::move(bytes), trouble));
        co_await parts.at_most(limits::s3_parts_in_flight - 1);
    }
    co_await parts.at_most(0);
    Outcome outcome;
    if (trouble) {
        outcome = std::move(*trouble);
    } else {
        outcome = co_await multipart.complete(op.condition, op.etag);
    }
    if (outcome.status != Status::ok) co_await multipart.abort();
    co_return outcome;
}

}  // namespace kvern
