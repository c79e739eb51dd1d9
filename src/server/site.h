// SPDX-License-Identifier: Apache-2.0
// What all requests of a server share, and what those of one loop share. Built by S3Server; operations take a Context.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "fabric/networks.h"
#include "http/etag.h"
#include "server/buckets.h"
#include "server/keys.h"
#include "server/memory_gate.h"
#include "server/metrics.h"
#include "server/object_io.h"
#include "server/readiness.h"
#include "server/request.h"
#include "server/usage.h"

namespace kvern::server {

struct Site {
    Store& store;
    const AccessKeys* keys;  // null: anonymous, everything is allowed
    std::string region;
    std::vector<std::string> domains;
    MemoryGate gate;
    DamagedObjects damaged;
    Buckets buckets;
    Metrics metrics;
    Usage usage;
    const WallClock& clock;
    // One-sided transfers: none of these, and all go over HTTP.
    std::unique_ptr<fabric::LocalHost> windows{};
    std::vector<std::unique_ptr<fabric::OfiMover>> movers{};
    fabric::Networks networks{};  // of clients, beside where their requests come from
    bool offers_fabric() const { return windows || !movers.empty(); }
};

struct Worker {
    Worker(std::size_t place, http::Loop& own_loop, Site& site)
        : index(place),
          loop(own_loop),
          port(own_loop, site.store, site.metrics),
          readiness(own_loop, port),
          verifier(site.region) {}
    std::size_t index;
    http::Loop& loop;
    StorePort port;
    Readiness readiness;
    http::Verifier verifier;
};

struct Context {
    Site& site;
    Worker& worker;
    ObjectPlace place() { return {worker.loop, worker.port, site.gate, site.damaged}; }
    http::S3Result<> allow(const Request& request, Right right, std::string_view bucket, std::string_view key) const;
};

using Done = http::Task<http::S3Result<>>;

// Operations, by file. Each answers itself; an error is answered by whoever called it.
// service_operations.cc
Done list_buckets(Context& context, Request& request);
Done create_bucket(Context& context, Request& request);
Done head_bucket(Context& context, Request& request);
Done delete_bucket(Context& context, Request& request);
Done get_bucket_location(Context& context, Request& request);
Done bucket_space(Context& context, Request& request);
Done fabric_ways(Context& context, Request& request);  // kvern-fabric
// acl_operations.cc: of buckets and of objects
Done get_acl(Context& context, Request& request);
Done put_acl(Context& context, Request& request);
// listing.cc
Done list_objects(Context& context, Request& request);   // both versions
Done objects_exist(Context& context, Request& request);  // kvern-exists
Done delete_objects(Context& context, Request& request);
// object_operations.cc
Done get_object(Context& context, Request& request);  // HEAD, too
Done put_object(Context& context, Request& request);
Done delete_object(Context& context, Request& request);
Done copy_object(Context& context, Request& request);
Done get_object_attributes(Context& context, Request& request);
// upload_operations.cc
Done create_upload(Context& context, Request& request);
Done upload_part(Context& context, Request& request);  // UploadPartCopy, too
Done complete_upload(Context& context, Request& request);
Done abort_upload(Context& context, Request& request);
Done list_parts(Context& context, Request& request);
Done list_uploads(Context& context, Request& request);

// Shared by operations: an answer of XML.
Done answer_xml(Request& request, std::string document, http::AnswerHead head = http::AnswerHead(200));
Done answer_empty(Request& request, http::AnswerHead head);

void add_owner(class XmlWriter& xml, std::string_view element = "Owner");

using http::quoted;
std::string new_id(std::size_t bytes);  // random, hex

}  // namespace kvern::server
