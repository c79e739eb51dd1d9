// SPDX-License-Identifier: Apache-2.0
#include "server/route.h"

#include <array>

namespace kvern::server {

using http::refuse;
using http::S3Code;
using http::S3Result;

namespace {

// Parts of S3 that are not here. A request for one must not be taken for something else.
constexpr std::array<std::string_view, 29> absent{"accelerate",
                                                  "analytics",
                                                  "cors",
                                                  "encryption",
                                                  "intelligent-tiering",
                                                  "inventory",
                                                  "legal-hold",
                                                  "lifecycle",
                                                  "logging",
                                                  "metrics",
                                                  "notification",
                                                  "object-lock",
                                                  "ownershipControls",
                                                  "policy",
                                                  "policyStatus",
                                                  "publicAccessBlock",
                                                  "replication",
                                                  "requestPayment",
                                                  "restore",
                                                  "retention",
                                                  "select",
                                                  "session",
                                                  "tagging",
                                                  "torrent",
                                                  "versioning",
                                                  "versions",
                                                  "website",
                                                  "metadataTable",
                                                  "rename-object"};

S3Result<> check_present(const Request& request) {
    for (const auto name : absent) {
        if (request.has(name)) {
            return refuse(S3Code::not_implemented,
                          "A header or parameter you provided implies functionality that is not "
                          "implemented: '" +
                              std::string(name) + "'");
        }
    }
    if (const auto version = request.param("versionId"); version && *version != "null") {
        return refuse(S3Code::not_implemented, "Versions of objects ('versionId') are not implemented");
    }
    for (const std::string_view header :
         {"x-amz-server-side-encryption", "x-amz-server-side-encryption-customer-algorithm", "x-amz-object-lock-mode",
          "x-amz-tagging", "x-amz-website-redirect-location"}) {
        if (request.header(header)) {
            return refuse(
                S3Code::not_implemented,
                "A header you provided implies functionality that is not implemented: '" + std::string(header) + "'");
        }
    }
    return {};
}

S3Result<Route> wrong_method(const Request& request) {
    return refuse(S3Code::method_not_allowed,
                  "The method " + std::string(request.method()) + " is not allowed against this resource");
}

std::optional<Route> acl_route(const Request& request) {
    if (!request.has("acl")) return std::nullopt;
    if (request.method() == "GET") return Route{Operation::get_acl, get_acl};
    if (request.method() == "PUT") return Route{Operation::put_acl, put_acl};
    return std::nullopt;
}

S3Result<Route> bucket_route(const Request& request) {
    const auto method = request.method();
    if (method == "PUT") return Route{Operation::create_bucket, create_bucket};
    if (method == "HEAD") return Route{Operation::head_bucket, head_bucket};
    if (method == "DELETE") return Route{Operation::delete_bucket, delete_bucket};
    if (method == "POST" && request.has("delete")) return Route{Operation::delete_objects, delete_objects};
    if (method == "POST" && request.has("kvern-exists")) return Route{Operation::exists, objects_exist};
    if (method == "POST") return refuse(S3Code::not_implemented, "Uploads by forms (POST Object) are not implemented");
    if (method != "GET") return wrong_method(request);
    if (request.has("location")) return Route{Operation::get_bucket_location, get_bucket_location};
    if (request.has("uploads")) return Route{Operation::list_multipart_uploads, list_uploads};
    if (request.has("kvern-space")) return Route{Operation::space, bucket_space};
    if (request.has("kvern-fabric")) return Route{Operation::fabric, fabric_ways};
    const bool second = request.param("list-type").value_or("") == "2";
    return Route{second ? Operation::list_objects_v2 : Operation::list_objects, list_objects};
}

S3Result<Route> object_route(const Request& request) {
    const auto method = request.method();
    const bool upload = request.has("uploadId"), copy = request.header("x-amz-copy-source").has_value();
    if (method == "GET" || method == "HEAD") {
        if (upload && method == "GET") return Route{Operation::list_parts, list_parts};
        if (request.has("attributes")) return Route{Operation::get_object_attributes, get_object_attributes};
        return Route{method == "GET" ? Operation::get_object : Operation::head_object, get_object};
    }
    if (method == "PUT") {
        if (upload || request.has("partNumber")) {
            return Route{copy ? Operation::upload_part_copy : Operation::upload_part, upload_part};
        }
        return copy ? Route{Operation::copy_object, copy_object} : Route{Operation::put_object, put_object};
    }
    if (method == "DELETE") {
        return upload ? Route{Operation::abort_multipart_upload, abort_upload}
                      : Route{Operation::delete_object, delete_object};
    }
    if (method == "POST" && request.has("uploads")) return Route{Operation::create_multipart_upload, create_upload};
    if (method == "POST" && upload) return Route{Operation::complete_multipart_upload, complete_upload};
    return wrong_method(request);
}

}  // namespace

S3Result<Route> route(const Request& request) {
    if (auto present = check_present(request); !present) return tl::unexpected(present.error());
    if (request.bucket.empty()) {
        if (request.method() == "GET") return Route{Operation::list_buckets, list_buckets};
        return wrong_method(request);
    }
    if (!valid_bucket_name(request.bucket)) {
        return refuse(S3Code::invalid_bucket_name, "The specified bucket is not valid");
    }
    if (const auto acl = acl_route(request)) return *acl;
    return request.key.empty() ? bucket_route(request) : object_route(request);
}

}  // namespace kvern::server
