// SPDX-License-Identifier: Apache-2.0
#include "server/request.h"

#include <algorithm>
#include <charconv>

#include "http/address.h"
#include "http/percent.h"
#include "kvern/limits.h"

namespace kvern::server {

using http::refuse;
using http::S3Code;
using http::S3Result;

std::optional<std::string_view> Request::param(std::string_view name) const {
    const auto* const pair = http::find_query(query, name);
    if (pair == nullptr) return std::nullopt;
    return pair->value;
}

namespace {

// The bucket that a virtual host names, if it is one of ours.
std::optional<std::string> bucket_of_host(std::string_view host, const std::vector<std::string>& domains) {
    host = host.substr(0, host.rfind(':'));
    for (const auto& domain : domains) {
        if (host.size() > domain.size() + 1 && host.ends_with(domain) && host[host.size() - domain.size() - 1] == '.') {
            return std::string(host.substr(0, host.size() - domain.size() - 1));
        }
    }
    return std::nullopt;
}

}  // namespace

S3Result<> parse_target(Request& request, const std::vector<std::string>& domains) {
    auto target = request.exchange.request().target;
    if (!target.starts_with('/')) {  // "http://host/path", as proxies are asked
        const auto scheme = target.find("://");
        const auto slash = scheme == std::string_view::npos ? scheme : target.find('/', scheme + 3);
        if (slash == std::string_view::npos) return refuse(S3Code::invalid_uri, "The request's target is no path");
        target.remove_prefix(slash);
    }
    const auto question = std::min(target.find('?'), target.size());
    request.raw_path = target.substr(0, question);
    auto query = http::parse_query(target.substr(std::min(question + 1, target.size())));
    if (!query) return refuse(S3Code::invalid_uri, query.error().message);
    request.query = std::move(*query);

    auto path = http::percent_decode(request.raw_path.substr(1), http::Plus::literal);
    if (!path) return refuse(S3Code::invalid_uri, path.error().message);
    if (auto bucket = bucket_of_host(request.header("host").value_or(""), domains)) {
        request.bucket = std::move(*bucket);
        request.key = std::move(*path);
    } else {
        const auto slash = std::min(path->find('/'), path->size());
        request.bucket = path->substr(0, slash);
        request.key = path->substr(std::min(slash + 1, path->size()));
    }
    if (request.key.size() > limits::s3_key_bytes_max) {
        return refuse(S3Code::key_too_long, "Keys have at most " + std::to_string(limits::s3_key_bytes_max) + " bytes");
    }
    return {};
}

bool valid_bucket_name(std::string_view name) {
    const auto alnum = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
    if (name.size() < 3 || name.size() > 63) return false;
    if (!alnum(name.front()) || !alnum(name.back())) return false;
    for (std::size_t i = 0; i < name.size(); ++i) {
        const char c = name[i];
        if (!alnum(c) && c != '-' && c != '.') return false;
        if (c == '.' && (name[i - 1] == '.' || name[i - 1] == '-' || name[i + 1] == '-')) return false;
    }
    return !http::is_ip_address(name);
}

S3Result<CopySource> parse_copy_source(std::string_view value) {
    const auto version = value.find("?versionId=");
    if (version != std::string_view::npos && value.substr(version) != "?versionId=null") {
        return refuse(S3Code::not_implemented,
                      "Versions of objects (versionId in x-amz-copy-source) are not implemented");
    }
    auto text = http::percent_decode(value.substr(0, version), http::Plus::literal);
    if (!text) return refuse(S3Code::invalid_argument, "x-amz-copy-source: " + text.error().message);
    std::string_view rest = *text;
    if (rest.starts_with('/')) rest.remove_prefix(1);
    const auto slash = rest.find('/');
    if (slash == std::string_view::npos || slash == 0 || slash + 1 == rest.size()) {
        return refuse(S3Code::invalid_argument, "x-amz-copy-source must be bucket/key");
    }
    return CopySource{std::string(rest.substr(0, slash)), std::string(rest.substr(slash + 1))};
}

std::optional<std::uint64_t> parse_number(std::string_view text, std::uint64_t max) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || text.empty() || value > max) return std::nullopt;
    return value;
}

}  // namespace kvern::server
