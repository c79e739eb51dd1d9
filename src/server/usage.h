// SPDX-License-Identifier: Apache-2.0
// Usage: how much each bucket holds, by model where the cache left labels, and the quotas that bound it.
//
// Any thread. A scan of the store finds the truth; between scans what was written and removed here is added. Several
// servers on one store see each other's writes at the next scan: a quota is kept to within what they wrote since.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "http/s3_error.h"
#include "server/store_port.h"

namespace kvern::server {

struct BucketUsage {
    std::int64_t bytes = 0;
    std::int64_t objects = 0;
    std::map<std::string, std::int64_t> bytes_by_label;  // of the last scan
};

class Usage {
  public:
    Usage(std::map<std::string, std::uint64_t> quotas, std::uint64_t default_quota)
        : quotas_(std::move(quotas)), default_quota_(default_quota) {}

    // 0: none.
    std::uint64_t quota(std::string_view bucket) const;
    // insufficient_storage where `bytes` more would be too much. Takes them; give() them back if nothing was stored.
    http::S3Result<> take(std::string_view bucket, std::uint64_t bytes);
    void give(std::string_view bucket, std::uint64_t bytes);
    void stored(std::string_view bucket, std::int64_t objects);  // changes the count of objects

    // Scans the whole store once; to be called on one loop, again and again.
    http::Task<void> scan(StorePort& port);
    std::map<std::string, BucketUsage> all() const;
    std::int64_t scanned_ns() const;  // when the last scan ended, by the wall clock; 0: never

  private:
    struct Scanning {
        std::map<std::string, BucketUsage> buckets;
        std::map<std::string, std::int64_t> bytes_by_folder;  // first folder of a key
        std::map<std::string, std::string> labels;            // of such a folder
    };
    static http::Task<bool> scan_bucket(StorePort& port, std::string bucket, BucketUsage& usage);

    const std::map<std::string, std::uint64_t> quotas_;
    const std::uint64_t default_quota_;
    mutable std::mutex mutex_;
    std::map<std::string, BucketUsage, std::less<>> usage_;  // under mutex_
    std::map<std::string, BucketUsage, std::less<>> since_;  // under mutex_: what changed since the running scan began
    std::int64_t scanned_ns_ = 0;
};

}  // namespace kvern::server
