// SPDX-License-Identifier: Apache-2.0
// Multipart uploads. Each part is an object of its own below the upload's folder; completing copies them, verified,
// into one (docs/format.md, Objects of the S3 server).
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/text.h"
#include "http/percent.h"
#include "kvern/limits.h"
#include "server/body.h"
#include "server/key_map.h"
#include "server/object_changes.h"
#include "server/object_headers.h"
#include "server/site.h"
#include "server/windows.h"
#include "server/xml.h"
#include "server/xml_writer.h"

namespace kvern::server {

using http::AnswerHead;
using http::ChecksumAlgorithm;
using http::refuse;
using http::S3Code;
using http::S3Result;
using http::Task;

namespace {

constexpr std::string_view info_name = "info";

std::string part_name(std::uint64_t number) {
    return fmt::format("p{:05}", number);
}

struct UploadPlace {
    std::string folder;
    ObjectRecord info;
};

// The upload that a request names.
Task<S3Result<UploadPlace>> find_upload(Context& context, const Request& request) {
    const auto id = request.param("uploadId").value_or("");
    const auto missing = refuse(S3Code::no_such_upload, "The specified multipart upload does not exist");
    if (!from_hex(id) || id.empty()) co_return missing;
    const auto bucket = co_await context.site.buckets.find(context.worker.port, request.bucket);
    if (!bucket) co_return tl::unexpected(bucket.error());
    auto folder = upload_folder(request.bucket, request.key, id);
    const auto head = co_await read_head(context.place(), folder + std::string(info_name));
    if (!head && head.error().code == S3Code::no_such_key) co_return missing;
    if (!head) co_return tl::unexpected(head.error());
    co_return UploadPlace{std::move(folder), head->record};
}

S3Result<> read_checksum_choice(const Request& request, ObjectRecord& record) {
    const auto named = request.header("x-amz-checksum-algorithm");
    const auto type = request.header("x-amz-checksum-type");
    if (!named) {
        if (type) return refuse(S3Code::invalid_request, "x-amz-checksum-type needs x-amz-checksum-algorithm");
        return {};
    }
    record.algorithm = http::parse_checksum_algorithm(*named);
    if (!record.algorithm) return refuse(S3Code::invalid_request, "Checksum algorithm provided is unsupported");
    record.composite = *record.algorithm != ChecksumAlgorithm::crc64nvme;
    if (!type) return {};
    if (*type != "COMPOSITE" && *type != "FULL_OBJECT") {
        return refuse(S3Code::invalid_request, "x-amz-checksum-type must be COMPOSITE or FULL_OBJECT");
    }
    record.composite = *type == "COMPOSITE";
    const bool possible =
        record.composite ? *record.algorithm != ChecksumAlgorithm::crc64nvme : http::is_crc(*record.algorithm);
    if (!possible) {
        return refuse(S3Code::invalid_request, "The " + std::string(*type) + " checksum type cannot be used with the " +
                                                   std::string(http::to_string(*record.algorithm)) + " algorithm");
    }
    return {};
}

}  // namespace

Done create_upload(Context& context, Request& request) {
    const auto allowed = context.allow(request, Right::write, request.bucket, request.key);
    if (!allowed) co_return allowed;
    const auto bucket = co_await context.site.buckets.find(context.worker.port, request.bucket);
    if (!bucket) co_return tl::unexpected(bucket.error());
    auto record = record_from_headers(request);
    if (!record) co_return tl::unexpected(record.error());
    const auto chosen = read_checksum_choice(request, *record);
    if (!chosen) co_return chosen;
    record->block_bytes = block_bytes_for(0);
    record->written_ns = context.site.clock.now_ns();
    const auto id = new_id(16);
    Op op;
    op.kind = OpKind::put;
    op.key = upload_folder(request.bucket, request.key, id) + std::string(info_name);
    op.metadata = encode(*record);
    const auto outcome = co_await context.worker.port.ask(std::move(op));
    if (outcome.status != Status::ok) co_return tl::unexpected(error_of(outcome, "the upload"));
    XmlWriter xml("InitiateMultipartUploadResult");
    xml.text("Bucket", request.bucket).text("Key", request.key).text("UploadId", id);
    AnswerHead answer(200);
    if (record->algorithm) {
        answer.add("x-amz-checksum-algorithm", http::to_string(*record->algorithm));
        answer.add("x-amz-checksum-type", record->composite ? "COMPOSITE" : "FULL_OBJECT");
    }
    co_return co_await answer_xml(request, xml.finish(), std::move(answer));
}

// -------------------------------------------------------------------------------------------------------------- parts

namespace {

// "bytes=a-b", both given and within the source.
S3Result<std::pair<std::uint64_t, std::uint64_t>> copy_range(const Request& request, std::uint64_t size) {
    const auto header = request.header("x-amz-copy-source-range");
    if (!header) return std::pair(std::uint64_t{0}, size);
    auto text = *header;
    const auto wrong =
        refuse(S3Code::invalid_argument,
               "The x-amz-copy-source-range value must be of the form bytes=first-last where first and last "
               "are the zero-based offsets of the first and last bytes to copy");
    if (!text.starts_with("bytes=")) return wrong;
    text.remove_prefix(6);
    const auto dash = std::min(text.find('-'), text.size());
    const auto first = parse_number(text.substr(0, dash), limits::object_bytes_max);
    const auto last = parse_number(text.substr(std::min(dash + 1, text.size())), limits::object_bytes_max);
    if (!first || !last || *first > *last) return wrong;
    if (*last >= size) return refuse(S3Code::invalid_range, "The requested range is beyond the source object's end");
    return std::pair(*first, *last + 1);
}

Task<S3Result<ObjectRecord>> write_part(Context& context, const Request& request, std::string key, Source& source,
                                        std::optional<std::uint64_t> size_bytes) {
    const auto counted = size_bytes.value_or(0);
    const auto taken = context.site.usage.take(request.bucket, counted);
    if (!taken) co_return tl::unexpected(taken.error());
    ObjectRecord record;
    record.written_ns = context.site.clock.now_ns();
    WriteTarget target{std::move(key), size_bytes, Condition::any, {}};
    auto written = co_await write_object(context.place(), std::move(target), std::move(record), source);
    if (!written) context.site.usage.give(request.bucket, counted);
    co_return written;
}

Done copy_part(Context& context, Request& request, std::string key, ChecksumAlgorithm algorithm) {
    auto reader = co_await open_copy_source(context, request);
    if (!reader) co_return tl::unexpected(reader.error());
    const auto range = copy_range(request, reader->head().record.size_bytes);
    S3Result<ObjectRecord> written = tl::unexpected(http::S3Error{});
    auto sum = make_sum(algorithm);
    if (range && sum) {
        reader->choose(range->first, range->second);
        CopiedBytes bytes(*reader, std::move(*sum), range->second - range->first);
        written = co_await write_part(context, request, std::move(key), bytes, range->second - range->first);
    } else {
        written = tl::unexpected(range ? sum.error() : range.error());
    }
    co_await reader->settle();
    if (!written) co_return tl::unexpected(written.error());
    XmlWriter xml("CopyPartResult");
    xml.text("LastModified", iso_time(written->written_ns)).text("ETag", quoted(written->etag));
    xml.text(http::element_name(*written->algorithm), written->checksum);
    co_return co_await answer_xml(request, xml.finish());
}

}  // namespace

Done upload_part(Context& context, Request& request) {
    const auto allowed = context.allow(request, Right::write, request.bucket, request.key);
    if (!allowed) co_return allowed;
    const auto number = parse_number(request.param("partNumber").value_or(""), limits::upload_parts_max);
    if (!number || *number == 0) {
        co_return refuse(S3Code::invalid_argument, "Part number must be an integer between 1 and 10000, inclusive");
    }
    const auto upload = co_await find_upload(context, request);
    if (!upload) co_return tl::unexpected(upload.error());
    auto key = upload->folder + part_name(*number);
    const auto algorithm = upload->info.algorithm.value_or(ChecksumAlgorithm::crc64nvme);
    if (request.header("x-amz-copy-source")) co_return co_await copy_part(context, request, std::move(key), algorithm);
    if (const auto taken = take_window(context.site, request); !taken) co_return taken;
    auto body = Body::create(request, Body::Of::part, algorithm);
    if (!body) co_return tl::unexpected(body.error());
    if (upload->info.algorithm && (*body)->algorithm() != *upload->info.algorithm) {
        co_return refuse(S3Code::invalid_request,
                         "Checksum Type mismatch occurred, expected checksum Type: " +
                             std::string(http::to_string(*upload->info.algorithm)) +
                             ", actual checksum Type: " + std::string(http::to_string((*body)->algorithm())));
    }
    const auto size = (*body)->size_bytes();
    const auto written = co_await write_part(context, request, std::move(key), **body, size);
    if (!written) co_return tl::unexpected(written.error());
    AnswerHead answer(200);
    answer.add("ETag", quoted(written->etag));
    if (written->algorithm) answer.add(http::header_name(*written->algorithm), written->checksum);
    if (request.window) add_window_reply(answer, 200, request.window_bytes_in);
    co_return co_await answer_empty(request, std::move(answer));
}

Done abort_upload(Context& context, Request& request) {
    const auto allowed = context.allow(request, Right::write, request.bucket, request.key);
    if (!allowed) co_return allowed;
    const auto upload = co_await find_upload(context, request);
    if (!upload) co_return tl::unexpected(upload.error());
    const auto removed = co_await remove_all(context.worker.port, upload->folder);
    if (!removed) co_return removed;
    co_return co_await answer_empty(request, AnswerHead(204));
}

// --------------------------------------------------------------------------------------------------------- completing

namespace {

struct Part {
    std::uint64_t number = 0;
    std::string key;
    ObjectHead head;
};

// The bytes of all parts, one after the other.
class JoinedParts final : public Source {
  public:
    JoinedParts(Context& context, const std::vector<Part>& parts, ObjectRecord info, std::uint64_t size_bytes,
                http::Checksum sum)
        : context_(context),
          parts_(parts),
          info_(std::move(info)),
          sum_(std::move(sum)),
          block_bytes_(block_bytes_for(size_bytes)),
          blocks_(block_bytes_) {}

