// SPDX-License-Identifier: Apache-2.0
// pugixml reads leniently: it passes over document types, keeps entities that it does not know as text, and ends texts
// at a zero byte. So the bytes are looked at first, and only a document that has none of these reaches it.
#include "server/xml.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <pugixml.hpp>
#include <utility>

#include "http/etag.h"
#include "kvern/limits.h"

namespace kvern::server {
namespace {

using http::refuse;
using http::S3Code;
using http::S3Result;

// More tags than this a part or an object never needs; each costs memory when it is parsed.
constexpr std::size_t tags_per_item = 24;

struct Bounds {
    std::size_t bytes_max;
    std::size_t items_max;
};

tl::unexpected<http::S3Error> malformed(std::string why) {
    return refuse(S3Code::malformed_xml, "the XML in the request " + std::move(why));
}

// ----------------------------------------------------------------------------------------------------- before parsing

// Skips what goes on to `end`, if it is there.
bool skip_past(std::string_view& rest, std::string_view end) {
    const std::size_t found = rest.find(end);
    if (found == rest.npos) return false;
    rest.remove_prefix(found + end.size());
    return true;
}

// A reference to a character, or one of the five entities that XML itself has.
bool is_good_reference(std::string_view name) {
    constexpr std::array<std::string_view, 5> own{"amp", "lt", "gt", "quot", "apos"};
    if (std::find(own.begin(), own.end(), name) != own.end()) return true;
    if (!name.starts_with('#')) return false;
    name.remove_prefix(1);
    const bool hex = name.starts_with('x');
    if (hex) name.remove_prefix(1);
    constexpr std::uint32_t character_max = 0x10ffff;
    std::uint32_t value = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), value, hex ? 16 : 10);
    return error == std::errc{} && end == name.data() + name.size() && value >= 1 && value <= character_max;
}

S3Result<> check_bytes(std::string_view body, const Bounds& bounds) {
    if (body.size() > bounds.bytes_max) {
        return refuse(S3Code::max_message_length_exceeded,
                      fmt::format("the body has {} bytes; at most {} are allowed", body.size(), bounds.bytes_max));
    }
    if (body.find('\0') != body.npos) return malformed("has a zero byte");
    std::size_t tags = 0;
    for (std::string_view rest = body; !rest.empty();) {
        rest.remove_prefix(std::min(rest.size(), rest.find_first_of("<&")));
        if (rest.starts_with('&')) {
            rest.remove_prefix(1);
            const std::string_view name = rest.substr(0, rest.find(';'));
            if (name.size() == rest.size() || !is_good_reference(name)) return malformed("has an unknown entity");
            rest.remove_prefix(name.size() + 1);
        } else if (rest.starts_with("<!--")) {
            rest.remove_prefix(4);
            if (!skip_past(rest, "-->")) return malformed("has a comment without end");
        } else if (rest.starts_with("<![CDATA[")) {
            if (!skip_past(rest, "]]>")) return malformed("has a CDATA section without end");
        } else if (rest.starts_with("<!")) {
            return malformed("has a document type, which is not allowed");
        } else if (rest.starts_with("<?")) {
            if (!skip_past(rest, "?>")) return malformed("has a declaration without end");
        } else if (!rest.empty()) {
            rest.remove_prefix(1);
            if (++tags > tags_per_item * bounds.items_max) return malformed("has too many elements");
        }
    }
    return {};
}

// --------------------------------------------------------------------------------------------------------------
// parsing

// Without the prefix of a namespace.
std::string_view name_of(const pugi::xml_node& node) {
    const std::string_view name = node.name();
    return name.substr(name.find(':') + 1);
}

bool deeper_than(const pugi::xml_node& root, std::size_t depth_max) {
    struct Walker : pugi::xml_tree_walker {
        bool for_each(pugi::xml_node&) override { return static_cast<std::size_t>(depth()) < depth_max; }
        std::size_t depth_max = 0;
    } walker;
    walker.depth_max = depth_max;
    return !pugi::xml_node(root).traverse(walker);
}

