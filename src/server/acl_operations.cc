// SPDX-License-Identifier: Apache-2.0
// GetBucketAcl, GetObjectAcl and their Put: who may do what is said by access keys alone, so there is one list, that
// of the owner who has everything, and only what says the same is taken.
#include "kvern/limits.h"
#include "server/body.h"
#include "server/site.h"
#include "server/xml_writer.h"

namespace kvern::server {

using http::AnswerHead;
using http::refuse;
using http::S3Code;
using http::S3Result;
using http::Task;

namespace {

constexpr std::string_view instance_namespace = "http://www.w3.org/2001/XMLSchema-instance";

// The bucket, and the object if the request names one, are there.
Task<S3Result<>> find_target(Context& context, const Request& request) {
    const auto bucket = co_await context.site.buckets.find(context.worker.port, request.bucket);
    if (!bucket) co_return tl::unexpected(bucket.error());
    if (request.key.empty()) co_return S3Result<>{};
    const auto head = co_await read_head(context.place(), object_key(request.bucket, request.key));
    if (!head) co_return tl::unexpected(head.error());
    co_return S3Result<>{};
}

}  // namespace

Done get_acl(Context& context, Request& request) {
    const auto allowed = context.allow(request, Right::read, request.bucket, request.key);
    if (!allowed) co_return allowed;
    const auto found = co_await find_target(context, request);
    if (!found) co_return found;
    XmlWriter xml("AccessControlPolicy");
    add_owner(xml);
    xml.open("AccessControlList").open("Grant");
    xml.open("Grantee", {{"xmlns:xsi", instance_namespace}, {"xsi:type", "CanonicalUser"}});
    xml.text("ID", "kvern").text("DisplayName", "kvern").close().text("Permission", "FULL_CONTROL");
    co_return co_await answer_xml(request, xml.finish());
}

Done put_acl(Context& context, Request& request) {
    const auto allowed = context.allow(request, Right::write, request.bucket, request.key);
    if (!allowed) co_return allowed;
    const auto found = co_await find_target(context, request);
    if (!found) co_return found;
    const auto canned = request.header("x-amz-acl").value_or("");
    if (canned != "private" && canned != "bucket-owner-full-control") {
        co_return refuse(S3Code::not_implemented,
                         "Access control lists are not implemented: the rights stand with the access keys, and only "
                         "x-amz-acl 'private' and 'bucket-owner-full-control' are taken");
    }
    co_return co_await answer_empty(request, AnswerHead(200));
}

}  // namespace kvern::server
