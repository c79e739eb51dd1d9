// SPDX-License-Identifier: Apache-2.0
#include "server/damaged_objects.h"

#include "kvern/limits.h"

namespace kvern::server {

void DamagedObjects::add(const std::string& key, const std::string& etag) {
    const std::lock_guard lock(mutex_);
    found_.fetch_add(1, std::memory_order_relaxed);
    if (etags_.size() >= limits::server_damaged_known_max && etags_.count(key) == 0) etags_.erase(etags_.begin());
    etags_[key] = etag;
}

bool DamagedObjects::holds(const std::string& key, const std::string& etag) const {
    if (found() == 0) return false;
    const std::lock_guard lock(mutex_);
    const auto known = etags_.find(key);
    return known != etags_.end() && known->second == etag;
}

}  // namespace kvern::server