// Parses into `document` and gives its root, which must have that name.
S3Result<pugi::xml_node> parse_root(pugi::xml_document& document, std::string_view body, std::string_view name,
                                    const Bounds& bounds) {
    if (auto checked = check_bytes(body, bounds); !checked) return tl::unexpected(std::move(checked.error()));
    // As a fragment, since text beside the root would be passed over otherwise.
    constexpr unsigned flags =
        pugi::parse_cdata | pugi::parse_escapes | pugi::parse_eol | pugi::parse_ws_pcdata_single | pugi::parse_fragment;
    const auto parsed = document.load_buffer(body.data(), body.size(), flags, pugi::encoding_utf8);
    if (!parsed) return malformed(fmt::format("is malformed at byte {}: {}", parsed.offset, parsed.description()));
    const pugi::xml_node root = document.document_element();
    if (!root || root.next_sibling() || document.first_child() != root) return malformed("is not one element");
    if (name_of(root) != name) return malformed(fmt::format("is '{}' instead of '{}'", name_of(root), name));
    if (deeper_than(root, limits::xml_depth_max)) return malformed("is nested too deeply");
    return root;
}

S3Result<std::string> text_of(const pugi::xml_node& node) {
    std::string text;
    for (const pugi::xml_node& child : node.children()) {
        if (child.type() == pugi::node_element) {
            return malformed(fmt::format("has elements where '{}' is a text", name_of(node)));
        }
        text += child.value();
    }
    return text;
}

std::string_view trimmed(std::string_view text) {
    constexpr std::string_view blanks = " \t\r\n";
    const std::size_t start = std::min(text.size(), text.find_first_not_of(blanks));
    return text.substr(start, text.find_last_not_of(blanks) + 1 - start);
}

// The text of the only child of that name; nothing where there is none.
S3Result<std::optional<std::string>> child_text(const pugi::xml_node& parent, std::string_view name) {
    std::optional<std::string> found;
    for (const pugi::xml_node& child : parent.children()) {
        if (name_of(child) != name) continue;
        if (found) return malformed(fmt::format("has '{}' twice in one '{}'", name, name_of(parent)));
        auto text = text_of(child);
        if (!text) return tl::unexpected(std::move(text.error()));
        found = std::move(*text);
    }
    return found;
}

S3Result<std::uint64_t> number_of(std::string_view text, std::string_view name) {
    const std::string_view digits = trimmed(text);
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error == std::errc{} && end == digits.data() + digits.size()) return value;
    return malformed(fmt::format("has '{}' as '{}', which is no number", text, name));
}

// ------------------------------------------------------------------------------------------------------------
// documents

S3Result<CompletedPart> parse_part(const pugi::xml_node& node) {
    CompletedPart part;
    auto number = child_text(node, "PartNumber");
    if (!number) return tl::unexpected(std::move(number.error()));
    auto etag = child_text(node, "ETag");
    if (!etag) return tl::unexpected(std::move(etag.error()));
    if (!*number || !*etag) return malformed("has a 'Part' without 'PartNumber' or 'ETag'");
    const auto value = number_of(**number, "PartNumber");
    if (!value) return tl::unexpected(value.error());
    if (*value < 1 || *value > limits::upload_parts_max) {
        return refuse(S3Code::invalid_argument,
                      fmt::format("part number {} is not from 1 to {}", *value, limits::upload_parts_max));
    }
    part.number = static_cast<unsigned>(*value);
    part.etag = http::unquoted(trimmed(**etag));
    for (const http::ChecksumAlgorithm algorithm : http::s3_checksums) {
        auto text = child_text(node, http::element_name(algorithm));
        if (!text) return tl::unexpected(std::move(text.error()));
        if (!*text) continue;
        const auto checksum = http::parse_checksum(algorithm, trimmed(**text));
        if (!checksum)
            return malformed(fmt::format("has a bad '{}' in part {}", http::element_name(algorithm), part.number));
        part.checksums.push_back(*checksum);
    }
    return part;
}