    Task<S3Result<std::size_t>> read(std::span<std::byte> into) override {
        std::size_t done = 0;
        while (done < into.size()) {
            if (piece_.empty()) {
                const auto more = co_await next_piece();
                if (!more) co_return tl::unexpected(more.error());
                if (!*more) break;
                continue;
            }
            const auto size = std::min(piece_.size(), into.size() - done);
            std::memcpy(into.data() + done, piece_.data(), size);
            blocks_.update(piece_.first(size));
            sum_.update(piece_.first(size));
            piece_ = piece_.subspan(size);
            done += size;
        }
        received_ += done;
        co_return done;
    }

    Task<S3Result<>> finish(ObjectRecord& record) override {
        const auto whole = sum_.finish();
        record.size_bytes = received_;
        record.block_bytes = block_bytes_;
        record.block_sums = blocks_.finish();
        std::string etags;
        std::vector<http::ChecksumValue> sums;
        for (const auto& part : parts_) {
            const auto& of = part.head.record;
            // An upload that named no algorithm takes parts with any: those of another one say nothing of the whole.
            const auto algorithm = info_.algorithm.value_or(ChecksumAlgorithm::crc64nvme);
            const bool fits = of.algorithm == algorithm;
            record.parts.push_back({of.size_bytes, fits ? of.checksum : std::string()});
            etags += from_hex(of.etag).value_or(of.etag);
            const auto value = http::parse_checksum(algorithm, of.checksum);
            if (fits && value) sums.push_back(*value);
        }
        auto md5 = http::Checksum::make(ChecksumAlgorithm::md5);
        if (!md5) co_return refuse(S3Code::not_implemented, md5.error().message);
        md5->update(std::as_bytes(std::span(etags)));
        record.etag = to_hex(md5->finish().raw()) + "-" + std::to_string(parts_.size());
        record.algorithm = info_.algorithm.value_or(ChecksumAlgorithm::crc64nvme);
        record.composite = info_.composite;
        record.checksum = whole.text();
        if (info_.composite) {
            const auto value = http::composite(*record.algorithm, sums);
            if (!value || sums.size() != parts_.size()) {
                co_return refuse(S3Code::invalid_part, "A part has no checksum of the upload's algorithm");
            }
            record.checksum = http::composite_text(*value, parts_.size());
        }
        co_return S3Result<>{};
    }

