// SPDX-License-Identifier: Apache-2.0
// Keys of S3 as keys of a store, reversibly and in the same order (docs/protocol.md, Keys in a store).
//
// An S3 key is 1..1024 arbitrary bytes; a store's key is a path of good file names. The map keeps byte order, so that a
// listing of the store is a listing of the bucket, and prefixes, so that it can be listed below one. Pure functions,
// any thread. Folders of the server's own ("object/bucket/") are put in front by the caller.
#pragma once

#include <string>
#include <string_view>

#include "kvern/result.h"

namespace kvern::server {

// REQUIRES: 1..limits::s3_key_bytes_max bytes. The result, with a folder of up to 400 bytes in front, passes
// check_key().
std::string map_key(std::string_view key);

// Fails with corrupt where no key is mapped to this: somebody else put it into the store.
Result<std::string> unmap_key(std::string_view stored);

// What the keys with an S3 prefix begin with in the store, and no others do. Empty for an empty prefix.
std::string map_prefix(std::string_view prefix);

// Greater than every mapped key with that S3 prefix, smaller than every greater one: where a listing that has seen the
// prefix goes on. It is no key of a store itself.
std::string after_prefix(std::string_view prefix);

}  // namespace kvern::server
