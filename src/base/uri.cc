// SPDX-License-Identifier: Apache-2.0
#include "base/uri.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "base/text.h"

namespace kvern {
namespace {

tl::unexpected<Error> wrong(std::string message) {
    return fail(ErrorCode::invalid_argument, std::move(message));
}

bool is_scheme(std::string_view text) {
    const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
    if (text.empty() || !is_letter(text.front())) return false;
    return std::all_of(text.begin(), text.end(), [&](char c) {
        return is_letter(c) || (c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.';
    });
}

std::string lower(std::string_view text) {
    std::string result(text);
    for (char& c : result) {
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    return result;
}

// Unescapes one part; a byte 0 would cut the text short in every system call.
Result<std::string> part(std::string_view uri, std::string_view text) {
    auto bytes = url_unescape(text);
    if (!bytes) return wrong(fmt::format("URI '{}': {}", uri, bytes.error().message));
    if (bytes->find('\0') != std::string::npos) return wrong(fmt::format("URI '{}': '{}' holds a byte 0", uri, text));
    return bytes;
}

Result<void> parse_params(Uri& uri, std::string_view query) {
    while (!query.empty()) {
        const std::string_view pair = query.substr(0, query.find('&'));
        query.remove_prefix(std::min(query.size(), pair.size() + 1));
        const std::size_t equals = pair.find('=');
        if (equals == 0 || equals == std::string_view::npos) {
            return wrong(fmt::format("URI '{}': '{}' is no parameter: write name=value", uri.text, pair));
        }
        auto name = part(uri.text, pair.substr(0, equals));
        if (!name) return tl::unexpected(name.error());
        auto value = part(uri.text, pair.substr(equals + 1));
        if (!value) return tl::unexpected(value.error());
        if (!uri.params.emplace(*name, *value).second) {
            return wrong(fmt::format("URI '{}': parameter '{}' is given twice", uri.text, *name));
        }
    }
    return {};
}

Result<void> parse_place(Uri& uri, std::string_view place) {
    std::string_view host;
    if (place.starts_with("//")) {
        place.remove_prefix(2);
        host = place.substr(0, place.find('/'));
        place.remove_prefix(host.size());
    }
    auto host_bytes = part(uri.text, host);
    if (!host_bytes) return tl::unexpected(host_bytes.error());
    auto path_bytes = part(uri.text, place);
    if (!path_bytes) return tl::unexpected(path_bytes.error());
    uri.host = std::move(*host_bytes);
    uri.path = std::move(*path_bytes);
    return {};
}

}  // namespace

Result<Uri> Uri::parse(std::string_view text) {
    const std::size_t colon = text.find(':');
    if (colon == std::string_view::npos || !is_scheme(text.substr(0, colon))) {
        const std::string_view hint = text.starts_with('/') ? " (did you mean 'file://" : "";
        return wrong(hint.empty() ? fmt::format("'{}' is no URI: write scheme:…, as in file:///mnt/kv or mem:", text)
                                  : fmt::format("'{}' is no URI{}{}'?)", text, hint, text));
    }
    if (text.find('#') != std::string_view::npos) {
        return wrong(fmt::format("URI '{}': a fragment means nothing here (a plain '#' is %23)", text));
    }
    Uri uri;
    uri.text = text;
    uri.scheme = lower(text.substr(0, colon));
    const std::string_view rest = text.substr(colon + 1);
    const std::size_t question = rest.find('?');
    if (auto done = parse_place(uri, rest.substr(0, question)); !done) return tl::unexpected(done.error());
    if (question != std::string_view::npos) {
        if (auto done = parse_params(uri, rest.substr(question + 1)); !done) return tl::unexpected(done.error());
    }
    return uri;
}

Result<void> Uri::only(std::span<const std::string_view> known) const {
    for (const auto& [name, value] : params) {
        if (std::find(known.begin(), known.end(), name) != known.end()) continue;
        return wrong(fmt::format("URI '{}': unknown parameter '{}={}'{}", text, name, value, suggestion(name, known)));
    }
    return {};
}

Result<std::string> Uri::choice(std::string_view name, std::string_view fallback,
                                std::span<const std::string_view> allowed) const {
    const auto found = params.find(name);
    if (found == params.end()) return std::string(fallback);
    if (std::find(allowed.begin(), allowed.end(), found->second) != allowed.end()) return found->second;
    return wrong(fmt::format("URI '{}': {}={} is not possible{}", text, name, found->second,
                             suggestion(found->second, allowed)));
}

Result<std::uint64_t> Uri::number(std::string_view name, std::uint64_t fallback, std::uint64_t min,
                                  std::uint64_t max) const {
    const auto found = params.find(name);
    if (found == params.end()) return fallback;
    const std::string& value = found->second;
    std::uint64_t number = 0;
    const auto [rest, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc{} || rest != value.data() + value.size() || number < min || number > max) {
        return wrong(fmt::format("URI '{}': {}={} must be a whole number from {} to {}", text, name, value, min, max));
    }
    return number;
}

Result<std::uint64_t> Uri::size(std::string_view name, std::uint64_t fallback, std::uint64_t min) const {
    const auto found = params.find(name);
    if (found == params.end()) return fallback;
    auto bytes = parse_size(found->second);
    if (!bytes) return wrong(fmt::format("URI '{}': {}: {}", text, name, bytes.error().message));
    if (*bytes < min) {
        return wrong(
            fmt::format("URI '{}': {}={} is less than the least, {}", text, name, found->second, format_size(min)));
    }
    return *bytes;
}

}  // namespace kvern
