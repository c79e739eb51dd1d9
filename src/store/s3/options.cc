// SPDX-License-Identifier: Apache-2.0
#include "store/s3/options.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <thread>

#include "base/text.h"
#include "fabric/ofi_endpoint.h"
#include "kvern/limits.h"
#include "store/op_check.h"
#include "store/s3/profiles.h"

namespace kvern {
namespace {

using std::chrono::milliseconds;

constexpr std::array<std::string_view, 16> known{
    "endpoint",  "region",          "connections",   "addressing", "ca",      "profile",   "credentials", "checksum",
    "multipart", "connect_timeout", "stall_timeout", "timeout",    "threads", "anonymous", "rdma",        "dialect"};
constexpr std::array<std::string_view, 3> checksums{"crc64nvme", "crc32c", "none"};
constexpr std::array<std::string_view, 3> addressings{"auto", "path", "virtual"};
constexpr std::array<std::string_view, 2> flags{"0", "1"};
constexpr std::array<std::string_view, 6> rdma_ways{"off", "auto", "local",
                                                    "ofi", "dc",   "cuobject"};  // as S3Options::Rdma
constexpr std::array<std::string_view, 3> dialects{"auto", "aws", "dell"};

tl::unexpected<Error> wrong(const Uri& uri, const std::string& what) {
    return fail(ErrorCode::invalid_argument, "store '" + uri.text + "': " + what);
}

bool is_secret_name(std::string_view name) {
    std::string flat;
    for (const char c : name) {
        if (c != '_' && c != '-') flat += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    }
    for (const std::string_view word : {"accesskey", "secret", "password", "sessiontoken", "securitytoken"}) {
        if (flat.find(word) != std::string::npos) return true;
    }
    return false;
}

bool holds_secret(const Uri& uri) {
    if (uri.host.find('@') != std::string::npos) return true;
    const auto endpoint = uri.params.find("endpoint");
    if (endpoint != uri.params.end() && endpoint->second.find('@') != std::string::npos) return true;
    return std::any_of(uri.params.begin(), uri.params.end(), [](const auto& one) { return is_secret_name(one.first); });
}

bool is_bucket_name(std::string_view name) {
    if (name.size() < 3 || name.size() > 63) return false;
    return std::all_of(name.begin(), name.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
               c == '_';
    });
}

// A name that a host may begin with; a dot would break the wildcard of AWS's certificates.
bool is_host_label(std::string_view name) {
    return std::all_of(name.begin(), name.end(),
                       [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; });
}

Result<Duration> duration(const Uri& uri, std::string_view name, milliseconds fallback) {
    const auto found = uri.params.find(name);
    if (found == uri.params.end()) return Duration(fallback);
    const auto parsed = parse_duration(found->second);
    if (!parsed) return wrong(uri, std::string(name) + ": " + parsed.error().message);
    if (*parsed <= milliseconds(0)) return wrong(uri, std::string(name) + "=" + found->second + " must be above 0");
    return Duration(*parsed);
}

std::string text_param(const Uri& uri, std::string_view name) {
    const auto found = uri.params.find(name);
    return found == uri.params.end() ? std::string() : found->second;
}

std::optional<std::string> first_of(const Environment& environment, std::initializer_list<const char*> names) {
    for (const char* const name : names) {
        auto value = environment(name);
        if (value && !value->empty()) return value;
    }
    return std::nullopt;
}

// What ~/.aws/config says of this profile. Broken or missing files say nothing here: credentials complain of them.
std::string configured_region(const std::string& profile, const Environment& environment) {
    auto path = environment("AWS_CONFIG_FILE");
    if (!path) {
        const auto home = environment("HOME");
        if (!home) return {};
        path = *home + "/.aws/config";
    }
    const auto profiles = read_profiles(*path);
    if (!profiles || !*profiles) return {};
    const auto section = (*profiles)->find(profile);
    if (section == (*profiles)->end()) return {};
    const auto region = section->second.find("region");
    return region == section->second.end() ? std::string() : region->second;
}

Result<void> read_place(const Uri& uri, S3Options& options) {
    if (!is_bucket_name(uri.host)) {
        return wrong(uri, "'" + uri.host + "' is no name of a bucket: write s3://BUCKET/PREFIX");
    }
    options.bucket = uri.host;
    options.prefix = uri.path.empty() ? std::string() : uri.path.substr(1);
    if (!options.prefix.empty() && !options.prefix.ends_with('/')) options.prefix += '/';
    if (!options.prefix.empty()) {
        const auto checked = check_key(options.prefix.substr(0, options.prefix.size() - 1));
        if (!checked) return wrong(uri, "the prefix: " + checked.error().message);
    }
    if (options.prefix.size() > limits::s3_key_bytes_max / 2) {
        return wrong(uri, "the prefix leaves no room for keys: S3 allows " + std::to_string(limits::s3_key_bytes_max) +
                              " bytes for both");
    }
    return {};
}

Result<void> read_endpoints(const Uri& uri, const Environment& environment, const std::string& addressing,
                            S3Options& options) {
    auto list = text_param(uri, "endpoint");
    if (list.empty()) list = first_of(environment, {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}).value_or("");
    std::string_view rest = list;
    do {
        const auto comma = std::min(rest.find(','), rest.size());
        if (comma == 0 && !list.empty()) return wrong(uri, "endpoint: an empty one between commas");
        auto place = s3_place(std::string(rest.substr(0, comma)), options, addressing);
        if (!place) return wrong(uri, place.error().message);
        for (const auto& other : options.places) {
            if (other.url == place->url) return wrong(uri, "endpoint " + place->url + " is given twice");
        }
        options.places.push_back(std::move(*place));
        rest.remove_prefix(std::min(comma + 1, rest.size()));
    } while (!rest.empty());
    if (options.places.size() > limits::s3_endpoints_max) {
        return wrong(uri, "more than " + std::to_string(limits::s3_endpoints_max) + " endpoints");
    }
    options.virtual_hosts = options.places.front().base.empty();
    return {};
}

Result<void> read_limits(const Uri& uri, S3Options& options) {
    const auto connections = uri.number("connections", limits::s3_connections_default, 1, limits::s3_connections_max);
    if (!connections) return tl::unexpected(connections.error());
    const auto cores = std::max(1U, std::thread::hardware_concurrency());
    const auto threads = uri.number("threads", 1, 1, cores);
    if (!threads) return tl::unexpected(threads.error());
    const auto multipart = uri.size("multipart", limits::s3_multipart_bytes_default, limits::s3_part_bytes_min);
    if (!multipart) return tl::unexpected(multipart.error());
    if (*multipart > limits::s3_part_bytes_max) {
        return wrong(uri, "multipart: more than " + format_size(limits::s3_part_bytes_max) + " in one request");
    }
    const auto connect = duration(uri, "connect_timeout", limits::s3_connect_timeout);
    if (!connect) return tl::unexpected(connect.error());
    const auto stall = duration(uri, "stall_timeout", limits::s3_stall_timeout);
    if (!stall) return tl::unexpected(stall.error());
    const auto whole = duration(uri, "timeout", limits::s3_timeout);
    if (!whole) return tl::unexpected(whole.error());
    options.connections = static_cast<unsigned>(*connections);
    options.threads = static_cast<unsigned>(*threads);
    options.multipart_bytes = *multipart;
    options.connect_timeout = *connect;
    options.stall_timeout = *stall;
    options.timeout = *whole;
    return {};
}

}  // namespace

