// SPDX-License-Identifier: Apache-2.0
// GetObject, HeadObject, PutObject, DeleteObject, CopyObject and GetObjectAttributes.
#include <algorithm>
#include <array>
#include <cstring>

#include "base/text.h"
#include "http/range.h"
#include "kvern/limits.h"
#include "server/body.h"
#include "server/conditions.h"
#include "server/object_changes.h"
#include "server/object_headers.h"
#include "server/site.h"
#include "server/window_reads.h"
#include "server/windows.h"
#include "server/xml_writer.h"

namespace kvern::server {

using http::AnswerHead;
using http::refuse;
using http::S3Code;
using http::S3Result;
using http::Task;

namespace {

ConditionHeaders conditions_of(const Request& request) {
    return {request.header("if-match"), request.header("if-none-match"), request.header("if-modified-since"),
            request.header("if-unmodified-since")};
}

// Which bytes a request wants.
struct Wanted {
    std::uint64_t begin = 0, end = 0;
    bool partial = false;
    std::optional<std::size_t> part;  // index
};

S3Result<Wanted> wanted_part(const Request& request, const ObjectRecord& record, std::string_view number) {
    const auto wanted = parse_number(number, limits::upload_parts_max);
    if (!wanted || *wanted == 0) return refuse(S3Code::invalid_argument, "partNumber must be 1 to 10000");
    if (request.header("range")) return refuse(S3Code::invalid_request, "Range and partNumber exclude each other");
    if (record.parts.empty()) {
        if (*wanted != 1) return refuse(S3Code::invalid_part_number, "The requested partnumber is not satisfiable");
        return Wanted{0, record.size_bytes, record.size_bytes > 0, 0};
    }
    if (*wanted > record.parts.size()) {
        return refuse(S3Code::invalid_part_number, "The requested partnumber is not satisfiable");
    }
    Wanted range{0, 0, true, *wanted - 1};
    for (std::size_t i = 0; i < *wanted; ++i) {
        range.begin = range.end;
        range.end += record.parts[i].size_bytes;
    }
    return range;
}

S3Result<Wanted> wanted_bytes(Request& request, const ObjectRecord& record) {
    if (const auto number = request.param("partNumber")) return wanted_part(request, record, *number);
    const auto header = request.header("range");
    if (!header) return Wanted{0, record.size_bytes, false, {}};
    const auto range = http::parse_range(*header, record.size_bytes);
    switch (range.kind) {
        case http::RangeKind::whole:
            return Wanted{0, record.size_bytes, false, {}};
        case http::RangeKind::part:
            return Wanted{range.offset, range.offset + range.length, true, {}};
        case http::RangeKind::unsatisfiable:
            break;
    }
    request.error_range = http::content_range(range, record.size_bytes);
    request.error_size_bytes = record.size_bytes;
    return refuse(S3Code::invalid_range, "The requested range is not satisfiable");
}

AnswerHead object_head(const Request& request, const ObjectHead& head, const Wanted& wanted) {
    const auto& record = head.record;
    AnswerHead answer(wanted.partial ? 206 : 200);
    add_object_headers(answer, request, record);
    answer.add("Accept-Ranges", "bytes");
    if (wanted.partial) {
        answer.add("Content-Range", "bytes " + std::to_string(wanted.begin) + "-" + std::to_string(wanted.end - 1) +
                                        "/" + std::to_string(record.size_bytes));
    }
    if (wanted.part && !record.parts.empty()) answer.add("x-amz-mp-parts-count", std::to_string(record.parts.size()));
    if (request.header("x-amz-checksum-mode").value_or("") == "ENABLED" && record.algorithm) {
        const bool whole = !wanted.partial || (wanted.part && record.parts.size() <= 1);
        const bool of_part = wanted.part && !whole && !record.parts[*wanted.part].checksum.empty();
        if (of_part) {
            answer.add(http::header_name(*record.algorithm), record.parts[*wanted.part].checksum);
            answer.add("x-amz-checksum-type", record.composite ? "COMPOSITE" : "FULL_OBJECT");
        } else if (whole && !record.checksum.empty()) {
            answer.add(http::header_name(*record.algorithm), record.checksum);
            answer.add("x-amz-checksum-type", record.composite ? "COMPOSITE" : "FULL_OBJECT");
        }
    }
    return answer;
}

// Answers 304 and 412, and says whether there is nothing else to say.
Task<S3Result<bool>> answered_by_condition(Request& request, const ObjectRecord& record) {
    switch (judge_read(conditions_of(request), record)) {
        case Verdict::go_on:
            co_return false;
        case Verdict::failed:
            co_return refuse(S3Code::precondition_failed, "At least one of the preconditions did not hold");
        case Verdict::not_modified:
            break;
    }
    AnswerHead answer(304);
    answer.add("ETag", quoted(record.etag));
    (void)co_await request.exchange.answer(std::move(answer));
    co_return true;
}

Done send_object(Request& request, ObjectReader& reader) {
    const auto& record = reader.head().record;
    const auto answered = co_await answered_by_condition(request, record);
    if (!answered) co_return tl::unexpected(answered.error());
    if (*answered) co_return S3Result<>{};
    const auto wanted = wanted_bytes(request, record);
    if (!wanted) {
        co_return tl::unexpected(wanted.error());
    }
    const bool whole = wanted->begin == 0 && wanted->end == record.size_bytes;
    if (whole && reader.head().damaged) co_return tl::unexpected(damage_of(reader.head()));  // it would break off again
    reader.choose(wanted->begin, wanted->end);
    // The first piece is verified before anything is said.
    auto piece = co_await reader.next();
    if (!piece) co_return tl::unexpected(piece.error());
    auto& exchange = request.exchange;
    exchange.begin(object_head(request, reader.head(), *wanted), wanted->end - wanted->begin);
    auto left = wanted->end - wanted->begin;
    for (;;) {
        const auto sent = co_await exchange.send(*piece);
        left -= piece->size();
        if (!sent || left == 0) co_return S3Result<>{};
        piece = co_await reader.next();
        if (!piece || piece->empty()) {
            request.error = piece ? "IncompleteBody" : std::string(to_string(piece.error().code));
            exchange.break_off("the object's bytes can't be read");
            co_return S3Result<>{};
        }
    }
}

// Reads straight into the client's memory, which verifies what landed: the bytes are not looked at here.
// False: they do not fit, or do not get there, and go over HTTP.
Task<S3Result<bool>> send_to_window(Context& context, Request& request, std::string key, bool mark_used) {
    const auto head = co_await read_head(context.place(), key);
    if (!head) co_return tl::unexpected(head.error());
    const auto& record = head->record;
    const auto answered = co_await answered_by_condition(request, record);
    if (!answered) co_return tl::unexpected(answered.error());
    if (*answered) co_return true;
    const auto wanted = wanted_bytes(request, record);
    if (!wanted) co_return tl::unexpected(wanted.error());
    const auto size = wanted->end - wanted->begin;
    if (size > request.window->size_bytes()) co_return false;
    if (head->damaged && size == record.size_bytes) co_return tl::unexpected(damage_of(*head));
    const Version version{key, head->stat.etag, mark_used};
    const auto moved = co_await fill_window(context, *request.window, version, wanted->begin, wanted->end);
    if (!moved) co_return tl::unexpected(moved.error());
    if (*moved == Arrival::none) co_return false;
    if (*moved == Arrival::doubtful) {  // an answer would let the client use that memory again
        request.error = "WindowLost";
        request.exchange.break_off("a transfer into the client's memory did not end well");
        co_return true;
    }
    auto answer = object_head(request, *head, *wanted);
    add_window_reply(answer, answer.status(), size);
    request.window_bytes_out = size;
    (void)co_await request.exchange.answer(std::move(answer));
    co_return true;
}

Done send_head(Context& context, Request& request, std::string key) {
    auto head = co_await read_head(context.place(), key);
    if (!head) co_return tl::unexpected(head.error());
    if (request.has("partNumber")) {
        const auto completed = co_await complete_record(context.place(), key, *head);
        if (!completed) co_return tl::unexpected(completed.error());
    }
    const auto answered = co_await answered_by_condition(request, head->record);
    if (!answered) co_return tl::unexpected(answered.error());
    if (*answered) co_return S3Result<>{};
    const auto wanted = wanted_bytes(request, head->record);
    if (!wanted) co_return tl::unexpected(wanted.error());
    request.exchange.begin(object_head(request, *head, *wanted), wanted->end - wanted->begin);
    (void)co_await request.exchange.send({});
    co_return S3Result<>{};
}

// What is missing is a missing bucket if that is missing.
Task<http::S3Error> explained_miss(Context& context, const Request& request, http::S3Error error) {
    if (error.code == S3Code::no_such_key) {
        const auto bucket = co_await context.site.buckets.find(context.worker.port, request.bucket);
        if (!bucket) co_return bucket.error();
    }
    co_return error;
}

}  // namespace

Done get_object(Context& context, Request& request) {
    const auto allowed = context.allow(request, Right::read, request.bucket, request.key);
    if (!allowed) co_return allowed;
    auto key = object_key(request.bucket, request.key);
    S3Result<> done;
    if (request.method() == "HEAD") {
        done = co_await send_head(context, request, key);
    } else {
        const bool used = request.header("x-kvern-mark-used").value_or("") == "1";
        const auto ask = ask_for_window(context.site, request);
        if (!ask) co_return tl::unexpected(ask.error());
        if (*ask == WindowAsk::granted) {
            const auto sent = co_await send_to_window(context, request, key, used);
            if (sent && *sent) co_return S3Result<>{};
            if (!sent) {
                auto error = co_await explained_miss(context, request, sent.error());
                co_return tl::unexpected(std::move(error));
            }
        }
        if (*ask == WindowAsk::granted || *ask == WindowAsk::declined) decline_window(request);
        auto reader = co_await ObjectReader::open(context.place(), key, used);
        if (reader) {
            done = co_await send_object(request, *reader);
            co_await reader->settle();
        } else {
            done = tl::unexpected(reader.error());
        }
    }
    if (!done) {
        auto error = co_await explained_miss(context, request, done.error());
        co_return tl::unexpected(std::move(error));
    }
    co_return done;
}

// ------------------------------------------------------------------------------------------------------------ writing

namespace {

struct WriteCondition {
    Condition condition = Condition::any;
    std::string etag;  // the store's
};

// If-Match and If-None-Match of a write, in the store's terms: what the store then holds to is atomic.
Task<S3Result<WriteCondition>> write_condition(Context& context, Request& request, const std::string& key) {
    const auto match = request.header("if-match"), none = request.header("if-none-match");
    if (!match && !none) co_return WriteCondition{};
    // Looked at before anything is received: what would be refused is not sent in vain.
    const auto head = co_await look_at(context.place(), key);
    if (!head && head.error().code != S3Code::no_such_key) co_return tl::unexpected(head.error());
    if (match && !head) co_return tl::unexpected(head.error());
    if (!head) co_return WriteCondition{Condition::absent, {}};
    // What is damaged is nothing that a new object must give way to.
    const ConditionHeaders headers{match, head->sound() ? none : std::nullopt, {}, {}};
    if (judge_read(headers, head->record) != Verdict::go_on) {
        co_return refuse(S3Code::precondition_failed, "At least one of the preconditions did not hold");
    }
    co_return WriteCondition{Condition::etag, head->stat.etag};
}

// Lost a race against another writer: what is there now decides, and where it would do, whoever asked may try again.
Task<http::S3Error> after_race(Context& context, Request& request, std::string key, http::S3Error error) {
    const auto head = co_await look_at(context.place(), key);
    if (!head) co_return head.error();
    const ConditionHeaders headers{request.header("if-match"), request.header("if-none-match"), {}, {}};
    if (judge_read(headers, head->record) == Verdict::go_on) {
        error.code = S3Code::conditional_request_conflict;
        error.message = "Another writer changed the object meanwhile";
    }
    co_return error;
}

}  // namespace

namespace {

// Looks once more, after the last byte, whether the bucket is still there: nothing is stored into one that is gone.
class WhileBucketStands final : public Source {
  public:
    WhileBucketStands(Context& context, std::string bucket, Source& inner)
        : context_(context), bucket_(std::move(bucket)), inner_(inner) {}
    Task<S3Result<std::size_t>> read(std::span<std::byte> into) override { return inner_.read(into); }
    Task<S3Result<>> finish(ObjectRecord& record) override {
        const auto finished = co_await inner_.finish(record);
        if (!finished) co_return finished;
        const auto bucket = co_await context_.site.buckets.find(context_.worker.port, bucket_);
        if (!bucket) co_return tl::unexpected(bucket.error());
        co_return S3Result<>{};
    }

