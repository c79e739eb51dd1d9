// SPDX-License-Identifier: Apache-2.0
// Where the keys that sign requests come from: a file, the environment, a container's or an instance's metadata.
//
// find_s3_keys() looks once, without asking the network; an S3KeyRing then belongs to one loop's thread, keeps the
// keys, and fetches those that are temporary. Keys are never logged and never stand in a message.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "http/client.h"
#include "http/sigv4.h"
#include "http/waiters.h"
#include "store/s3/options.h"

namespace kvern {

struct S3Keys {
    http::Credentials credentials;
    std::optional<std::int64_t> expires_ns;  // since the epoch
};

// How to get keys.
struct S3KeySource {
    enum class Kind : std::uint8_t { anonymous, files, container, instance };
    Kind kind = Kind::files;
    std::string described;                 // "the environment", "profile 'x' of FILE", ...
    std::function<Result<S3Keys>()> read;  // files (and environment): reads them anew
    // container, instance: whom to ask.
    http::HostPort address;
    bool tls = false;
    std::string path;                                    // container
    std::function<Result<std::string>()> authorization;  // container: the header's value, may be empty
};

// In this order: anonymous=1; credentials=FILE; the environment, unless profile= was given; the shared files, with the
// profile; the container's endpoint; the instance's metadata service. permission says where was looked in vain, and
// what is wrong with what was found.
Result<S3KeySource> find_s3_keys(const S3Options& options, const Environment& environment);

// What the two metadata services answer: {"AccessKeyId", "SecretAccessKey", "Token", "Expiration"}.
Result<S3Keys> parse_key_document(std::string_view json);

// The keys of one loop.
class S3KeyRing {
  public:
    S3KeyRing(http::Loop& loop, const S3KeySource& source, const WallClock& clock);
    ~S3KeyRing();
    S3KeyRing(const S3KeyRing&) = delete;
    S3KeyRing& operator=(const S3KeyRing&) = delete;

    // Keys that are good now; null: requests are not signed. Those that end soon are renewed behind the callers' backs,
    // who wait only where there are none or they have ended.
    http::Task<Result<std::shared_ptr<const S3Keys>>> get();
    // The server no longer takes these: the next get() brings others, if the source has any.
    void refused(const std::shared_ptr<const S3Keys>& keys);
    // Ends what is under way, for the end of the loop: a later get() fails.
    void abort();
    bool busy() const { return fetching_; }  // something is under way

  private:
    http::Task<void> renew();
    http::Task<Result<S3Keys>> fetch();
    http::Task<Result<S3Keys>> fetch_container();
    http::Task<Result<S3Keys>> fetch_instance();
    http::Task<Result<std::string>> ask(const std::string& head);
    bool good() const;  // there are keys, and they have not ended

    http::Loop& loop_;
    const S3KeySource& source_;
    const WallClock& clock_;
    std::unique_ptr<http::HttpClient> client_;
    std::shared_ptr<const S3Keys> keys_;
    std::optional<Error> error_;      // of the last renewal
    std::int64_t not_before_ns_ = 0;  // the next renewal, after a failed one
    bool fetching_ = false;
    bool aborted_ = false;
    http::Waiters renewals_;
};

}  // namespace kvern