Environment process_environment() {
    return [](const char* name) -> std::optional<std::string> {
        const char* const value = std::getenv(name);
        return value == nullptr ? std::nullopt : std::optional<std::string>(value);
    };
}

S3Place s3_aws_place(const std::string& bucket, const std::string& region, bool virtual_host) {
    const std::string domain = region.starts_with("cn-") ? ".amazonaws.com.cn" : ".amazonaws.com";
    const auto host = "s3." + region + domain;
    S3Place place;
    place.url = "https://" + host;
    place.tls = place.aws = true;
    place.host = virtual_host ? bucket + "." + host : host;
    place.address = {place.host, "443"};
    place.base = virtual_host ? std::string() : "/" + bucket;
    return place;
}

Result<S3Place> s3_place(const std::string& url, const S3Options& options, const std::string& addressing) {
    if (url.empty()) {
        return s3_aws_place(options.bucket, options.region,
                            addressing == "virtual" || (addressing == "auto" && is_host_label(options.bucket)));
    }
    S3Place place;
    place.tls = url.starts_with("https://");
    if (!place.tls && !url.starts_with("http://")) {
        return fail(ErrorCode::invalid_argument,
                    "endpoint '" + url + "': write http://HOST:PORT or https://HOST, several with commas");
    }
    auto authority = std::string_view(url).substr(place.tls ? 8 : 7);
    if (authority.ends_with('/')) authority.remove_suffix(1);
    if (authority.find_first_of("/?#") != std::string_view::npos) {
        return fail(ErrorCode::invalid_argument, "endpoint '" + url +
                                                     "': a path is not possible: the bucket stands in "
                                                     "the store's own URI");
    }
    auto parsed = http::parse_host_port(authority);
    if (!parsed) return fail(ErrorCode::invalid_argument, "endpoint '" + url + "': " + parsed.error().message);
    const std::string own_port = place.tls ? "443" : "80";
    if (parsed->port.empty()) parsed->port = own_port;
    const bool named = !http::is_ip_address(parsed->host) && parsed->host != "localhost";
    const bool amazon = parsed->host.ends_with(".amazonaws.com") || parsed->host.ends_with(".amazonaws.com.cn");
    const bool virtual_host =
        addressing == "virtual" || (addressing == "auto" && amazon && is_host_label(options.bucket));
    if (virtual_host && !named) {
        return fail(ErrorCode::invalid_argument,
                    "addressing=virtual: endpoint '" + url + "' has no name that a bucket could stand before");
    }
    place.url = (place.tls ? "https://" : "http://") + std::string(authority);
    place.address = *parsed;
    if (virtual_host) place.address.host = options.bucket + "." + parsed->host;
    const bool six = place.address.host.find(':') != std::string::npos;
    place.host = six ? "[" + place.address.host + "]" : place.address.host;
    if (parsed->port != own_port) place.host += ":" + parsed->port;
    place.base = virtual_host ? std::string() : "/" + options.bucket;
    return place;
}