  private:
    Context& context_;
    const std::string bucket_;
    Source& inner_;
};

}  // namespace

Task<S3Result<ObjectRecord>> store_object(Context& context, Request& request, ObjectRecord record, Source& source,
                                          std::optional<std::uint64_t> size_bytes) {
    auto& site = context.site;
    auto bucket = co_await site.buckets.find(context.worker.port, request.bucket);
    if (!bucket) co_return tl::unexpected(bucket.error());
    const auto key = object_key(request.bucket, request.key);
    const auto condition = co_await write_condition(context, request, key);
    if (!condition) co_return tl::unexpected(condition.error());
    const auto counted = size_bytes.value_or(0);
    const auto taken = site.usage.take(request.bucket, counted);
    if (!taken) co_return tl::unexpected(taken.error());
    record.written_ns = site.clock.now_ns();
    WhileBucketStands guarded(context, request.bucket, source);
    WriteTarget target{key, size_bytes, condition->condition, condition->etag};
    auto written = co_await write_object(context.place(), std::move(target), std::move(record), guarded);
    if (!written) {
        site.usage.give(request.bucket, counted);
        auto error = written.error();
        if (error.code == S3Code::precondition_failed && condition->condition == Condition::etag) {
            error = co_await after_race(context, request, key, std::move(error));
        }
        co_return tl::unexpected(std::move(error));
    }
    if (!size_bytes) (void)site.usage.take(request.bucket, written->size_bytes);
    site.usage.stored(request.bucket, 1);
    co_return written;
}

Done put_object(Context& context, Request& request) {
    const auto allowed = context.allow(request, Right::write, request.bucket, request.key);
    if (!allowed) co_return allowed;
    auto record = record_from_headers(request);
    if (!record) co_return tl::unexpected(record.error());
    if (const auto taken = take_window(context.site, request); !taken) co_return taken;
    auto body = Body::create(request);
    if (!body) co_return tl::unexpected(body.error());
    const auto size = (*body)->size_bytes();
    const auto written = co_await store_object(context, request, std::move(*record), **body, size);
    if (!written) co_return tl::unexpected(written.error());
    AnswerHead answer(200);
    answer.add("ETag", quoted(written->etag));
    if (request.window) add_window_reply(answer, 200, request.window_bytes_in);
    add_checksum_headers(answer, *written);
    co_return co_await answer_empty(request, std::move(answer));
}

Done delete_object(Context& context, Request& request) {
    const auto allowed = context.allow(request, Right::write, request.bucket, request.key);
    if (!allowed) co_return allowed;
    const auto bucket = co_await context.site.buckets.find(context.worker.port, request.bucket);
    if (!bucket) co_return tl::unexpected(bucket.error());
    const auto removed = co_await remove_object(context, request.bucket, request.key, request.header("if-match"));
    if (!removed) co_return tl::unexpected(removed.error());
    co_return co_await answer_empty(request, AnswerHead(204));
}

Task<S3Result<>> remove_object(Context& context, std::string bucket, std::string name,
                               std::optional<std::string_view> match) {
    Op op;
    op.kind = OpKind::remove;
    op.key = object_key(bucket, name);
    std::uint64_t size = 0;
    if (match || context.site.usage.quota(bucket) > 0) {
        const auto head = co_await look_at(context.place(), op.key);
        if (!head && head.error().code != S3Code::no_such_key) co_return tl::unexpected(head.error());
        if (!head) co_return S3Result<>{};  // it is not there: so it was wanted
        size = head->stat.size_bytes;
        if (match) {
            const ConditionHeaders headers{match, {}, {}, {}};
            if (judge_read(headers, head->record) != Verdict::go_on) {
                co_return refuse(S3Code::precondition_failed, "At least one of the preconditions did not hold");
            }
            op.condition = Condition::etag;
            op.etag = head->stat.etag;
        }
    }
    const auto outcome = co_await context.worker.port.ask(std::move(op));
    if (outcome.status == Status::miss) co_return S3Result<>{};
    if (outcome.status != Status::ok) co_return tl::unexpected(error_of(outcome, name));
    context.site.usage.give(bucket, size);
    context.site.usage.stored(bucket, -1);
    co_return S3Result<>{};
}

Task<std::vector<S3Result<>>> remove_objects(Context& context, std::string bucket, std::vector<std::string> names) {
    const auto ask_each = [&](OpKind kind) {
        std::vector<Op> ops(names.size());
        for (std::size_t i = 0; i < names.size(); ++i) {
            ops[i].kind = kind;
            ops[i].key = object_key(bucket, names[i]);
        }
        return context.worker.port.ask_all(std::move(ops));
    };
    std::vector<Outcome> before;
    if (context.site.usage.quota(bucket) > 0) before = co_await ask_each(OpKind::stat);
    const auto outcomes = co_await ask_each(OpKind::remove);
    std::vector<S3Result<>> removed(names.size());
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (outcomes[i].status == Status::miss) continue;
        if (outcomes[i].status != Status::ok) {
            removed[i] = tl::unexpected(error_of(outcomes[i], names[i]));
            continue;
        }
        if (!before.empty()) context.site.usage.give(bucket, before[i].stat.size_bytes);
        context.site.usage.stored(bucket, -1);
    }
    co_return removed;
}

