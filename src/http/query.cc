// SPDX-License-Identifier: Apache-2.0
#include "http/query.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "http/percent.h"
#include "kvern/limits.h"

namespace kvern::http {
namespace {

Result<QueryPair> parse_pair(std::string_view part) {
    const std::size_t equals = part.find('=');
    QueryPair pair;
    for (auto* const half : {&pair.name, &pair.value}) {
        const bool is_name = half == &pair.name;
        if (!is_name && equals == part.npos) break;
        auto decoded = percent_decode(is_name ? part.substr(0, equals) : part.substr(equals + 1), Plus::space);
        if (!decoded) {
            return fail(ErrorCode::invalid_argument, fmt::format("query '{}': {}", part, decoded.error().message));
        }
        *half = std::move(*decoded);
    }
    return pair;
}

}  // namespace

Result<std::vector<QueryPair>> parse_query(std::string_view raw) {
    std::vector<QueryPair> pairs;
    while (!raw.empty()) {
        const std::string_view part = raw.substr(0, raw.find('&'));
        raw.remove_prefix(std::min(raw.size(), part.size() + 1));
        if (part.empty()) continue;
        if (pairs.size() == limits::query_pairs_max) {
            return fail(ErrorCode::invalid_argument,
                        fmt::format("the query has more than {} parameters", limits::query_pairs_max));
        }
        auto pair = parse_pair(part);
        if (!pair) return tl::unexpected(std::move(pair.error()));
        pairs.push_back(std::move(*pair));
    }
    return pairs;
}

std::string canonical_query(std::span<const QueryPair> pairs) {
    std::vector<std::pair<std::string, std::string>> encoded;
    encoded.reserve(pairs.size());
    std::size_t size_bytes = 0;
    for (const QueryPair& pair : pairs) {
        encoded.emplace_back(percent_encode(pair.name, Slash::encode), percent_encode(pair.value, Slash::encode));
        size_bytes += encoded.back().first.size() + encoded.back().second.size() + 2;
    }
    std::sort(encoded.begin(), encoded.end());
    std::string text;
    text.reserve(size_bytes);
    for (const auto& [name, value] : encoded) {
        if (!text.empty()) text += '&';
        text += name;
        text += '=';
        text += value;
    }
    return text;
}

const QueryPair* find_query(std::span<const QueryPair> pairs, std::string_view name) {
    const auto found =
        std::find_if(pairs.begin(), pairs.end(), [&](const QueryPair& pair) { return pair.name == name; });
    return found == pairs.end() ? nullptr : &*found;
}

}  // namespace kvern::http
