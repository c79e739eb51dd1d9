// SPDX-License-Identifier: Apache-2.0
// What the loops of one s3: store share, and which endpoint keeps which key.
#pragma once

#include <atomic>
#include <memory>
#include <string_view>
#include <vector>

#include "store/delivery.h"
#include "store/s3/endpoint.h"

namespace kvern {

// What the workers of one store have in common. Immutable, or safe for any thread.
struct S3Shared {
    S3Options options;
    S3KeySource keys;
    std::shared_ptr<const http::TlsContext> tls;
    S3Seams seams;
    std::vector<std::unique_ptr<S3Facts>> facts;  // one a place
    Delivery delivery{limits::queued_ops_max};
    std::atomic<std::size_t> open_uploads{0};
    S3Regions regions;

    // Which place keeps a key: the same for every client with the same endpoints, in whatever order they are given.
    std::size_t owner(std::string_view key) const;
    std::vector<std::uint64_t> place_hashes;

    // Reads the URI, and finds out where credentials come from; asks nobody over the network.
    static Result<std::shared_ptr<S3Shared>> make(const Uri& uri, const S3Seams& seams);
};

}  // namespace kvern