// ------------------------------------------------------------------------------------------------------------ copying

namespace {

ConditionHeaders copy_conditions(const Request& request) {
    return {request.header("x-amz-copy-source-if-match"), request.header("x-amz-copy-source-if-none-match"),
            request.header("x-amz-copy-source-if-modified-since"),
            request.header("x-amz-copy-source-if-unmodified-since")};
}

}  // namespace

Task<S3Result<ObjectReader>> open_copy_source(Context& context, Request& request) {
    const auto source = parse_copy_source(*request.header("x-amz-copy-source"));
    if (!source) co_return tl::unexpected(source.error());
    const auto allowed = context.allow(request, Right::read, source->bucket, source->key);
    if (!allowed) co_return tl::unexpected(allowed.error());
    const auto bucket = co_await context.site.buckets.find(context.worker.port, source->bucket);
    if (!bucket) co_return tl::unexpected(bucket.error());
    auto reader = co_await ObjectReader::open(context.place(), object_key(source->bucket, source->key), false);
    if (!reader) co_return tl::unexpected(reader.error());
    if (judge_read(copy_conditions(request), reader->head().record) != Verdict::go_on) {
        co_await reader->settle();
        co_return refuse(S3Code::precondition_failed, "At least one of the preconditions did not hold");
    }
    co_return std::move(*reader);
}

