// SPDX-License-Identifier: Apache-2.0
// Buckets: which there are, how much each may hold, and how the keys of their objects stand in the store
// (docs/format.md, Objects of the S3 server).
//
// Buckets are shared by the loops and locked for moments; Names are pure. Several servers may stand on one store: what
// is known here is asked for again after limits::bucket_known_for.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "http/s3_error.h"
#include "server/store_port.h"

namespace kvern::server {

// Keys in the store.
std::string bucket_record_key(std::string_view bucket);
std::string object_key(std::string_view bucket, std::string_view key);
std::string objects_prefix(std::string_view bucket);
std::string upload_folder(std::string_view bucket, std::string_view key, std::string_view upload);  // ends in '/'
std::string uploads_prefix(std::string_view bucket);

struct Bucket {
    std::string name;
    std::int64_t created_ns = 0;
};

class Buckets {
  public:
    // no_such_bucket, or what the store said.
    http::Task<http::S3Result<Bucket>> find(StorePort& port, std::string name);
    // True: made. False: it was there.
    http::Task<http::S3Result<bool>> create(StorePort& port, std::string name, std::int64_t now_ns);
    // bucket_not_empty, no_such_bucket. Uploads that were never completed go with it.
    http::Task<http::S3Result<>> remove(StorePort& port, std::string name);
    http::Task<http::S3Result<std::vector<Bucket>>> all(StorePort& port);

  private:
    struct Known {
        Bucket bucket;
        TimePoint until;
    };
    void learn(const Bucket& bucket);
    void forget(const std::string& name);

    std::mutex mutex_;
    std::map<std::string, Known, std::less<>> known_;  // under mutex_
};

// Removes every key with the prefix; the first thing that went wrong, if any.
http::Task<http::S3Result<>> remove_all(StorePort& port, std::string prefix);

}  // namespace kvern::server
