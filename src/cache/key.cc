// SPDX-License-Identifier: Apache-2.0
#include "cache/key.h"

#include <fmt/format.h>

#include <charconv>

#include "base/text.h"

namespace kvern {

std::string Shard::text() const {
    return fmt::format("l{}-{}.h{}-{}", first_layer, last_layer, first_head, last_head);
}

std::string object_key(std::string_view namespace_hex, const ChunkId& chunk, std::uint32_t group,
                       std::string_view shard_text) {
    const std::string hex = to_hex(chunk.hash.bytes());
    return fmt::format("{}/{}/{}.p{:016x}.g{}.{}", namespace_hex, std::string_view(hex).substr(0, 2), hex, chunk.parent,
                       group, shard_text);
}

std::string identity_key(std::string_view namespace_hex) {
    return fmt::format("{}/identity.json", namespace_hex);
}
std::string label_key(std::string_view namespace_hex) {
    return fmt::format("{}/label", namespace_hex);
}

namespace {

// Reads what the writer writes, and nothing else: `prefix`, then a decimal number without leading zeros.
bool take_number(std::string_view& text, std::string_view prefix, std::uint32_t& number) {
    if (!text.starts_with(prefix)) return false;
    text.remove_prefix(prefix.size());
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    const auto digits = static_cast<std::size_t>(end - text.data());
    if (error != std::errc() || (digits > 1 && text[0] == '0')) return false;
    text.remove_prefix(digits);
    return true;
}

// `prefix`, then 16 hex digits.
bool take_tag(std::string_view& text, std::string_view prefix, std::uint64_t& tag) {
    if (!text.starts_with(prefix)) return false;
    text.remove_prefix(prefix.size());
    if (text.size() < 16) return false;
    const auto [end, error] = std::from_chars(text.data(), text.data() + 16, tag, 16);
    if (error != std::errc() || end != text.data() + 16) return false;
    text.remove_prefix(16);
    return true;
}

}  // namespace

std::optional<ObjectName> parse_object_key(std::string_view key) {
    ObjectName name;
    if (key.size() < 68 || key[64] != '/' || key[67] != '/') return std::nullopt;
    name.namespace_hex = key.substr(0, 64);
    const auto digest = from_hex(name.namespace_hex);
    if (!digest) return std::nullopt;
    const std::string_view fan_out = key.substr(65, 2);
    std::string_view leaf = key.substr(68);
    const auto dot = leaf.find('.');
    if (dot == std::string_view::npos || !leaf.starts_with(fan_out)) return std::nullopt;
    const auto hash = from_hex(leaf.substr(0, dot));
    if (!hash || !ChunkHash::valid(*hash)) return std::nullopt;
    name.chunk.hash = ChunkHash(*hash);
    leaf.remove_prefix(dot);
    if (!take_tag(leaf, ".p", name.chunk.parent) || !take_number(leaf, ".g", name.group) ||
        !take_number(leaf, ".l", name.shard.first_layer) || !take_number(leaf, "-", name.shard.last_layer) ||
        !take_number(leaf, ".h", name.shard.first_head) || !take_number(leaf, "-", name.shard.last_head) ||
        !leaf.empty())
        return std::nullopt;
    // Upper-case digits would name the same bytes twice: only the canonical spelling counts.
    if (object_key(name.namespace_hex, name.chunk, name.group, name.shard.text()) != key ||
        to_hex(*digest) != name.namespace_hex)
        return std::nullopt;
    return name;
}

}  // namespace kvern