Done copy_object(Context& context, Request& request) {
    const auto allowed = context.allow(request, Right::write, request.bucket, request.key);
    if (!allowed) co_return allowed;
    const auto source = parse_copy_source(*request.header("x-amz-copy-source"));
    if (!source) co_return tl::unexpected(source.error());
    const auto directive = request.header("x-amz-metadata-directive").value_or("COPY");
    if (directive != "COPY" && directive != "REPLACE") {
        co_return refuse(S3Code::invalid_argument, "x-amz-metadata-directive must be COPY or REPLACE");
    }
    const bool to_itself = source->bucket == request.bucket && source->key == request.key;
    if (to_itself && directive == "COPY") {
        co_return refuse(
            S3Code::invalid_request,
            "This copy request is illegal because it is trying to copy an object to itself without changing "
            "the object's metadata");
    }
    auto reader = co_await open_copy_source(context, request);
    if (!reader) co_return tl::unexpected(reader.error());
    const auto& from = reader->head().record;
    auto record = directive == "REPLACE" ? record_from_headers(request) : S3Result<ObjectRecord>(copied_record(from));
    S3Result<ObjectRecord> written = tl::unexpected(http::S3Error{});
    if (record) {
        auto sum = make_sum(from.algorithm.value_or(http::ChecksumAlgorithm::crc64nvme));
        if (sum) {
            CopiedBytes bytes(*reader, std::move(*sum), from.size_bytes);
            written = co_await store_object(context, request, std::move(*record), bytes, from.size_bytes);
        } else {
            written = tl::unexpected(sum.error());
        }
    } else {
        written = tl::unexpected(record.error());
    }
    co_await reader->settle();
    if (!written) co_return tl::unexpected(written.error());
    XmlWriter xml("CopyObjectResult");
    xml.text("LastModified", iso_time(written->written_ns)).text("ETag", quoted(written->etag));
    add_checksum_elements(xml, *written);
    co_return co_await answer_xml(request, xml.finish());
}

