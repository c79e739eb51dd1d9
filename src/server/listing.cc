// SPDX-License-Identifier: Apache-2.0
// ListObjects, ListObjectsV2, DeleteObjects, and kvern-exists: what answers for many keys at once.
#include <algorithm>
#include <set>

#include "base/text.h"
#include "http/percent.h"
#include "kvern/limits.h"
#include "server/body.h"
#include "server/key_map.h"
#include "server/object_changes.h"
#include "server/object_headers.h"
#include "server/site.h"
#include "server/xml.h"
#include "server/xml_writer.h"

namespace kvern::server {

using http::refuse;
using http::S3Code;
using http::S3Result;
using http::Task;

namespace {

struct Asked {
    std::string prefix, delimiter, after;
    std::uint64_t max_keys = limits::list_entries_max;
    bool url = false;
};

struct Found {
    struct Object {
        std::string key, stored;
        ObjectHead head;
    };
    std::vector<Object> objects;
    std::vector<std::string> common;
    bool truncated = false;
    std::string last;  // the last key or common prefix
};

// The objects of a page of the store's list, with their records; what vanished meanwhile is left out.
Task<S3Result<std::vector<Found::Object>>> heads_of(Context& context, std::vector<Found::Object> objects) {
    std::vector<Op> ops;
    for (const auto& object : objects) {
        Op op;
        op.kind = OpKind::stat;
        op.key = object.stored;
        op.with_metadata = true;
        ops.push_back(std::move(op));
    }
    auto outcomes = co_await context.worker.port.ask_all(std::move(ops));
    std::vector<Found::Object> present;
    for (std::size_t i = 0; i < objects.size(); ++i) {
        if (outcomes[i].status == Status::miss) continue;
        if (outcomes[i].status != Status::ok) co_return tl::unexpected(error_of(outcomes[i], objects[i].key));
        auto record = decode_record(outcomes[i].stat.metadata);
        if (!record) continue;  // not an object of ours: a reader is told so, a list need not fail for it
        objects[i].head = {std::move(*record), std::move(outcomes[i].stat)};
        present.push_back(std::move(objects[i]));
    }
    co_return present;
}

// The common prefix that a key falls under, or nothing.
std::optional<std::string> common_of(const Asked& asked, const std::string& key) {
    if (asked.delimiter.empty()) return std::nullopt;
    const auto at = key.find(asked.delimiter, asked.prefix.size());
    if (at == std::string::npos) return std::nullopt;
    return key.substr(0, at + asked.delimiter.size());
}

Task<S3Result<Found>> find_objects(Context& context, std::string bucket, Asked asked) {
    Found found;
    if (asked.max_keys == 0) co_return found;
    const auto root = objects_prefix(bucket);
    Op list;
    list.kind = OpKind::list;
    list.key = root + map_prefix(asked.prefix);
    if (!asked.after.empty()) {
        // A list that ended with a common prefix goes on behind all that it stands for.
        const auto common = asked.after.size() > asked.prefix.size() ? common_of(asked, asked.after) : std::nullopt;
        list.after = root + (common && *common == asked.after ? after_prefix(asked.after) : map_key(asked.after));
    }
    for (;;) {
        auto next = list;
        next.limit = std::min<std::uint64_t>(limits::list_entries_max,
                                             asked.max_keys - found.objects.size() - found.common.size() + 1);
        const auto outcome = co_await context.worker.port.ask(std::move(next));
        if (outcome.status != Status::ok) co_return tl::unexpected(error_of(outcome, "the list of objects"));
        bool skipped = false;
        for (const auto& entry : outcome.entries) {
            const auto key = unmap_key(std::string_view(entry.key).substr(root.size()));
            if (!key) continue;
            if (found.objects.size() + found.common.size() == asked.max_keys) {
                found.truncated = true;
                co_return found;
            }
            list.after = entry.key;
            if (auto common = common_of(asked, *key)) {
                found.last = *common;
                list.after = root + after_prefix(*common);
                found.common.push_back(std::move(*common));
                skipped = true;
                break;
            }
            found.last = *key;
            found.objects.push_back({*key, entry.key, {}});
        }
        if (!skipped && !outcome.more) co_return found;
    }
}

std::string shown(const Asked& asked, std::string_view text) {
    return asked.url ? http::percent_encode(text, http::Slash::keep) : std::string(text);
}

void add_object(XmlWriter& xml, const Asked& asked, const Found::Object& object, bool owner) {
    const auto& record = object.head.record;
    xml.open("Contents").text("Key", shown(asked, object.key)).text("LastModified", iso_time(record.written_ns));
    xml.text("ETag", quoted(record.etag)).number("Size", record.size_bytes).text("StorageClass", "STANDARD");
    if (record.algorithm) xml.text("ChecksumAlgorithm", http::to_string(*record.algorithm));
    if (owner) add_owner(xml);
    xml.close();
}

S3Result<Asked> read_asked(const Request& request) {
    Asked asked;
    asked.prefix = request.param("prefix").value_or("");
    asked.delimiter = request.param("delimiter").value_or("");
    const auto max_keys = request.param("max-keys");
    if (max_keys && !max_keys->empty()) {
        const auto number = parse_number(*max_keys, ~std::uint64_t{0});
        if (!number) return refuse(S3Code::invalid_argument, "max-keys must be a whole number, 0 or more");
        asked.max_keys = std::min<std::uint64_t>(*number, limits::list_entries_max);
    }
    const auto encoding = request.param("encoding-type").value_or("");
    if (!encoding.empty() && encoding != "url") return refuse(S3Code::invalid_argument, "encoding-type must be url");
    asked.url = encoding == "url";
    return asked;
}

void add_answer_common(XmlWriter& xml, const Asked& asked, const Found& found) {
    for (const auto& common : found.common) {
        xml.open("CommonPrefixes").text("Prefix", shown(asked, common)).close();
    }
}

}  // namespace

Done list_objects(Context& context, Request& request) {
    const bool second = request.param("list-type").value_or("") == "2";
    auto asked = read_asked(request);
    if (!asked) co_return tl::unexpected(asked.error());
    const auto allowed = context.allow(request, Right::read, request.bucket, asked->prefix);
    if (!allowed) co_return allowed;
    const auto bucket = co_await context.site.buckets.find(context.worker.port, request.bucket);
    if (!bucket) co_return tl::unexpected(bucket.error());
    const auto token = request.param("continuation-token");
    const auto start = request.param(second ? "start-after" : "marker");
    if (second && token && !token->empty()) {  // an empty one is none, but is told back
        const auto decoded = from_hex(*token);
        if (!decoded) {
            co_return refuse(S3Code::invalid_argument, "The continuation token provided is incorrect");
        }
        asked->after = *decoded;
    } else {
        asked->after = start.value_or("");
    }
    auto found = co_await find_objects(context, request.bucket, *asked);
    if (!found) co_return tl::unexpected(found.error());
    auto present = co_await heads_of(context, std::move(found->objects));
    if (!present) co_return tl::unexpected(present.error());

    XmlWriter xml("ListBucketResult");
    // Clients decode what they know to be encoded, and in the first version the prefix is not among that.
    const bool plain = !second && fit_for_xml(asked->prefix);
    xml.text("Name", request.bucket).text("Prefix", plain ? asked->prefix : shown(*asked, asked->prefix));
    if (second) {
        xml.number("KeyCount", present->size() + found->common.size());
        if (token) xml.text("ContinuationToken", *token);
        if (start) xml.text("StartAfter", shown(*asked, *start));
        if (found->truncated) xml.text("NextContinuationToken", to_hex(std::string_view(found->last)));
    } else {
        xml.text("Marker", shown(*asked, asked->after));
        if (found->truncated && !asked->delimiter.empty()) xml.text("NextMarker", shown(*asked, found->last));
    }
    xml.number("MaxKeys", asked->max_keys);
    if (!asked->delimiter.empty()) xml.text("Delimiter", shown(*asked, asked->delimiter));
    if (asked->url) xml.text("EncodingType", "url");
    xml.flag("IsTruncated", found->truncated);
    const bool owner = !second || request.param("fetch-owner").value_or("") == "true";
    for (const auto& object : *present) add_object(xml, *asked, object, owner);
    add_answer_common(xml, *asked, *found);
    co_return co_await answer_xml(request, xml.finish());
}

// One line a key, in the order asked: "-", or size, mtime and ETag.
Done objects_exist(Context& context, Request& request) {
    const auto bucket = co_await context.site.buckets.find(context.worker.port, request.bucket);
    if (!bucket) co_return tl::unexpected(bucket.error());
    auto body = Body::create(request);
    if (!body) co_return tl::unexpected(body.error());
    const auto text = co_await (*body)->read_text(limits::exists_bytes_max);
    if (!text) co_return tl::unexpected(text.error());
    std::vector<Op> ops;
    std::vector<std::string> keys;  // of the store
    for (std::string_view rest = *text; !rest.empty();) {
        const auto end = std::min(rest.find('\n'), rest.size());
        const auto key = http::percent_decode(rest.substr(0, end), http::Plus::literal);
        rest.remove_prefix(std::min(end + 1, rest.size()));
        if (!key || key->empty() || key->size() > limits::s3_key_bytes_max) {
            co_return refuse(S3Code::invalid_argument, "kvern-exists: a line is no key");
        }
        const auto allowed = context.allow(request, Right::read, request.bucket, *key);
        if (!allowed) co_return allowed;
        if (ops.size() == limits::list_entries_max) {
            co_return refuse(S3Code::invalid_argument, "kvern-exists: more than 1000 keys");
        }
        Op op;
        op.kind = OpKind::stat;
        op.key = keys.emplace_back(object_key(request.bucket, *key));
        op.with_metadata = true;
        ops.push_back(std::move(op));
    }
    const auto outcomes = co_await context.worker.port.ask_all(std::move(ops));
    std::string answer;
    std::uint64_t hits = 0;
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
        const auto& outcome = outcomes[i];
        if (outcome.status == Status::miss) {
            answer += "-\n";
            continue;
        }
        if (outcome.status != Status::ok) co_return tl::unexpected(error_of(outcome, "kvern-exists"));
        const auto record = decode_record(outcome.stat.metadata);
        if (!record || context.site.damaged.holds(keys[i], outcome.stat.etag)) {
            answer += "-\n";
            continue;
        }
        ++hits;
        answer += std::to_string(record->size_bytes) + " " + std::to_string(outcome.stat.mtime_ns) + " \"" +
                  record->etag + "\"\n";
    }
    context.site.metrics.looked(hits, outcomes.size() - hits);
    http::AnswerHead head(200);
    head.add("Content-Type", "text/plain");
    (void)co_await request.exchange.answer(std::move(head), answer);
    co_return S3Result<>{};
}

