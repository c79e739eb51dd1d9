// SPDX-License-Identifier: Apache-2.0
// What an s3: URI asks for, with what the environment and the files of AWS's tools add to it.
//
// Pure values. Parsing reads ~/.aws/config at most, and asks nobody over the network. Which credentials are used is for
// credentials.h.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/uri.h"
#include "fabric/dialect.h"
#include "http/address.h"
#include "http/checksum.h"
#include "kvern/result.h"

namespace kvern {

// A variable of the environment, or nothing; tests give their own.
using Environment = std::function<std::optional<std::string>(const char* name)>;
Environment process_environment();

// One server that keeps a part of the keys, or all.
struct S3Place {
    std::string url;  // "http://127.0.0.1:9000", for messages
    bool tls = false;
    bool aws = false;        // AWS's own, whose host follows from the region
    http::HostPort address;  // where to connect: in virtual form the bucket's own host
    std::string host;        // of the header Host: without the scheme's own port
    std::string base;        // before the key in the path: "/bucket", or empty in virtual form
};

struct S3Options {
    std::string bucket;
    std::string prefix;  // empty, or ends with '/'
    std::string region;
    std::vector<S3Place> places;  // at least one
    bool virtual_hosts = false;

    std::string credentials_file;  // empty: wherever they are found
    std::string profile;           // empty: AWS_PROFILE, or "default"
    bool anonymous = false;
    std::string ca_file;

    unsigned connections = 0;
    unsigned threads = 1;
    std::optional<http::ChecksumAlgorithm> checksum;  // none: checksum=none
    std::uint64_t multipart_bytes = 0;
    enum class Rdma : std::uint8_t { off, automatic, local, ofi, dc, cuobject };
    Rdma rdma = Rdma::automatic;  // whether servers may reach this process's regions themselves, and by what
    const fabric::Dialect* dialect = nullptr;  // whose headers they understand; null: find out
    std::string fabric_address;                // of this host, where they reach it; empty: as it is seen from them
    std::string fabric_provider;               // of libfabric; empty: the best that both have
    Duration connect_timeout{}, stall_timeout{}, timeout{};
};

// invalid_argument names the parameter and suggests. A URI that seems to hold credentials is refused without being
// repeated.
Result<S3Options> s3_options(const Uri& uri, const Environment& environment);

// The place of a bucket behind one endpoint URL, or AWS's own of a region where the URL is empty.
Result<S3Place> s3_place(const std::string& url, const S3Options& options, const std::string& addressing);
S3Place s3_aws_place(const std::string& bucket, const std::string& region, bool virtual_host);

}  // namespace kvern
