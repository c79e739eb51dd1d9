// SPDX-License-Identifier: Apache-2.0
// ListBuckets, CreateBucket, HeadBucket, DeleteBucket, GetBucketLocation, kvern-space; and what operations share.
#include <sys/random.h>

#include <algorithm>

#include "base/text.h"
#include "fabric/local_guest.h"
#include "kvern/limits.h"
#include "server/body.h"
#include "server/object_headers.h"
#include "server/site.h"
#include "server/xml.h"
#include "server/xml_writer.h"

namespace kvern::server {

using http::AnswerHead;
using http::refuse;
using http::S3Code;
using http::S3Result;

std::string new_id(std::size_t bytes) {
    std::string raw(bytes, '\0');
    // Blocks only before the kernel's pool is seeded, once after boot.
    if (getrandom(raw.data(), raw.size(), 0) != static_cast<ssize_t>(raw.size())) std::abort();
    return to_hex(std::string_view(raw));
}

Done answer_xml(Request& request, std::string document, AnswerHead head) {
    head.add("Content-Type", "application/xml");
    (void)co_await request.exchange.answer(std::move(head), document);
    co_return S3Result<>{};
}

Done answer_empty(Request& request, AnswerHead head) {
    (void)co_await request.exchange.answer(std::move(head));
    co_return S3Result<>{};
}

void add_owner(XmlWriter& xml, std::string_view element) {
    xml.open(element).text("ID", "kvern").text("DisplayName", "kvern").close();
}

S3Result<> Context::allow(const Request& request, Right right, std::string_view bucket, std::string_view key) const {
    if (site.keys == nullptr) return {};
    if (request.who == nullptr || !request.who->allows(right, bucket, key)) {
        return refuse(S3Code::access_denied, "Access Denied");
    }
    return {};
}

namespace {

S3Result<> allow_buckets(const Context& context, const Request& request) {
    if (context.site.keys == nullptr || (request.who != nullptr && request.who->owns_all())) return {};
    return refuse(S3Code::access_denied, "Access Denied: this key may not make or remove buckets");
}

S3Result<> allow_bucket(const Context& context, const Request& request) {
    if (context.site.keys == nullptr || (request.who != nullptr && request.who->allows_bucket(request.bucket)))
        return {};
    return refuse(S3Code::access_denied, "Access Denied");
}

}  // namespace

Done list_buckets(Context& context, Request& request) {
    if (context.site.keys != nullptr && request.who == nullptr)
        co_return refuse(S3Code::access_denied, "Access Denied");
    const auto buckets = co_await context.site.buckets.all(context.worker.port);
    if (!buckets) co_return tl::unexpected(buckets.error());
    const auto prefix = request.param("prefix").value_or("");
    const auto most = parse_number(request.param("max-buckets").value_or("10000"), ~std::uint64_t{0});
    const auto token = from_hex(request.param("continuation-token").value_or(""));
    if (!most || *most == 0 || !token) {
        co_return refuse(S3Code::invalid_argument, "max-buckets or continuation-token is not valid");
    }
    XmlWriter xml("ListAllMyBucketsResult");
    add_owner(xml);
    xml.open("Buckets");
    std::uint64_t shown = 0;
    std::string last;
    bool more = false;
    for (const auto& bucket : *buckets) {
        const bool visible = request.who == nullptr || request.who->allows_bucket(bucket.name);
        if (!visible || !bucket.name.starts_with(prefix) || bucket.name <= *token) continue;
        if (shown == *most) {
            more = true;
            break;
        }
        xml.open("Bucket").text("Name", bucket.name).text("CreationDate", iso_time(bucket.created_ns)).close();
        last = bucket.name;
        ++shown;
    }
    xml.close();
    if (!prefix.empty()) xml.text("Prefix", prefix);
    if (more) xml.text("ContinuationToken", to_hex(std::string_view(last)));
    co_return co_await answer_xml(request, xml.finish());
}

Done create_bucket(Context& context, Request& request) {
    const auto allowed = allow_buckets(context, request);
    if (!allowed) co_return allowed;
    if (!valid_bucket_name(request.bucket)) {
        co_return refuse(S3Code::invalid_bucket_name, "The specified bucket is not valid");
    }
    const auto& head = request.exchange.request();
    if (head.chunked || head.content_length.value_or(0) > 0) {
        auto body = Body::create(request);
        if (!body) co_return tl::unexpected(body.error());
        const auto text = co_await (*body)->read_text(limits::xml_bytes_max);
        if (!text) co_return tl::unexpected(text.error());
        const auto configuration = parse_create_bucket(*text);
        if (!configuration) co_return tl::unexpected(configuration.error());
    }
    const auto made =
        co_await context.site.buckets.create(context.worker.port, request.bucket, context.site.clock.now_ns());
    if (!made) co_return tl::unexpected(made.error());
    // Making one's own bucket again is no mistake: so it is in the oldest region, and so is it here.
    AnswerHead answer(200);
    answer.add("Location", "/" + request.bucket);
    co_return co_await answer_empty(request, std::move(answer));
}

Done head_bucket(Context& context, Request& request) {
    const auto allowed = allow_bucket(context, request);
    if (!allowed) co_return allowed;
    const auto bucket = co_await context.site.buckets.find(context.worker.port, request.bucket);
    if (!bucket) co_return tl::unexpected(bucket.error());
    AnswerHead answer(200);
    answer.add("x-amz-bucket-region", context.site.region.empty() ? "us-east-1" : context.site.region);
    co_return co_await answer_empty(request, std::move(answer));
}

Done delete_bucket(Context& context, Request& request) {
    const auto allowed = allow_buckets(context, request);
    if (!allowed) co_return allowed;
    const auto found = co_await context.site.buckets.find(context.worker.port, request.bucket);
    if (!found) co_return tl::unexpected(found.error());
    const auto removed = co_await context.site.buckets.remove(context.worker.port, request.bucket);
    if (!removed) co_return removed;
    co_return co_await answer_empty(request, AnswerHead(204));
}

Done get_bucket_location(Context& context, Request& request) {
    const auto allowed = allow_bucket(context, request);
    if (!allowed) co_return allowed;
    const auto bucket = co_await context.site.buckets.find(context.worker.port, request.bucket);
    if (!bucket) co_return tl::unexpected(bucket.error());
    // us-east-1 is told by saying nothing.
    const auto& region = context.site.region;
    XmlWriter xml("LocationConstraint");
    if (!region.empty() && region != "us-east-1") xml.value(region);
    co_return co_await answer_xml(request, xml.finish());
}

Done bucket_space(Context& context, Request& request) {
    const auto allowed = allow_bucket(context, request);
    if (!allowed) co_return allowed;
    const auto bucket = co_await context.site.buckets.find(context.worker.port, request.bucket);
    if (!bucket) co_return tl::unexpected(bucket.error());
    Op op;
    op.kind = OpKind::space;
    const auto outcome = co_await context.worker.port.ask(std::move(op));
    if (outcome.status != Status::ok) co_return tl::unexpected(error_of(outcome, "the store's space"));
    auto space = outcome.space;
    if (const auto quota = context.site.usage.quota(request.bucket); quota > 0) {
        const auto all = context.site.usage.all();
        const auto found = all.find(request.bucket);
        const auto used =
            found == all.end() ? 0 : static_cast<std::uint64_t>(std::max<std::int64_t>(found->second.bytes, 0));
        space.quota_bytes = space.quota_bytes == 0 ? quota : std::min(space.quota_bytes, quota);
        space.free_bytes = std::min(space.free_bytes, quota - std::min(quota, used));
    }
    AnswerHead head(200);
    head.add("Content-Type", "application/json");
    const auto text = "{\"capacity_bytes\":" + std::to_string(space.capacity_bytes) +
                      ",\"free_bytes\":" + std::to_string(space.free_bytes) +
                      ",\"quota_bytes\":" + std::to_string(space.quota_bytes) + "}\n";
    (void)co_await request.exchange.answer(std::move(head), text);
    co_return S3Result<>{};
}

// How a client's memory may be reached, one-sided: {}, {"local": {"socket": …, "host": …}}, {"ofi": {"providers": […]}}
// or both.
Done fabric_ways(Context& context, Request& request) {
    const auto allowed = allow_bucket(context, request);
    if (!allowed) co_return allowed;
    std::string local, providers;
    if (context.site.windows) {
        local = "\"local\":{\"socket\":" + json_text(context.site.windows->address()) +
                ",\"host\":" + json_text(fabric::local_host_id()) + "}";
    }
    for (const auto& mover : context.site.movers) {
        providers += (providers.empty() ? "" : ",") + json_text(std::string(mover->provider()));
    }
    if (!providers.empty()) providers = "\"ofi\":{\"providers\":[" + providers + "]}";
    const auto text = "{" + local + (local.empty() || providers.empty() ? "" : ",") + providers + "}\n";
    AnswerHead head(200);
    head.add("Content-Type", "application/json");
    (void)co_await request.exchange.answer(std::move(head), text);
    co_return S3Result<>{};
}

}  // namespace kvern::server