    Task<void> settle() {
        if (reader_) co_await reader_->settle();
        reader_.reset();
    }

  private:
    // True: a piece is there, or another part was begun. False: all was read.
    Task<S3Result<bool>> next_piece() {
        if (!reader_) {
            if (next_part_ == parts_.size()) co_return false;
            const auto& part = parts_[next_part_++];
            auto opened = co_await ObjectReader::open(context_.place(), part.key, false);
            if (!opened) co_return tl::unexpected(opened.error());
            if (opened->head().stat.etag != part.head.stat.etag) {
                co_await opened->settle();
                co_return refuse(S3Code::invalid_part, "A part was replaced while the upload was completed");
            }
            reader_.emplace(std::move(*opened));
        }
        const auto piece = co_await reader_->next();
        if (!piece) co_return tl::unexpected(piece.error());
        piece_ = *piece;
        if (piece_.empty()) co_await settle();
        co_return true;
    }

    Context& context_;
    const std::vector<Part>& parts_;
    const ObjectRecord info_;
    http::Checksum sum_;
    const std::uint32_t block_bytes_;
    BlockSummer blocks_;
    std::optional<ObjectReader> reader_;
    std::size_t next_part_ = 0;
    std::span<const std::byte> piece_;
    std::uint64_t received_ = 0;
};

S3Result<> check_part(const CompletedPart& named, const ObjectHead& head, bool last) {
    const auto& record = head.record;
    if (record.etag != named.etag) {
        return refuse(S3Code::invalid_part, "Part " + std::to_string(named.number) + ": its ETag is another one");
    }
    for (const auto& checksum : named.checksums) {
        if (record.algorithm == checksum.algorithm && record.checksum == checksum.text()) continue;
        return refuse(S3Code::invalid_part, "Part " + std::to_string(named.number) + ": its checksum is another one");
    }
    if (!last && record.size_bytes < limits::upload_part_bytes_min) {
        return refuse(S3Code::entity_too_small, "Your proposed upload is smaller than the minimum allowed size");
    }
    return {};
}

Task<S3Result<std::vector<Part>>> find_parts(Context& context, std::string folder, std::vector<CompletedPart> named) {
    std::vector<Op> ops;
    std::vector<Part> parts;
    for (const auto& one : named) {
        parts.push_back({one.number, folder + part_name(one.number), {}});
        Op op;
        op.kind = OpKind::stat;
        op.key = parts.back().key;
        op.with_metadata = true;
        ops.push_back(std::move(op));
    }
    auto outcomes = co_await context.worker.port.ask_all(std::move(ops));
    for (std::size_t i = 0; i < parts.size(); ++i) {
        if (outcomes[i].status == Status::miss) {
            co_return refuse(S3Code::invalid_part, "One or more of the specified parts could not be found");
        }
        if (outcomes[i].status != Status::ok) co_return tl::unexpected(error_of(outcomes[i], "a part"));
        auto record = decode_record(outcomes[i].stat.metadata);
        if (!record) co_return refuse(S3Code::internal_error, "A part is damaged: " + record.error().message);
        parts[i].head = {std::move(*record), std::move(outcomes[i].stat)};
        const auto checked = check_part(named[i], parts[i].head, i + 1 == parts.size());
        if (!checked) co_return tl::unexpected(checked.error());
    }
    co_return parts;
}

Done answer_completed(Request& request, const ObjectRecord& record) {
    XmlWriter xml("CompleteMultipartUploadResult");
    const auto host = std::string(request.header("host").value_or(""));
    const auto scheme = request.exchange.under_tls() ? "https://" : "http://";
    xml.text("Location",
             scheme + host + "/" + request.bucket + "/" + http::percent_encode(request.key, http::Slash::keep));
    xml.text("Bucket", request.bucket).text("Key", request.key).text("ETag", quoted(record.etag));
    add_checksum_elements(xml, record);
    co_return co_await answer_xml(request, xml.finish());
}

// The upload is gone: was it completed before, by a request whose answer got lost?
Task<S3Result<ObjectRecord>> completed_before(Context& context, const Request& request, http::S3Error otherwise) {
    const auto head = co_await read_head(context.place(), object_key(request.bucket, request.key));
    if (head && head->record.upload == request.param("uploadId").value_or("")) co_return head->record;
    co_return tl::unexpected(std::move(otherwise));
}

// Whole-object promises of the completing request.
S3Result<> check_completion(const Request& request, const ObjectRecord& record) {
    if (const auto size = request.header("x-amz-mp-object-size")) {
        if (parse_number(*size, limits::object_bytes_max) != record.size_bytes) {
            return refuse(S3Code::invalid_request, "x-amz-mp-object-size is not the sum of the parts' sizes");
        }
    }
    if (!record.algorithm) return {};
    const auto promised = request.header(http::header_name(*record.algorithm));
    if (promised && *promised != record.checksum) {
        // The number of parts may be left out of a composite.
        const auto plain = record.checksum.substr(0, record.checksum.rfind('-'));
        if (!record.composite || *promised != plain) {
            return refuse(S3Code::bad_digest, "The " + std::string(http::to_string(*record.algorithm)) +
                                                  " you specified did not match the calculated checksum");
        }
    }
    return {};
}

// A source that also holds to what the completing request says of the whole.
class CheckedJoin final : public Source {
  public:
    CheckedJoin(JoinedParts& joined, const Request& request) : joined_(joined), request_(request) {}
    Task<S3Result<std::size_t>> read(std::span<std::byte> into) override { return joined_.read(into); }
    Task<S3Result<>> finish(ObjectRecord& record) override {
        const auto finished = co_await joined_.finish(record);
        if (!finished) co_return finished;
        co_return check_completion(request_, record);
    }