namespace {

S3Result<> check_deletable(const DeleteObject& object) {
    if (object.key.size() > limits::s3_key_bytes_max) return refuse(S3Code::key_too_long, "Your key is too long");
    if (!object.version_id.empty() && object.version_id != "null") {
        return refuse(S3Code::not_implemented, "Versions of objects (VersionId) are not implemented");
    }
    if (object.size_bytes || object.last_modified) {
        return refuse(S3Code::not_implemented, "Size and LastModifiedTime in DeleteObjects are not implemented");
    }
    return {};
}

}  // namespace

Done delete_objects(Context& context, Request& request) {
    const auto bucket = co_await context.site.buckets.find(context.worker.port, request.bucket);
    if (!bucket) co_return tl::unexpected(bucket.error());
    auto body = Body::create(request);
    if (!body) co_return tl::unexpected(body.error());
    const auto text = co_await (*body)->read_text(limits::xml_delete_bytes_max);
    if (!text) co_return tl::unexpected(text.error());
    const auto wanted = parse_delete(*text);
    if (!wanted) co_return tl::unexpected(wanted.error());
    const auto& objects = wanted->objects;
    std::vector<S3Result<>> removed(objects.size());
    std::vector<std::size_t> plain;  // indices of those without a condition, which go at once
    std::vector<std::string> names;
    for (std::size_t i = 0; i < objects.size(); ++i) {
        removed[i] = check_deletable(objects[i]);
        if (removed[i]) removed[i] = context.allow(request, Right::write, request.bucket, objects[i].key);
        if (!removed[i] || objects[i].etag) continue;
        plain.push_back(i);
        names.push_back(objects[i].key);
    }
    auto gone = co_await remove_objects(context, request.bucket, std::move(names));
    for (std::size_t i = 0; i < plain.size(); ++i) removed[plain[i]] = std::move(gone[i]);
    XmlWriter xml("DeleteResult");
    for (std::size_t i = 0; i < objects.size(); ++i) {
        const auto& object = objects[i];
        if (removed[i] && object.etag) {
            removed[i] = co_await remove_object(context, request.bucket, object.key, object.etag);
        }
        if (removed[i] && !wanted->quiet) xml.open("Deleted").text("Key", object.key).close();
        if (!removed[i]) {
            xml.open("Error").text("Key", object.key).text("Code", http::to_string(removed[i].error().code));
            xml.text("Message", removed[i].error().message).close();
        }
    }
    co_return co_await answer_xml(request, xml.finish());
}

}  // namespace kvern::server
