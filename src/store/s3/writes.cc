// SPDX-License-Identifier: Apache-2.0
#include "store/s3/writes.h"

#include <algorithm>

#include "base/text.h"
#include "http/checksum.h"
#include "kvern/limits.h"
#include "store/op_check.h"
#include "store/s3/multipart.h"
#include "store/s3/reads.h"

namespace kvern {
namespace {

constexpr std::string_view metadata_name = "x-amz-meta-kvern";
constexpr std::size_t metadata_name_bytes = 5;  // S3 counts it without its start

Outcome unexpected(const S3Endpoint& endpoint, std::string_view s3_key, const S3Answer& answer) {
    return failed(ErrorCode::io, endpoint.named(s3_key) + ": answered " + std::to_string(answer.status()) + " " +
                                     answer.error.code + " " + answer.error.message);
}

// Whether an etag is the MD5 of these bytes, as S3's own often are.
bool is_md5_of(const std::string& etag, const std::vector<Buffer>& bytes) {
    auto sum = http::Checksum::make(http::ChecksumAlgorithm::md5);
    if (!sum || etag.size() != 32) return false;
    for (const auto& buffer : bytes) sum->update({buffer.data, buffer.size_bytes});
    return to_hex(sum->finish().raw()) == etag;
}

bool is_ours(const S3Look& look, const S3Written& known) {
    if (look.outcome.status != Status::ok || look.outcome.stat.size_bytes != known.size_bytes) return false;
    if (!look.checksum.empty() && !known.checksum.empty()) return look.checksum == known.checksum;
    return known.bytes != nullptr && is_md5_of(look.outcome.stat.etag, *known.bytes);
}

Outcome put_ok(std::uint64_t size_bytes, Stat stat) {
    Outcome outcome;
    outcome.status = Status::ok;
    outcome.bytes = size_bytes;
    outcome.stat = std::move(stat);
    outcome.stat.size_bytes = size_bytes;
    outcome.stat.metadata.clear();
    return outcome;
}

}  // namespace

std::size_t s3_metadata_bytes_max() {
    return (limits::s3_metadata_text_max - metadata_name_bytes) / 4 * 3;
}

Result<std::string> s3_metadata_text(const std::string& metadata) {
    if (metadata.size() <= s3_metadata_bytes_max()) return to_base64(metadata);
    return fail(ErrorCode::not_supported, "metadata of " + std::to_string(metadata.size()) +
                                              " bytes: S3 keeps at most " + std::to_string(s3_metadata_bytes_max()) +
                                              " (2 KiB as text)");
}

void add_condition(S3Request& request, Condition condition, const std::string& etag) {
    if (condition == Condition::absent) request.headers.emplace_back("if-none-match", "*");
    if (condition == Condition::etag) request.headers.emplace_back("if-match", "\"" + etag + "\"");
}

http::Task<std::optional<Outcome>> s3_condition_fails(S3Endpoint& endpoint, const std::string& s3_key,
                                                      Condition condition, const std::string& etag) {
    auto look = co_await s3_look(endpoint, s3_key, false);
    auto& outcome = look.outcome;
    const bool exists = outcome.status == Status::ok;
    if (!exists && outcome.status != Status::miss) co_return std::move(outcome);
    const bool holds = condition == Condition::any || (condition == Condition::absent && !exists) ||
                       (condition == Condition::etag && exists && outcome.stat.etag == etag);
    if (holds) co_return std::nullopt;
    outcome.status = Status::failed;
    outcome.error = precondition_failure(condition, exists);
    co_return std::move(outcome);
}

http::Task<Outcome> s3_write_outcome(S3Endpoint& endpoint, const std::string& s3_key, S3Answer answer,
                                     Condition condition, const S3Written& known) {
    if (answer.ended) co_return std::move(*answer.ended);
    if (answer.good()) co_return put_ok(known.size_bytes, stat_of(answer.http.head, false));
    if (answer.status() == 409)
        co_return busy(endpoint.named(s3_key) + ": somebody else is writing it: " + answer.error.code);
    const bool refused = answer.status() == 412 || (answer.status() == 404 && condition == Condition::etag);
    if (!refused || condition == Condition::any) co_return unexpected(endpoint, s3_key, answer);
    auto look = co_await s3_look(endpoint, s3_key, false);
    // An attempt that got no answer may have been the one that made the condition false.
    if (answer.unclear && is_ours(look, known)) co_return put_ok(known.size_bytes, std::move(look.outcome.stat));
    const bool exists = look.outcome.status == Status::ok;
    auto outcome = failed(precondition_failure(condition, exists));
    outcome.stat = std::move(look.outcome.stat);
    co_return outcome;
}

namespace {

// A server that did not look at the token has stored an empty object, which nobody may take for the value.
http::Task<void> remove_empty(S3Endpoint& endpoint, const S3Request& put, const S3Answer& answer) {
    S3Request remove;
    remove.method = "DELETE";
    remove.key = put.key;
    const auto etag = stat_of(answer.http.head, false).etag;
    if (!etag.empty()) add_condition(remove, Condition::etag, etag);
    const auto removed = co_await endpoint.call(remove, endpoint.deadline());
    const bool unknown_header = removed.ended && removed.ended->error.code == ErrorCode::not_supported;
    if (!unknown_header || remove.headers.empty()) co_return;
    // Then a look must do: it is ours as long as it is this version.
    const auto look = co_await s3_look(endpoint, put.key, false);
    if (look.outcome.status != Status::ok || look.outcome.stat.etag != etag) co_return;
    remove.headers.clear();
    (void)co_await endpoint.call(remove, endpoint.deadline());
}

// A put whose bytes the server fetches itself. Nothing: it did not, and they must be sent.
http::Task<std::optional<Outcome>> put_aside(S3Endpoint& endpoint, S3Request& request,
                                             const S3Windows::Transfer& transfer, Condition condition,
                                             const S3Written& known) {
    request.body_aside = true;
    auto answer = co_await endpoint.call(request, endpoint.deadline());
    const auto reply = co_await endpoint.windows().settle(answer, transfer);
    if (reply == S3Windows::Reply::declined) co_return std::nullopt;
    bool wrong = reply == S3Windows::Reply::moved && answer.http.body_bytes != known.size_bytes;
    if (reply == S3Windows::Reply::unproven) wrong = !is_ours(co_await s3_look(endpoint, request.key, false), known);
    if (reply == S3Windows::Reply::silent || wrong) {
        if (wrong) endpoint.windows().off("it does not show that it took the bytes that there are");
        if (answer.good()) co_await remove_empty(endpoint, request, answer);
        co_return std::nullopt;
    }
    co_return co_await s3_write_outcome(endpoint, request.key, std::move(answer), condition, known);
}

// Nothing: the bytes must be sent.
http::Task<std::optional<Outcome>> put_by_token(S3Endpoint& endpoint, S3Request request, const Op& op,
                                                const S3Written& known) {
    const auto transfer =
        co_await endpoint.windows().name(request, op.buffers, known.size_bytes, fabric::Direction::from);
    if (!transfer) co_return std::nullopt;
    co_return co_await put_aside(endpoint, request, transfer, op.condition, known);
}

}  // namespace

http::Task<Outcome> s3_put(S3Endpoint& endpoint, const Op& op) {
    const auto metadata = s3_metadata_text(op.metadata);
    if (!metadata) co_return failed(metadata.error());
    S3Request request;
    request.method = "PUT";
    request.key = endpoint.s3_key(op.key);
    S3Written known;
    known.size_bytes = total_bytes(op.buffers);
    known.bytes = &op.buffers;
    const bool in_parts = known.size_bytes > endpoint.options().multipart_bytes;
    if (op.condition != Condition::any) {
        auto trouble = co_await endpoint.learn_conditions(endpoint.deadline());
        if (trouble) co_return std::move(*trouble);
        // A look spares moving what is too large to be refused only at its end.
        if (in_parts || !endpoint.honours_conditions()) {
            auto fails = co_await s3_condition_fails(endpoint, request.key, op.condition, op.etag);
            if (fails) co_return std::move(*fails);
        }
        if (endpoint.honours_conditions()) add_condition(request, op.condition, op.etag);
    }
    if (in_parts) co_return co_await s3_put_parts(endpoint, op);
    if (!metadata->empty()) request.headers.emplace_back(metadata_name, *metadata);
    if (const auto algorithm = endpoint.options().checksum) {
        known.checksum = checksum_text(*algorithm, op.buffers);
        request.headers.emplace_back(http::header_name(*algorithm), known.checksum);
    }
    // What replaces a version goes with its body: an empty object in its place could not be undone.
    if (op.condition != Condition::etag) {
        auto outcome = co_await put_by_token(endpoint, request, op, known);
        if (outcome) co_return std::move(*outcome);
    }
    request.body = op.buffers;
    auto answer = co_await endpoint.call(request, endpoint.deadline());
    co_return co_await s3_write_outcome(endpoint, request.key, std::move(answer), op.condition, known);
}

// ------------------------------------------------------------------------------------------------------------ removes

namespace {

http::Task<Outcome> delete_one(S3Endpoint& endpoint, const Op& op) {
    S3Request request;
    request.method = "DELETE";
    request.key = endpoint.s3_key(op.key);
    add_condition(request, op.condition, op.etag);
    auto answer = co_await endpoint.call(request, endpoint.deadline());
    const bool unknown_header =
        answer.ended && answer.ended->error.code == ErrorCode::not_supported && !request.headers.empty();
    if (unknown_header) {  // then the look before must do
        request.headers.clear();
        answer = co_await endpoint.call(request, endpoint.deadline());
    }
    if (answer.ended) co_return std::move(*answer.ended);
    // After an attempt without an answer, nobody knows who removed it: it is gone, as was asked for.
    if (answer.status() == 404 && !answer.unclear) co_return missed();
    if (answer.good() || answer.status() == 404) {
        Outcome outcome;
        outcome.status = Status::ok;
        co_return outcome;
    }
    if (answer.status() != 412) co_return unexpected(endpoint, request.key, answer);
    auto fails = co_await s3_condition_fails(endpoint, request.key, op.condition, op.etag);
    if (!fails) co_return busy(endpoint.named(request.key) + ": it changes while it is removed");
    if (fails->status == Status::failed && fails->stat.etag.empty()) co_return missed();
    co_return std::move(*fails);
}

// Whether a key may stand in an XML document as it is, whatever the server's parser.
bool is_plain(std::string_view key) {
    return std::all_of(key.begin(), key.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
}

std::string delete_document(S3Endpoint& endpoint, std::span<const Op* const> ops) {
    std::string document = "<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Quiet>true</Quiet>";
    for (const auto* const op : ops) {
        document += "<Object><Key>" + xml_escaped(endpoint.s3_key(op->key)) + "</Key></Object>";
    }
    return document + "</Delete>";
}

std::string md5_text(const std::string& text) {
    auto sum = http::Checksum::make(http::ChecksumAlgorithm::md5);
    if (!sum) return {};
    sum->update(std::as_bytes(std::span(text)));
    return sum->finish().text();
}

http::Task<void> delete_into(S3Endpoint& endpoint, const Op& op, Outcome& outcome) {
    outcome = co_await delete_one(endpoint, op);
}

http::Task<void> delete_each(S3Endpoint& endpoint, std::span<const Op* const> ops, std::span<Outcome* const> outcomes) {
    http::Together all;
    for (std::size_t i = 0; i < ops.size(); ++i) {
        all.start(delete_into(endpoint, *ops[i], *outcomes[i]));
        co_await all.at_most(endpoint.options().connections - 1);
    }
    co_await all.at_most(0);
}

// All of them are there, as far as a look knows; `outcomes` are ok so far.
http::Task<void> delete_together(S3Endpoint& endpoint, std::span<const Op* const> ops,
                                 std::span<Outcome* const> outcomes) {
    S3Request request;
    request.method = "POST";
    request.query.push_back({"delete", ""});
    request.text = delete_document(endpoint, ops);
    // The one sum that servers of every age take; where this process may not make it, one that newer ones take.
    const auto md5 = md5_text(request.text);
    const Buffer bytes{reinterpret_cast<std::byte*>(request.text.data()), request.text.size()};
    if (!md5.empty()) request.headers.emplace_back("content-md5", md5);
    const std::vector<Buffer> list{bytes};
    if (md5.empty()) request.headers.push_back(checksum_header(http::ChecksumAlgorithm::crc32c, list));
    request.headers.emplace_back("content-type", "application/xml");
    auto answer = co_await endpoint.call(request, endpoint.deadline());
    const bool unknown = (answer.ended && answer.ended->error.code == ErrorCode::not_supported) ||
                         answer.status() == 404 || answer.status() == 405;
    if (unknown) co_return co_await delete_each(endpoint, ops, outcomes);
    auto errors =
        answer.good() ? parse_deleted(answer.http.text) : Result<std::vector<S3NotDeleted>>(fail(ErrorCode::io, ""));
    if (!errors) {
        auto ended = answer.ended    ? std::move(*answer.ended)
                     : answer.good() ? failed(ErrorCode::io, endpoint.named("") + ": " + errors.error().message)
                                     : unexpected(endpoint, "", answer);
        for (auto* const outcome : outcomes) *outcome = ended;
        co_return;
    }
    for (const auto& error : *errors) {
        for (std::size_t i = 0; i < ops.size(); ++i) {
            if (endpoint.s3_key(ops[i]->key) != error.key) continue;
            const bool denied = judge(0, error.error.code) == S3Verdict::denied || error.error.code == "AccessDenied";
            *outcomes[i] = failed(denied ? ErrorCode::permission : ErrorCode::io,
                                  endpoint.named(error.key) + ": " + error.error.code + ": " + error.error.message);
        }
    }
}

}  // namespace

http::Task<Outcome> s3_remove(S3Endpoint& endpoint, const Op& op) {
    const auto key = endpoint.s3_key(op.key);
    auto look = co_await s3_look(endpoint, key, false);
    if (look.outcome.status != Status::ok) co_return std::move(look.outcome);
    if (op.condition == Condition::etag && look.outcome.stat.etag != op.etag) {
        look.outcome.status = Status::failed;
        look.outcome.error = precondition_failure(op.condition, true);
        co_return std::move(look.outcome);
    }
    co_return co_await delete_one(endpoint, op);
}

http::Task<std::vector<Outcome>> s3_removes(S3Endpoint& endpoint, std::span<const Op* const> ops) {
    auto outcomes = co_await s3_stats(endpoint, ops);
    std::vector<const Op*> together, apart;
    std::vector<Outcome*> of_together, of_apart;
    for (std::size_t i = 0; i < ops.size(); ++i) {
        if (outcomes[i].status != Status::ok) continue;
        outcomes[i].stat = Stat{};
        const bool plain = is_plain(ops[i]->key);
        (plain ? together : apart).push_back(ops[i]);
        (plain ? of_together : of_apart).push_back(&outcomes[i]);
    }
    if (together.size() == 1) {
        apart.push_back(together.front());
        of_apart.push_back(of_together.front());
        together.clear();
    }
    if (!together.empty()) co_await delete_together(endpoint, together, of_together);
    if (!apart.empty()) co_await delete_each(endpoint, apart, of_apart);
    co_return outcomes;
}

}  // namespace kvern