  private:
    JoinedParts& joined_;
    const Request& request_;
};

}  // namespace

Done complete_upload(Context& context, Request& request) {
    const auto allowed = context.allow(request, Right::write, request.bucket, request.key);
    if (!allowed) co_return allowed;
    auto body = Body::create(request, Body::Of::completion);
    if (!body) co_return tl::unexpected(body.error());
    const auto text = co_await (*body)->read_text(limits::xml_complete_bytes_max);
    if (!text) co_return tl::unexpected(text.error());
    const auto upload = co_await find_upload(context, request);
    if (!upload) {
        if (upload.error().code != S3Code::no_such_upload) co_return tl::unexpected(upload.error());
        const auto before = co_await completed_before(context, request, upload.error());
        if (!before) co_return tl::unexpected(before.error());
        co_return co_await answer_completed(request, *before);
    }
    const auto named = parse_complete_upload(*text);
    if (!named) co_return tl::unexpected(named.error());
    const auto parts = co_await find_parts(context, upload->folder, *named);
    if (!parts) co_return tl::unexpected(parts.error());
    std::uint64_t size = 0;
    for (const auto& part : *parts) size += part.head.record.size_bytes;
    if (size > limits::object_bytes_max) co_return refuse(S3Code::entity_too_large, "The parts together are too large");
    // A composite is made of the parts' sums; of the whole then only what costs least is taken, and not kept.
    auto sum = make_sum(upload->info.composite ? ChecksumAlgorithm::crc32c
                                               : upload->info.algorithm.value_or(ChecksumAlgorithm::crc64nvme));
    if (!sum) co_return tl::unexpected(sum.error());
    JoinedParts joined(context, *parts, upload->info, size, std::move(*sum));
    CheckedJoin checked(joined, request);
    auto record = copied_record(upload->info);
    record.upload = request.param("uploadId").value_or("");
    const auto written = co_await store_object(context, request, std::move(record), checked, size);
    co_await joined.settle();
    if (!written) co_return tl::unexpected(written.error());
    // What is left of the upload is only space: the object stands.
    (void)co_await remove_all(context.worker.port, upload->folder);
    std::uint64_t freed = 0;
    for (const auto& part : *parts) freed += part.head.stat.size_bytes;
    context.site.usage.give(request.bucket, freed);
    co_return co_await answer_completed(request, *written);
}

// ------------------------------------------------------------------------------------------------------------- lists

Done list_parts(Context& context, Request& request) {
    const auto allowed = context.allow(request, Right::read, request.bucket, request.key);
    if (!allowed) co_return allowed;
    const auto upload = co_await find_upload(context, request);
    if (!upload) co_return tl::unexpected(upload.error());
    const auto marker = parse_number(request.param("part-number-marker").value_or("0"), limits::upload_parts_max);
    const auto most = parse_number(request.param("max-parts").value_or("1000"), ~std::uint64_t{0});
    if (!marker || !most) co_return refuse(S3Code::invalid_argument, "max-parts or part-number-marker is no number");
    const auto page = std::min<std::uint64_t>(*most, limits::list_entries_max);
    Op list;
    list.kind = OpKind::list;
    list.key = upload->folder + "p";
    list.after = upload->folder + part_name(*marker);
    list.limit = std::max<std::uint64_t>(page, 1);
    const auto listed = co_await context.worker.port.ask(std::move(list));
    if (listed.status != Status::ok) co_return tl::unexpected(error_of(listed, "the list of parts"));
    std::vector<Op> ops;
    for (const auto& entry : listed.entries) {
        Op op;
        op.kind = OpKind::stat;
        op.key = entry.key;
        op.with_metadata = true;
        if (page > 0) ops.push_back(std::move(op));
    }
    const auto outcomes = co_await context.worker.port.ask_all(std::move(ops));
    const auto number_of = [](std::string_view key) { return std::stoull(std::string(key.substr(key.size() - 5))); };
    XmlWriter xml("ListPartsResult");
    xml.text("Bucket", request.bucket).text("Key", request.key).text("UploadId", *request.param("uploadId"));
    add_owner(xml, "Initiator");
    add_owner(xml);
    xml.text("StorageClass", "STANDARD").number("PartNumberMarker", *marker);
    xml.number("NextPartNumberMarker", listed.entries.empty() ? *marker : number_of(listed.entries.back().key));
    xml.number("MaxParts", page).flag("IsTruncated", listed.more);
    if (upload->info.algorithm) {
        xml.text("ChecksumAlgorithm", http::to_string(*upload->info.algorithm));
        xml.text("ChecksumType", upload->info.composite ? "COMPOSITE" : "FULL_OBJECT");
    }
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
        const auto record = decode_record(outcomes[i].stat.metadata);
        if (outcomes[i].status != Status::ok || !record) continue;
        xml.open("Part").number("PartNumber", number_of(listed.entries[i].key));
        xml.text("LastModified", iso_time(record->written_ns)).text("ETag", quoted(record->etag));
        xml.number("Size", record->size_bytes);
        if (record->algorithm) xml.text(http::element_name(*record->algorithm), record->checksum);
        xml.close();
    }
    co_return co_await answer_xml(request, xml.finish());
}

