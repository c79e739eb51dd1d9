// SPDX-License-Identifier: Apache-2.0
// Access keys and what each may do. Immutable once read; any thread. Secrets never leave it but by find().
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "http/sigv4.h"
#include "kvern/result.h"

namespace kvern::server {

enum class Right : std::uint8_t { read, write };

struct AccessKey {
    http::Credentials credentials;
    std::vector<std::string> buckets;  // names, or "name*"; empty: all
    std::string prefix;                // only keys that start with it
    bool may_write = false;

    bool allows_bucket(std::string_view bucket) const;
    bool allows(Right right, std::string_view bucket, std::string_view key) const;
    // Creating and deleting buckets: for keys without limits.
    bool owns_all() const { return may_write && buckets.empty() && prefix.empty(); }
};

class AccessKeys {
  public:
    static AccessKeys single(http::Credentials credentials);  // all rights
    // TOML, readable by its owner alone (one of root's, by our group too):
    //   [[key]]
    //   access = "…"
    //   secret = "…"
    //   rights = "write"            # or "read"
    //   buckets = ["cache", "bench-*"]  # all, if not given
    //   prefix = "team-a/"
    static Result<AccessKeys> load(const std::string& path);
    const AccessKey* find(std::string_view access_key) const;
    std::size_t size() const { return keys_.size(); }

  private:
    std::vector<AccessKey> keys_;
};

}  // namespace kvern::server
