// SPDX-License-Identifier: Apache-2.0
// create_s3_bucket(): a loop for a few requests.
#include <future>

#include "store/s3/shared.h"
#include "store/s3/store.h"

namespace kvern {
namespace {

http::Task<Result<void>> create_at(S3Endpoint& endpoint) {
    S3Request look;
    look.method = "HEAD";
    auto there = co_await endpoint.call(look, endpoint.deadline());
    if (there.good()) co_return Result<void>{};
    S3Request make;
    make.method = "PUT";
    const auto& region = endpoint.options().region;
    if (endpoint.place().aws && region != "us-east-1") {
        make.text =
            "<CreateBucketConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><LocationConstraint>" +
            region + "</LocationConstraint></CreateBucketConfiguration>";
    }
    auto made = co_await endpoint.call(make, endpoint.deadline());
    const auto& code = made.error.code;
    if (made.good() || code == "BucketAlreadyOwnedByYou" || code == "BucketAlreadyExists") co_return Result<void>{};
    if (made.ended) co_return tl::unexpected(made.ended->error);
    co_return fail(ErrorCode::io, endpoint.named("") + ": can't be made: " + std::to_string(made.status()) + " " +
                                      code + ": " + made.error.message);
}

http::Task<void> create_all(std::span<S3Endpoint* const> endpoints, std::promise<Result<void>>& promise) {
    Result<void> result;
    for (auto* const endpoint : endpoints) {
        result = co_await create_at(*endpoint);
        if (!result) break;
    }
    promise.set_value(std::move(result));
}

}  // namespace

Result<void> create_s3_bucket(const Uri& uri, const S3Seams& seams) {
    auto shared = S3Shared::make(uri, seams);
    if (!shared) return tl::unexpected(shared.error());
    auto& common = **shared;
    http::Loop loop("kvern-s3-make");
    std::unique_ptr<S3KeyRing> keys;
    std::vector<std::unique_ptr<S3Endpoint>> endpoints;
    std::vector<S3Endpoint*> all;
    std::promise<Result<void>> promise;
    auto result = promise.get_future();
    loop.post([&] {
        keys = std::make_unique<S3KeyRing>(loop, common.keys, *common.seams.wall);
        for (std::size_t i = 0; i < common.options.places.size(); ++i) {
            endpoints.push_back(std::make_unique<S3Endpoint>(loop, common.options, common.options.places[i], common.tls,
                                                             *keys, *common.facts[i], common.regions, common.seams));
            all.push_back(endpoints.back().get());
        }
        http::detach(create_all(all, promise));
    });
    auto done = result.get();
    loop.stop();
    return done;
}

Result<void> create_s3_bucket(const Uri& uri) {
    return create_s3_bucket(uri, S3Seams{});
}

}  // namespace kvern
