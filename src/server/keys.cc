// SPDX-License-Identifier: Apache-2.0
#include "server/keys.h"

#include <sys/stat.h>
#include <unistd.h>

#include <toml++/toml.h>
#include <algorithm>
#include <array>

#include "base/text.h"

namespace kvern::server {
namespace {

constexpr std::array<std::string_view, 5> known_names{"access", "secret", "rights", "buckets", "prefix"};

tl::unexpected<Error> wrong(const std::string& path, std::size_t index, const std::string& what) {
    return fail(ErrorCode::invalid_argument, "keys '" + path + "': key " + std::to_string(index + 1) + ": " + what);
}

Result<AccessKey> read_key(const std::string& path, std::size_t index, const toml::table& table) {
    for (const auto& [name, value] : table) {
        if (std::find(known_names.begin(), known_names.end(), name.str()) == known_names.end()) {
            return wrong(path, index,
                         "unknown '" + std::string(name.str()) + "'" + suggestion(name.str(), known_names));
        }
        const bool is_list = name.str() == "buckets";
        if (is_list ? !value.is_array() : !value.is_string()) {
            return wrong(path, index,
                         std::string(name.str()) + (is_list ? " must be a list of names" : " must be a text"));
        }
    }
    AccessKey key;
    key.credentials.access_key = table["access"].value_or(std::string());
    key.credentials.secret_key = table["secret"].value_or(std::string());
    if (key.credentials.access_key.empty() || key.credentials.secret_key.empty()) {
        return wrong(path, index, "access and secret must be given");
    }
    const auto rights = table["rights"].value_or(std::string("write"));
    if (rights != "read" && rights != "write") return wrong(path, index, "rights must be \"read\" or \"write\"");
    key.may_write = rights == "write";
    key.prefix = table["prefix"].value_or(std::string());
    if (const auto* list = table["buckets"].as_array()) {
        for (const auto& one : *list) {
            if (!one.is_string()) return wrong(path, index, "buckets must be a list of names");
            key.buckets.push_back(one.value_or(std::string()));
        }
        // An empty list would mean "none" to its writer and "all" to us.
        if (key.buckets.empty()) return wrong(path, index, "buckets is empty: leave it out to allow all");
    }
    return key;
}

}  // namespace

bool AccessKey::allows_bucket(std::string_view bucket) const {
    return buckets.empty() || std::any_of(buckets.begin(), buckets.end(), [&](const std::string& one) {
               return one.ends_with('*') ? bucket.starts_with(std::string_view(one).substr(0, one.size() - 1))
                                         : bucket == one;
           });
}

bool AccessKey::allows(Right right, std::string_view bucket, std::string_view key) const {
    return (right == Right::read || may_write) && allows_bucket(bucket) && key.starts_with(prefix);
}

AccessKeys AccessKeys::single(http::Credentials credentials) {
    AccessKeys keys;
    keys.keys_.push_back({std::move(credentials), {}, "", true});
    return keys;
}

Result<AccessKeys> AccessKeys::load(const std::string& path) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) return tl::unexpected(error_from_errno(errno, "keys '" + path + "'"));
    // A file of root's that our group may read was handed to us: so does a package, and Kubernetes a secret.
    const bool handed = status.st_uid == 0 && geteuid() != 0;
    if ((status.st_mode & (handed ? 037 : 077)) != 0) {
        return fail(ErrorCode::permission, "keys '" + path + "': others may read it: chmod 600 it");
    }
    AccessKeys keys;
    try {
        const auto document = toml::parse_file(path);
        for (const auto& [name, value] : document) {
            if (name.str() != "key" || !value.is_array_of_tables()) {
                return fail(ErrorCode::invalid_argument,
                            "keys '" + path + "': expected [[key]] tables, found '" + std::string(name.str()) + "'");
            }
        }
        if (const auto* list = document["key"].as_array()) {
            for (std::size_t index = 0; index < list->size(); ++index) {
                auto key = read_key(path, index, *list->get(index)->as_table());
                if (!key) return tl::unexpected(key.error());
                if (keys.find(key->credentials.access_key) != nullptr) {
                    return wrong(path, index, "its access key stands there twice");
                }
                keys.keys_.push_back(std::move(*key));
            }
        }
    } catch (const toml::parse_error& error) {
        return fail(ErrorCode::invalid_argument, "keys '" + path + "': line " +
                                                     std::to_string(error.source().begin.line) + ": " +
                                                     std::string(error.description()));
    }
    if (keys.keys_.empty()) return fail(ErrorCode::invalid_argument, "keys '" + path + "': no [[key]] in it");
    return keys;
}

const AccessKey* AccessKeys::find(std::string_view access_key) const {
    for (const auto& key : keys_) {
        if (key.credentials.access_key == access_key) return &key;
    }
    return nullptr;
}

}  // namespace kvern::server
