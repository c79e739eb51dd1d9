// SPDX-License-Identifier: Apache-2.0
#include "cli/target.h"

#include <fmt/format.h>

#include <ctime>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "kvern/limits.h"

namespace kvern::cli {

Result<Target> open_target(const std::string& uri, const std::string& escaped_key) {
    auto key = url_unescape(escaped_key);
    if (!key) return tl::unexpected(Error{key.error().code, "key " + key.error().message});
    if (auto checked = check_key(*key); !checked) return tl::unexpected(checked.error());
    auto store = open_store(uri);
    if (!store) return tl::unexpected(store.error());
    return Target{std::move(*store), std::move(*key)};
}

Result<Lease> lease_memory(std::size_t size_bytes) {
    RegionOptions options;
    options.name = "kvern-cli";
    options.size_bytes = size_bytes;
    options.touch_in_background = false;  // a small value needs only its own pages
    auto region = Region::create(options);
    if (!region) return tl::unexpected(region.error());
    auto lease = (*region)->try_lease(size_bytes);
    if (!lease) return fail(ErrorCode::internal, "a fresh region has no room");
    return std::move(*lease);
}

Outcome ask(Store& store, Op op, Lease* memory) {
    auto kept = std::make_shared<Lease>();
    if (memory != nullptr) *kept = std::move(*memory);
    auto outcome = run(store, std::move(op), limits::command_wait, kept);
    if (memory != nullptr && kept.use_count() == 1) *memory = std::move(*kept);  // answered: the caller's again
    return outcome;
}

std::string stat_json(const std::string& key, const Stat& stat) {
    const nlohmann::ordered_json document{{"key", url_escape(key)},
                                          {"size_bytes", stat.size_bytes},
                                          {"mtime_ns", stat.mtime_ns},
                                          {"etag", stat.etag},
                                          {"metadata_hex", to_hex(stat.metadata)}};
    return document.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string format_time(std::int64_t mtime_ns) {
    const std::time_t seconds = mtime_ns / 1'000'000'000;
    std::tm parts{};
    gmtime_r(&seconds, &parts);
    return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02}", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,
                       parts.tm_hour, parts.tm_min, parts.tm_sec);
}

}  // namespace kvern::cli