CopiedBytes::CopiedBytes(ObjectReader& reader, http::Checksum sum, std::uint64_t size_bytes)
    : reader_(reader), sum_(std::move(sum)), block_bytes_(block_bytes_for(size_bytes)), blocks_(block_bytes_) {
    // As short objects that are uploaded: their ETag is an MD5.
    if (size_bytes > limits::object_md5_bytes_max) return;
    if (auto md5 = http::Checksum::make(http::ChecksumAlgorithm::md5)) md5_ = std::move(*md5);
}

Task<S3Result<std::size_t>> CopiedBytes::read(std::span<std::byte> into) {
    std::size_t done = 0;
    while (done < into.size()) {
        if (piece_.empty()) {
            const auto piece = co_await reader_.next();
            if (!piece) co_return tl::unexpected(piece.error());
            if (piece->empty()) break;
            piece_ = *piece;
        }
        const auto part = piece_.first(std::min(piece_.size(), into.size() - done));
        std::memcpy(into.data() + done, part.data(), part.size());
        blocks_.update(part);
        sum_.update(part);
        if (md5_) md5_->update(part);
        piece_ = piece_.subspan(part.size());
        done += part.size();
    }
    received_ += done;
    co_return done;
}

Task<S3Result<>> CopiedBytes::finish(ObjectRecord& record) {
    const auto sum = sum_.finish();
    record.size_bytes = received_;
    record.algorithm = sum.algorithm;
    record.checksum = sum.text();
    record.block_bytes = block_bytes_;
    record.block_sums = blocks_.finish();
    record.etag = md5_ ? to_hex(md5_->finish().raw()) : fast_etag(sum, record) + "-1";
    co_return S3Result<>{};
}