S3Result<> set_conditions(DeleteObject& object, const pugi::xml_node& node) {
    auto etag = child_text(node, "ETag");
    if (!etag) return tl::unexpected(std::move(etag.error()));
    if (*etag) object.etag = http::unquoted(trimmed(**etag));
    auto size = child_text(node, "Size");
    if (!size) return tl::unexpected(std::move(size.error()));
    if (*size) {
        const auto value = number_of(**size, "Size");
        if (!value) return tl::unexpected(value.error());
        object.size_bytes = *value;
    }
    auto time = child_text(node, "LastModifiedTime");
    if (!time) return tl::unexpected(std::move(time.error()));
    if (!*time) return {};
    object.last_modified = http::parse_http_date(trimmed(**time));
    if (!object.last_modified) {
        const auto fine = http::parse_iso_date(trimmed(**time));
        if (!fine) return malformed(fmt::format("has a LastModifiedTime '{}', which is no date", **time));
        object.last_modified = std::chrono::floor<std::chrono::seconds>(*fine);
    }
    return {};
}

S3Result<DeleteObject> parse_object(const pugi::xml_node& node) {
    DeleteObject object;
    auto key = child_text(node, "Key");
    if (!key) return tl::unexpected(std::move(key.error()));
    if (!*key || (*key)->empty()) return malformed("has an 'Object' without 'Key'");
    object.key = std::move(**key);
    auto version = child_text(node, "VersionId");
    if (!version) return tl::unexpected(std::move(version.error()));
    if (*version) object.version_id = std::move(**version);
    if (auto set = set_conditions(object, node); !set) return tl::unexpected(std::move(set.error()));
    return object;
}

// All children of that name, each parsed.
template <class Item>
S3Result<std::vector<Item>> parse_items(const pugi::xml_node& root, std::string_view name, std::size_t items_max,
                                        S3Result<Item> (*parse)(const pugi::xml_node&)) {
    std::vector<Item> items;
    for (const pugi::xml_node& node : root.children()) {
        if (name_of(node) != name) continue;
        if (items.size() == items_max) return malformed(fmt::format("has more than {} of '{}'", items_max, name));
        auto item = parse(node);
        if (!item) return tl::unexpected(std::move(item.error()));
        items.push_back(std::move(*item));
    }
    if (items.empty()) return malformed(fmt::format("has no '{}'", name));
    return items;
}

}  // namespace

S3Result<std::vector<CompletedPart>> parse_complete_upload(std::string_view body) {
    pugi::xml_document document;
    const auto root = parse_root(document, body, "CompleteMultipartUpload",
                                 {limits::xml_complete_bytes_max, limits::upload_parts_max});
    if (!root) return tl::unexpected(root.error());
    auto parts = parse_items<CompletedPart>(*root, "Part", limits::upload_parts_max, parse_part);
    if (!parts) return parts;
    // A part that was sent again may be named again, right after the first: the last one counts.
    const auto again = [](const CompletedPart& a, const CompletedPart& b) { return a.number == b.number; };
    parts->erase(parts->begin(), std::unique(parts->rbegin(), parts->rend(), again).base());
    for (std::size_t i = 1; i < parts->size(); ++i) {
        if ((*parts)[i].number <= (*parts)[i - 1].number) {
            return refuse(S3Code::invalid_part_order,
                          fmt::format("part {} follows part {}: the list must be in ascending order",
                                      (*parts)[i].number, (*parts)[i - 1].number));
        }
    }
    return parts;
}

S3Result<DeleteRequest> parse_delete(std::string_view body) {
    pugi::xml_document document;
    const auto root = parse_root(document, body, "Delete", {limits::xml_delete_bytes_max, limits::delete_objects_max});
    if (!root) return tl::unexpected(root.error());
    auto quiet = child_text(*root, "Quiet");
    if (!quiet) return tl::unexpected(std::move(quiet.error()));
    auto objects = parse_items<DeleteObject>(*root, "Object", limits::delete_objects_max, parse_object);
    if (!objects) return tl::unexpected(std::move(objects.error()));
    return DeleteRequest{*quiet && trimmed(**quiet) == "true", std::move(*objects)};
}

S3Result<std::string> parse_create_bucket(std::string_view body) {
    if (body.empty()) return std::string();
    pugi::xml_document document;
    const auto root = parse_root(document, body, "CreateBucketConfiguration", {limits::xml_bytes_max, 100});
    if (!root) return tl::unexpected(root.error());
    auto location = child_text(*root, "LocationConstraint");
    if (!location) return tl::unexpected(std::move(location.error()));
    return *location ? std::string(trimmed(**location)) : std::string();
}

}  // namespace kvern::server
