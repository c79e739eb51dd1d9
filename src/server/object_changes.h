// SPDX-License-Identifier: Apache-2.0
// What several operations do to objects: storing one from any source, removing one, reading the source of a copy.
// Loop's thread.
#pragma once

#include "server/site.h"

namespace kvern::server {

// Under the request's bucket, key and conditions; the quota is kept. Gives the record as stored.
http::Task<http::S3Result<ObjectRecord>> store_object(Context& context, Request& request, ObjectRecord record,
                                                      Source& source, std::optional<std::uint64_t> size_bytes);

// Gone afterwards, whether it was there or not. `match`: an If-Match.
http::Task<http::S3Result<>> remove_object(Context& context, std::string bucket, std::string key,
                                           std::optional<std::string_view> match);

// The same for many, all at once and without conditions; outcomes in their order.
http::Task<std::vector<http::S3Result<>>> remove_objects(Context& context, std::string bucket,
                                                         std::vector<std::string> keys);

// Of the object that x-amz-copy-source names, whose conditions hold. The caller settles it.
http::Task<http::S3Result<ObjectReader>> open_copy_source(Context& context, Request& request);

// The bytes of a reader as the source of a new object; computes its sums anew.
class CopiedBytes final : public Source {
  public:
    // `sum`: fresh, of the checksum to keep. `size_bytes`: what the reader will give.
    CopiedBytes(ObjectReader& reader, http::Checksum sum, std::uint64_t size_bytes);
    http::Task<http::S3Result<std::size_t>> read(std::span<std::byte> into) override;
    http::Task<http::S3Result<>> finish(ObjectRecord& record) override;

  private:
    ObjectReader& reader_;
    std::span<const std::byte> piece_;
    http::Checksum sum_;
    std::optional<http::Checksum> md5_;
    std::uint32_t block_bytes_;
    BlockSummer blocks_;
    std::uint64_t received_ = 0;
};

}  // namespace kvern::server