// --------------------------------------------------------------------------------------------------------- attributes

Done get_object_attributes(Context& context, Request& request) {
    const auto allowed = context.allow(request, Right::read, request.bucket, request.key);
    if (!allowed) co_return allowed;
    const auto key = object_key(request.bucket, request.key);
    auto head = co_await read_head(context.place(), key);
    if (!head) {
        auto error = co_await explained_miss(context, request, head.error());
        co_return tl::unexpected(std::move(error));
    }
    const auto completed = co_await complete_record(context.place(), key, *head);
    if (!completed) co_return completed;
    const auto wanted = request.header("x-amz-object-attributes").value_or("");
    if (wanted.empty()) co_return refuse(S3Code::invalid_argument, "x-amz-object-attributes is missing");
    const auto& record = head->record;
    XmlWriter xml("GetObjectAttributesResponse");
    if (http::has_token(wanted, "ETag")) xml.text("ETag", record.etag);
    if (http::has_token(wanted, "Checksum") && record.algorithm) {
        xml.open("Checksum");
        add_checksum_elements(xml, record);
        xml.close();
    }
    if (http::has_token(wanted, "ObjectParts") && !record.parts.empty()) {
        const auto after =
            parse_number(request.header("x-amz-part-number-marker").value_or("0"), limits::upload_parts_max);
        const auto most = parse_number(request.header("x-amz-max-parts").value_or("1000"), ~std::uint64_t{0});
        if (!after || !most) co_return refuse(S3Code::invalid_argument, "x-amz-max-parts or its marker is no number");
        const auto begin = std::min<std::size_t>(*after, record.parts.size());
        const auto end = std::min<std::size_t>(record.parts.size(), begin + std::min<std::uint64_t>(*most, 1000));
        xml.open("ObjectParts").number("PartsCount", record.parts.size()).number("PartNumberMarker", begin);
        xml.number("NextPartNumberMarker", end).number("MaxParts", std::min<std::uint64_t>(*most, 1000));
        xml.flag("IsTruncated", end < record.parts.size());
        for (auto i = begin; i < end; ++i) {
            xml.open("Part").number("PartNumber", i + 1).number("Size", record.parts[i].size_bytes);
            if (record.algorithm && !record.parts[i].checksum.empty()) {
                xml.text(http::element_name(*record.algorithm), record.parts[i].checksum);
            }
            xml.close();
        }
        xml.close();
    }
    if (http::has_token(wanted, "StorageClass")) xml.text("StorageClass", "STANDARD");
    if (http::has_token(wanted, "ObjectSize")) xml.number("ObjectSize", record.size_bytes);
    AnswerHead answer(200);
    answer.add("Last-Modified", http_time(record.written_ns));
    co_return co_await answer_xml(request, xml.finish(), std::move(answer));
}

}  // namespace kvern::server
