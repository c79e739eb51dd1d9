// SPDX-License-Identifier: Apache-2.0
#include "fabric/token.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <vector>

#include "base/text.h"
#include "kvern/limits.h"

namespace kvern::fabric {
namespace {

constexpr std::size_t window_digits = 32;
constexpr std::size_t fields_max = 9;
constexpr std::array<std::size_t, 7> descriptor_widths{16, 8, 8, 4, 6, 1, 32};
constexpr std::size_t suffix_width = 16;
constexpr std::size_t descriptor_bytes = 81;
constexpr std::uint32_t dct_number_mask = 0xffffff;

tl::unexpected<Error> wrong(std::string_view what) {
    return fail(ErrorCode::invalid_argument, "the token " + std::string(what));
}

// At most `most` fields; more are a single further one.
std::vector<std::string_view> fields_of(std::string_view text, std::size_t most) {
    std::vector<std::string_view> fields;
    for (;;) {
        const auto colon = fields.size() < most ? text.find(':') : std::string_view::npos;
        fields.push_back(text.substr(0, colon));
        if (colon == std::string_view::npos) return fields;
        text.remove_prefix(colon + 1);
    }
}

bool is_hex(std::string_view text) {
    return std::all_of(text.begin(), text.end(), [](char c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
    });
}

std::optional<std::uint64_t> hex(std::string_view text) {
    std::uint64_t value = 0;
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
    if (text.empty() || error != std::errc{} || rest != text.data() + text.size()) return std::nullopt;
    return value;
}

// "local1" is version 1 of local. Nothing: another word.
std::optional<unsigned> version_of(std::string_view field, std::string_view word) {
    if (!field.starts_with(word)) return std::nullopt;
    field.remove_prefix(word.size());
    unsigned version = 0;
    const auto [rest, error] = std::from_chars(field.data(), field.data() + field.size(), version);
    if (field.empty() || error != std::errc{} || rest != field.data() + field.size()) return std::nullopt;
    return version;
}

Result<Token> checked_range(Token token) {
    if (token.size_bytes == 0) return wrong("names no bytes");
    if (token.base > ~std::uint64_t{0} - token.size_bytes) return wrong("names a range that ends beyond all memory");
    return token;
}

Result<Token> read_range(TokenKind kind, const std::vector<std::string_view>& fields) {
    const auto base = hex(fields[0]), size = hex(fields[1]);
    if (!base || !size) return wrong("begins with something else than two numbers in hex");
    Token token;
    token.kind = kind;
    token.base = *base;
    token.size_bytes = *size;
    return checked_range(std::move(token));
}

Result<Token> parse_local(const std::vector<std::string_view>& fields, unsigned version) {
    if (version != 1)
        return fail(ErrorCode::not_supported, "the token is of a later version: local" + std::to_string(version));
    if (fields.size() != 4) return wrong("of kind local1 must have 4 fields");
    auto token = read_range(TokenKind::local, fields);
    if (!token) return token;
    if (fields[3].size() != window_digits || !is_hex(fields[3])) return wrong("names no window");
    token->window = fields[3];
    return token;
}

Result<Token> parse_ofi(const std::vector<std::string_view>& fields, unsigned version) {
    if (version != 1)
        return fail(ErrorCode::not_supported, "the token is of a later version: ofi" + std::to_string(version));
    if (fields.size() != 6) return wrong("of kind ofi1 must have 6 fields");
    auto token = read_range(TokenKind::ofi, fields);
    if (!token) return token;
    const auto provider = fields[3];
    const bool plain = std::all_of(provider.begin(), provider.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == ';' || c == '_' || c == '-';
    });
    if (provider.empty() || provider.size() > limits::fabric_provider_bytes_max || !plain)
        return wrong("names no provider");
    const auto endpoint = from_hex(fields[4]);
    if (!endpoint || endpoint->empty() || endpoint->size() > limits::fabric_endpoint_bytes_max) {
        return wrong("names no endpoint");
    }
    const auto key = hex(fields[5]);
    if (!key) return wrong("has no key");
    token->provider = provider;
    token->endpoint = *endpoint;
    token->key = *key;
    return token;
}

Result<Token> parse_descriptor(const std::vector<std::string_view>& fields) {
    const bool suffixed = fields.size() == descriptor_widths.size() + 2;
    if (fields.size() != descriptor_widths.size() && !suffixed)
        return wrong("has neither 7 fields nor a kind that is known");
    for (std::size_t i = 0; i < fields.size(); ++i) {
        const auto width = i < descriptor_widths.size() ? descriptor_widths[i] : suffix_width;
        if (fields[i].size() != width || !is_hex(fields[i])) {
            return wrong("has a field " + std::to_string(i + 1) + " that is not " + std::to_string(width) +
                         " hex digits");
        }
    }
    auto token = read_range(TokenKind::descriptor, fields);
    if (!token) return token;
    token->descriptor = std::string(fields[0].data(), descriptor_bytes);
    if (!suffixed) return token;
    // What an older client appended is the part of the window that it means.
    const auto base = *hex(fields[7]), size = *hex(fields[8]);
    if (base < token->base || size > token->size_bytes || base - token->base > token->size_bytes - size) {
        return wrong("means more than it names");
    }
    token->base = base;
    token->size_bytes = size;
    return checked_range(std::move(*token));
}

}  // namespace

Result<Token> parse_token(std::string_view text) {
    if (text.size() > limits::fabric_token_bytes_max) return wrong("is too long");
    if (text.ends_with(';')) text.remove_suffix(1);
    const auto fields = fields_of(text, fields_max);
    if (fields.size() < 4) return wrong("has too few fields");
    if (const auto version = version_of(fields[2], "local")) return parse_local(fields, *version);
    if (const auto version = version_of(fields[2], "ofi")) return parse_ofi(fields, *version);
    return parse_descriptor(fields);
}

std::string local_token(std::string_view window, std::uint64_t offset, std::uint64_t size_bytes) {
    return fmt::format("{:x}:{:x}:local1:{}", offset, size_bytes, window);
}

std::string ofi_token(std::string_view provider, std::string_view endpoint, std::uint64_t key, std::uint64_t base,
                      std::uint64_t size_bytes) {
    return fmt::format("{:x}:{:x}:ofi1:{}:{}:{:x}", base, size_bytes, provider, to_hex(endpoint), key);
}

std::string descriptor_text(const Descriptor& one) {
    const auto gid = one.gid.value_or(std::array<std::uint8_t, 16>{});
    return fmt::format("{:016x}:{:08x}:{:08x}:{:04x}:{:06x}:{}:{}", one.address, one.size_bytes, one.rkey, one.lid,
                       one.dct_number & dct_number_mask, one.gid ? 1 : 0, to_hex(gid));
}

}  // namespace kvern::fabric