Result<S3Options> s3_options(const Uri& uri, const Environment& environment) {
    if (holds_secret(uri)) {
        return fail(
            ErrorCode::invalid_argument,
            "an s3: URI must not hold credentials, since URIs are logged: give them as credentials=FILE, in the "
            "environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY) or in ~/.aws/credentials");
    }
    if (auto checked = uri.only(known); !checked) return tl::unexpected(checked.error());
    S3Options options;
    if (auto read = read_place(uri, options); !read) return tl::unexpected(read.error());
    options.credentials_file = text_param(uri, "credentials");
    options.profile = text_param(uri, "profile");
    options.ca_file = text_param(uri, "ca");
    auto anonymous = uri.choice("anonymous", "0", flags);
    if (!anonymous) return tl::unexpected(anonymous.error());
    options.anonymous = *anonymous == "1";
    auto checksum = uri.choice("checksum", "crc64nvme", checksums);
    if (!checksum) return tl::unexpected(checksum.error());
    if (*checksum == "crc32c") options.checksum = http::ChecksumAlgorithm::crc32c;
    if (*checksum == "crc64nvme") options.checksum = http::ChecksumAlgorithm::crc64nvme;
    const auto rdma = uri.choice("rdma", "auto", rdma_ways);
    if (!rdma) return tl::unexpected(rdma.error());
    options.rdma =
        static_cast<S3Options::Rdma>(std::find(rdma_ways.begin(), rdma_ways.end(), *rdma) - rdma_ways.begin());
    const auto dialect = uri.choice("dialect", "auto", dialects);
    if (!dialect) return tl::unexpected(dialect.error());
    if (*dialect == "aws") options.dialect = &fabric::aws_dialect;
    if (*dialect == "dell") options.dialect = &fabric::dell_dialect;
    options.fabric_address = environment("KVERN_FABRIC_ADDRESS").value_or("");
    options.fabric_provider = environment("KVERN_FABRIC_PROVIDER").value_or("");
    const auto& ofi = fabric::ofi_providers;
    if (!options.fabric_provider.empty() && std::find(ofi.begin(), ofi.end(), options.fabric_provider) == ofi.end()) {
        return fail(ErrorCode::invalid_argument, "KVERN_FABRIC_PROVIDER='" + options.fabric_provider +
                                                     "': known are '" + std::string(ofi[0]) + "' and '" +
                                                     std::string(ofi[1]) + "'");
    }
    const auto addressing = uri.choice("addressing", "auto", addressings);
    if (!addressing) return tl::unexpected(addressing.error());
    options.region = text_param(uri, "region");
    if (options.region.empty()) {
        options.region = first_of(environment, {"AWS_REGION", "AWS_DEFAULT_REGION"}).value_or("");
    }
    if (options.region.empty()) {
        const auto profile = options.profile.empty() ? environment("AWS_PROFILE").value_or("default") : options.profile;
        options.region = configured_region(profile, environment);
    }
    if (options.region.empty()) options.region = "us-east-1";
    if (!is_host_label(options.region)) return wrong(uri, "region '" + options.region + "' is no name of a region");
    if (auto read = read_endpoints(uri, environment, *addressing, options); !read) {
        return tl::unexpected(read.error());
    }
    if (auto read = read_limits(uri, options); !read) return tl::unexpected(read.error());
    return options;
}

}  // namespace kvern
