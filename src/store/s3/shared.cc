// SPDX-License-Identifier: Apache-2.0
#include "store/s3/shared.h"

#include <algorithm>

namespace kvern {
namespace {

std::uint64_t mixed(std::uint64_t value) {
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
    return value ^ (value >> 31);
}

std::uint64_t hash_of(std::string_view text) {
    std::uint64_t hash = 0xcbf29ce484222325ULL;
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
    return mixed(hash);
}

}  // namespace

std::size_t S3Shared::owner(std::string_view key) const {
    if (place_hashes.size() == 1) return 0;
    const auto hash = hash_of(key);
    std::size_t best = 0;
    std::uint64_t most = 0;
    for (std::size_t i = 0; i < place_hashes.size(); ++i) {
        const auto weight = mixed(hash ^ place_hashes[i]);
        if (i > 0 && weight <= most) continue;
        best = i;
        most = weight;
    }
    return best;
}

Result<std::shared_ptr<S3Shared>> S3Shared::make(const Uri& uri, const S3Seams& seams) {
    auto options = s3_options(uri, seams.environment);
    if (!options) return tl::unexpected(options.error());
    auto shared = std::make_shared<S3Shared>();
    shared->options = std::move(*options);
    shared->seams = seams;
    auto keys = find_s3_keys(shared->options, seams.environment);
    if (!keys) return fail(keys.error().code, "store '" + uri.text + "': " + keys.error().message);
    shared->keys = std::move(*keys);
    const auto& places = shared->options.places;
    if (std::any_of(places.begin(), places.end(), [](const auto& place) { return place.tls; })) {
        auto tls = http::TlsContext::client(shared->options.ca_file);
        if (!tls) return fail(tls.error().code, "store '" + uri.text + "': " + tls.error().message);
        shared->tls = std::move(*tls);
    }
    for (const auto& place : places) {
        shared->facts.push_back(std::make_unique<S3Facts>());
        shared->place_hashes.push_back(hash_of(place.url));
    }
    return shared;
}

}  // namespace kvern
