// SPDX-License-Identifier: Apache-2.0
#include "http/etag.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "kvern/limits.h"

namespace kvern::http {
namespace {

void skip_blanks(std::string_view& text) {
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
}

bool may_stand_in_tag(char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte > 0x20 && byte != 0x7f && c != '"';
}

// Takes a tag off the front; nothing where there is none.
std::optional<Etag> take_etag(std::string_view& text) {
    Etag tag;
    if (text.starts_with("W/\"")) {
        tag.weak = true;
        text.remove_prefix(2);
    }
    const bool has_quotes = text.starts_with('"');
    if (has_quotes) text.remove_prefix(1);
    std::size_t end = 0;
    while (end < text.size() && may_stand_in_tag(text[end]) && (has_quotes || text[end] != ',')) ++end;
    tag.value = text.substr(0, end);
    text.remove_prefix(end);
    if (!has_quotes) return tag.value.empty() ? std::nullopt : std::optional(std::move(tag));
    if (!text.starts_with('"')) return std::nullopt;
    text.remove_prefix(1);
    return tag;
}

}  // namespace

Result<EtagList> parse_etags(std::string_view header) {
    const auto wrong = [&] {
        return fail(ErrorCode::invalid_argument, fmt::format("'{}' is no list of entity tags", header));
    };
    EtagList list;
    std::string_view rest = header;
    for (;;) {
        skip_blanks(rest);
        auto tag = take_etag(rest);
        skip_blanks(rest);
        if (!tag || (!rest.empty() && rest.front() != ',') || list.tags.size() == limits::etags_max) return wrong();
        list.tags.push_back(std::move(*tag));
        if (rest.empty()) break;
        rest.remove_prefix(1);
    }
    // An asterisk in quotes is a tag.
    const bool is_asterisk = header.find('"') == header.npos && list.tags.front().value == "*";
    if (is_asterisk && list.tags.size() > 1) return wrong();
    if (is_asterisk) return EtagList{true, {}};
    return list;
}

bool if_match(const EtagList& list, std::string_view current) {
    return list.any || std::any_of(list.tags.begin(), list.tags.end(),
                                   [&](const Etag& tag) { return !tag.weak && tag.value == current; });
}

bool if_none_match(const EtagList& list, std::string_view current) {
    return !list.any &&
           std::none_of(list.tags.begin(), list.tags.end(), [&](const Etag& tag) { return tag.value == current; });
}

std::string quoted(std::string_view etag) {
    std::string text = "\"";
    text += etag;
    text += '"';
    return text;
}

std::string_view unquoted(std::string_view etag) {
    const bool has_quotes = etag.size() >= 2 && etag.front() == '"' && etag.back() == '"';
    return has_quotes ? etag.substr(1, etag.size() - 2) : etag;
}

}  // namespace kvern::http
