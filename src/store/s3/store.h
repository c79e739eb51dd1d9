// SPDX-License-Identifier: Apache-2.0
// The engine `s3:`: one value, one object; any server that speaks S3, or several that each keep a part of the keys.
//
//   s3://BUCKET/PREFIX?endpoint=http://host:port,…&region=…&credentials=FILE&…   (docs/operations.md lists all)
//
// What S3 can't give as store.h asks for: times are in whole seconds; where a server makes etags of MD5, two versions
// with the same bytes have the same etag; a remove looks before it removes. Several endpoints are independent servers:
// none has what another keeps, so the keys of one that is broken fail within a millisecond, and are computed instead.
#pragma once

#include <memory>

#include "base/uri.h"
#include "kvern/store.h"
#include "store/s3/endpoint.h"

namespace kvern {

Result<std::unique_ptr<Store>> open_s3_store(const Uri& uri);
// The same with a given clock, environment and seed.
Result<std::unique_ptr<Store>> open_s3_store(const Uri& uri, const S3Seams& seams);

// Makes the bucket of an s3: URI, at each of its endpoints, unless it is there. Blocks, at most for timeout=.
Result<void> create_s3_bucket(const Uri& uri);
Result<void> create_s3_bucket(const Uri& uri, const S3Seams& seams);

}  // namespace kvern
