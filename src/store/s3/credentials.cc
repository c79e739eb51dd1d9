// SPDX-License-Identifier: Apache-2.0
#include "store/s3/credentials.h"

#include <sys/stat.h>

#include <array>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "http/date.h"
#include "kvern/limits.h"
#include "store/s3/profiles.h"

namespace kvern {
namespace {

constexpr std::string_view instance_host = "169.254.169.254";
constexpr std::string_view container_host = "169.254.170.2";

tl::unexpected<Error> none(const std::string& what) {
    return fail(ErrorCode::permission, "S3 credentials: " + what);
}

std::string value_of(const Profile& profile, std::string_view name) {
    const auto found = profile.find(name);
    return found == profile.end() ? std::string() : found->second;
}

// Nothing where the profile has no keys.
Result<std::optional<S3Keys>> keys_of(const Profiles& profiles, const std::string& name, const std::string& path) {
    const auto found = profiles.find(name);
    if (found == profiles.end()) return std::nullopt;
    S3Keys keys;
    keys.credentials.access_key = value_of(found->second, "aws_access_key_id");
    keys.credentials.secret_key = value_of(found->second, "aws_secret_access_key");
    keys.credentials.session_token = value_of(found->second, "aws_session_token");
    const bool has_access = !keys.credentials.access_key.empty(), has_secret = !keys.credentials.secret_key.empty();
    if (has_access && has_secret) return std::optional<S3Keys>(std::move(keys));
    if (has_access || has_secret) {
        return none("profile '" + name + "' of " + path + " has no " +
                    (has_access ? "aws_secret_access_key" : "aws_access_key_id"));
    }
    for (const std::string_view other : {"credential_process", "sso_session", "sso_start_url", "role_arn"}) {
        if (!found->second.contains(other)) continue;
        return none("profile '" + name + "' of " + path + " uses " + std::string(other) +
                    ", which is not supported: write its keys into a file (aws configure export-credentials) and "
                    "give it as credentials=FILE");
    }
    return std::nullopt;
}

Result<std::optional<S3Keys>> keys_in_file(const std::string& path, const std::string& profile) {
    const auto profiles = read_profiles(path);
    if (!profiles) return tl::unexpected(profiles.error());
    if (!*profiles) return std::nullopt;
    return keys_of(**profiles, profile, path);
}

std::function<Result<S3Keys>()> file_reader(std::string path, std::string profile) {
    return [path = std::move(path), profile = std::move(profile)]() -> Result<S3Keys> {
        auto keys = keys_in_file(path, profile);
        if (!keys) return tl::unexpected(keys.error());
        if (!*keys) return none("profile '" + profile + "' is no longer in " + path);
        return std::move(**keys);
    };
}

Result<S3KeySource> given_file(const std::string& path, const std::string& profile) {
    const auto keys = keys_in_file(path, profile);
    if (!keys) return tl::unexpected(keys.error());
    if (!*keys) {
        struct stat status {};
        const bool there = ::stat(path.c_str(), &status) == 0;
        return none(there ? path + " has no profile '" + profile + "' with aws_access_key_id and aws_secret_access_key"
                          : path + " does not exist");
    }
    S3KeySource source;
    source.described = "profile '" + profile + "' of " + path;
    source.read = file_reader(path, profile);
    return source;
}

std::optional<S3KeySource> from_environment(const Environment& environment) {
    S3Keys keys;
    keys.credentials.access_key = environment("AWS_ACCESS_KEY_ID").value_or("");
    keys.credentials.secret_key = environment("AWS_SECRET_ACCESS_KEY").value_or("");
    keys.credentials.session_token = environment("AWS_SESSION_TOKEN").value_or("");
    if (keys.credentials.access_key.empty() || keys.credentials.secret_key.empty()) return std::nullopt;
    S3KeySource source;
    source.described = "the environment";
    source.read = [keys]() -> Result<S3Keys> { return keys; };
    return source;
}

std::string home_file(const Environment& environment, const char* variable, const char* name) {
    if (auto path = environment(variable)) return *path;
    const auto home = environment("HOME");
    return home ? *home + "/.aws/" + name : std::string();
}

// Credentials first, since the tools prefer them; then the settings, which may hold keys as well.
Result<std::optional<S3KeySource>> from_shared_files(const Environment& environment, const std::string& profile,
                                                     std::string& looked) {
    for (const auto& path : {home_file(environment, "AWS_SHARED_CREDENTIALS_FILE", "credentials"),
                             home_file(environment, "AWS_CONFIG_FILE", "config")}) {
        if (path.empty()) continue;
        looked += ", profile '" + profile + "' of " + path;
        const auto keys = keys_in_file(path, profile);
        if (!keys) return tl::unexpected(keys.error());
        if (!*keys) continue;
        S3KeySource source;
        source.described = "profile '" + profile + "' of " + path;
        source.read = file_reader(path, profile);
        return std::optional<S3KeySource>(std::move(source));
    }
    return std::nullopt;
}

bool is_link_local(std::string_view host) {
    return (host.starts_with("169.254.") && http::is_ip_address(host)) || host.starts_with("fe80:") ||
           host == "fd00:ec2::23";
}

// Splits http://host[:port]/path; a token may be sent there, so plain HTTP goes to this host or its link only.
Result<void> read_container_url(const std::string& url, S3KeySource& source) {
    source.tls = url.starts_with("https://");
    if (!source.tls && !url.starts_with("http://")) return none("AWS_CONTAINER_CREDENTIALS_FULL_URI is no http URL");
    const auto rest = std::string_view(url).substr(source.tls ? 8 : 7);
    const auto slash = std::min(rest.find('/'), rest.size());
    auto address = http::parse_host_port(rest.substr(0, slash));
    if (!address) return none("AWS_CONTAINER_CREDENTIALS_FULL_URI: " + address.error().message);
    if (!source.tls && !http::is_loopback(address->host) && !is_link_local(address->host)) {
        return none("AWS_CONTAINER_CREDENTIALS_FULL_URI: host '" + address->host +
                    "' is not this host's, and the URL is not https");
    }
    if (address->port.empty()) address->port = source.tls ? "443" : "80";
    source.address = std::move(*address);
    source.path = slash == rest.size() ? "/" : std::string(rest.substr(slash));
    return {};
}

std::function<Result<std::string>()> token_reader(const Environment& environment) {
    const auto file = environment("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    const auto token = environment("AWS_CONTAINER_AUTHORIZATION_TOKEN").value_or("");
    return [file, token]() -> Result<std::string> {
        auto text = token;
        if (file) {  // read each time: it changes
            std::ifstream stream(*file, std::ios::binary);
            if (!stream) return none("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE: " + *file + " can't be read");
            text.assign(std::istreambuf_iterator<char>(stream), {});
            while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
        }
        if (text.find_first_of("\r\n") != std::string::npos) return none("the container's token has a line end");
        return text;
    };
}

Result<std::optional<S3KeySource>> from_container(const Environment& environment) {
    S3KeySource source;
    source.kind = S3KeySource::Kind::container;
    source.described = "the container's endpoint";
    source.authorization = token_reader(environment);
    if (const auto relative = environment("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")) {
        source.address = {std::string(container_host), "80"};
        source.path = *relative;
        if (!source.path.starts_with('/')) source.path.insert(0, "/");
    } else if (const auto full = environment("AWS_CONTAINER_CREDENTIALS_FULL_URI")) {
        if (auto read = read_container_url(*full, source); !read) return tl::unexpected(read.error());
    } else {
        return std::nullopt;
    }
    if (source.path.find_first_of(" \r\n") != std::string::npos) return none("the container's URI has a blank");
    return std::optional<S3KeySource>(std::move(source));
}

Result<S3KeySource> from_instance(const Environment& environment, const std::string& looked) {
    const auto disabled = environment("AWS_EC2_METADATA_DISABLED").value_or("");
    if (disabled == "true" || disabled == "TRUE" || disabled == "1") {
        return none("none found: looked in " + looked +
                    "; the instance's metadata service is switched off (AWS_EC2_METADATA_DISABLED). Give "
                    "credentials=FILE, or anonymous=1 for a public bucket");
    }
    S3KeySource source;
    source.kind = S3KeySource::Kind::instance;
    source.described = "the instance's metadata service (there are none in " + looked + ")";
    source.address = {std::string(instance_host), "80"};
    if (const auto endpoint = environment("AWS_EC2_METADATA_SERVICE_ENDPOINT"); endpoint && !endpoint->empty()) {
        auto text = std::string_view(*endpoint);
        if (text.starts_with("http://")) text.remove_prefix(7);
        if (text.ends_with('/')) text.remove_suffix(1);
        auto address = http::parse_host_port(text);
        if (!address) return none("AWS_EC2_METADATA_SERVICE_ENDPOINT: " + address.error().message);
        if (address->port.empty()) address->port = "80";
        source.address = std::move(*address);
    }
    return source;
}

}  // namespace

Result<S3KeySource> find_s3_keys(const S3Options& options, const Environment& environment) {
    if (options.anonymous) {
        S3KeySource source;
        source.kind = S3KeySource::Kind::anonymous;
        source.described = "none (anonymous=1)";
        return source;
    }
    const auto profile = options.profile.empty() ? environment("AWS_PROFILE").value_or("default") : options.profile;
    if (!options.credentials_file.empty()) return given_file(options.credentials_file, profile);
    std::string looked = "the environment";
    if (options.profile.empty()) {
        if (auto source = from_environment(environment)) return std::move(*source);
    } else {
        looked = "no environment since profile= is given";
    }
    auto shared = from_shared_files(environment, profile, looked);
    if (!shared) return tl::unexpected(shared.error());
    if (*shared) return std::move(**shared);
    if (!options.profile.empty()) return none("none found: looked in " + looked.substr(looked.find(", ") + 2));
    auto container = from_container(environment);
    if (!container) return tl::unexpected(container.error());
    if (*container) return std::move(**container);
    return from_instance(environment, looked);
}

Result<S3Keys> parse_key_document(std::string_view json) {
    if (json_deeper_than(json, limits::json_depth_max)) return none("the answer is nested too deep");
    const auto document = nlohmann::json::parse(json, nullptr, false);
    if (!document.is_object()) return none("the answer is no JSON object");
    const auto text = [&document](const char* name) {
        const auto found = document.find(name);
        return found != document.end() && found->is_string() ? found->get<std::string>() : std::string();
    };
    if (const auto code = text("Code"); !code.empty() && code != "Success") {
        return none("the answer's Code is '" + url_escape(code.substr(0, limits::s3_answer_shown_bytes_max)) + "'");
    }
    S3Keys keys;
    keys.credentials = {text("AccessKeyId"), text("SecretAccessKey"), text("Token")};
    if (keys.credentials.access_key.empty() || keys.credentials.secret_key.empty()) {
        return none("the answer has no AccessKeyId and SecretAccessKey");
    }
    // They become parts of headers.
    for (const auto& part : {keys.credentials.access_key, keys.credentials.session_token}) {
        if (std::any_of(part.begin(), part.end(), [](char c) { return c < 0x21 || c > 0x7e; })) {
            return none("the answer's AccessKeyId or Token has bytes that no header may have");
        }
    }
    if (const auto expiration = text("Expiration"); !expiration.empty()) {
        const auto time = http::parse_iso_date(expiration);
        if (!time) return none("the answer's Expiration is no date");
        keys.expires_ns = unix_ns(std::chrono::floor<std::chrono::seconds>(time->time_since_epoch()));
    }
    return keys;
}

}  // namespace kvern