namespace {

struct OpenUpload {
    std::string key, id;
    std::int64_t mtime_ns = 0;
};

// From "<mapped key>/<id>/info", below the prefix of uploads.
std::optional<OpenUpload> open_upload(std::string_view below, std::int64_t mtime_ns) {
    const auto name_at = below.rfind('/');
    if (name_at == std::string_view::npos || below.substr(name_at + 1) != info_name) return std::nullopt;
    const auto id_at = below.rfind('/', name_at - 1);
    if (id_at == std::string_view::npos) return std::nullopt;
    auto key = unmap_key(below.substr(0, id_at));
    if (!key) return std::nullopt;
    return OpenUpload{std::move(*key), std::string(below.substr(id_at + 1, name_at - id_at - 1)), mtime_ns};
}

}  // namespace

Done list_uploads(Context& context, Request& request) {
    const auto prefix = std::string(request.param("prefix").value_or(""));
    const auto allowed = context.allow(request, Right::read, request.bucket, prefix);
    if (!allowed) co_return allowed;
    const auto bucket = co_await context.site.buckets.find(context.worker.port, request.bucket);
    if (!bucket) co_return tl::unexpected(bucket.error());
    if (!request.param("delimiter").value_or("").empty()) {
        co_return refuse(S3Code::not_implemented, "delimiter in ListMultipartUploads is not implemented");
    }
    const auto most = parse_number(request.param("max-uploads").value_or("1000"), ~std::uint64_t{0});
    if (!most) co_return refuse(S3Code::invalid_argument, "max-uploads is no number");
    const auto page = std::min<std::uint64_t>(*most, limits::list_entries_max);
    const bool url = request.param("encoding-type").value_or("") == "url";
    const auto key_marker = std::string(request.param("key-marker").value_or(""));
    const auto id_marker = std::string(request.param("upload-id-marker").value_or(""));
    const auto root = uploads_prefix(request.bucket);
    Op list;
    list.kind = OpKind::list;
    list.key = root + map_prefix(prefix);
    // Behind all uploads of the marked key, or behind the marked one of them.
    if (!key_marker.empty())
        list.after = root + map_key(key_marker) + "/" + (id_marker.empty() ? "\xff" : id_marker + "/\xff");
    std::vector<OpenUpload> uploads;
    bool truncated = false;
    for (bool more = page > 0; more && !truncated;) {
        auto next = list;
        const auto outcome = co_await context.worker.port.ask(std::move(next));
        if (outcome.status != Status::ok) co_return tl::unexpected(error_of(outcome, "the list of uploads"));
        more = outcome.more;
        for (const auto& entry : outcome.entries) {
            list.after = entry.key;
            auto upload = open_upload(std::string_view(entry.key).substr(root.size()), entry.mtime_ns);
            if (!upload) continue;
            if (uploads.size() == page) {
                truncated = true;
                break;
            }
            uploads.push_back(std::move(*upload));
        }
    }
    const auto show = [&](std::string_view text) {
        return url ? http::percent_encode(text, http::Slash::keep) : std::string(text);
    };
    XmlWriter xml("ListMultipartUploadsResult");
    xml.text("Bucket", request.bucket).text("KeyMarker", show(key_marker)).text("UploadIdMarker", id_marker);
    if (truncated) xml.text("NextKeyMarker", show(uploads.back().key)).text("NextUploadIdMarker", uploads.back().id);
    if (!prefix.empty()) xml.text("Prefix", show(prefix));
    if (url) xml.text("EncodingType", "url");
    xml.number("MaxUploads", page).flag("IsTruncated", truncated);
    for (const auto& upload : uploads) {
        xml.open("Upload").text("Key", show(upload.key)).text("UploadId", upload.id);
        add_owner(xml, "Initiator");
        add_owner(xml);
        xml.text("StorageClass", "STANDARD").text("Initiated", iso_time(upload.mtime_ns)).close();
    }
    co_return co_await answer_xml(request, xml.finish());
}

}  // namespace kvern::server
