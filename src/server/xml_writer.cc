// SPDX-License-Identifier: Apache-2.0
#include "server/xml_writer.h"

#include <fmt/format.h>

#include <algorithm>

namespace kvern::server {
namespace {

// Empty: the character stands for itself.
std::string_view reference(char c) {
    switch (c) {
        case '&':
            return "&amp;";
        case '<':
            return "&lt;";
        case '>':
            return "&gt;";
        case '"':
            return "&quot;";
        case '\'':
            return "&apos;";
        default:
            return {};
    }
}

bool is_control(char c) {
    return (c >= 0 && c < 0x20 && c != '\t' && c != '\n') || c == 0x7f;
}

}  // namespace

bool fit_for_xml(std::string_view text) {
    return std::none_of(text.begin(), text.end(), is_control);
}

void append_xml_escaped(std::string& to, std::string_view text) {
    for (const char c : text) {
        if (const auto escaped = reference(c); !escaped.empty()) {
            to += escaped;
        } else if (is_control(c)) {
            to += fmt::format("&#x{:x};", static_cast<unsigned>(c));
        } else {
            to += c;
        }
    }
}

XmlWriter::XmlWriter(std::string_view root, std::string_view name_space) {
    document_ = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
    document_ += '<';
    document_ += root;
    if (!name_space.empty()) {
        document_ += " xmlns=\"";
        append_xml_escaped(document_, name_space);
        document_ += '"';
    }
    document_ += '>';
    open_.emplace_back(root);
}

XmlWriter& XmlWriter::open(std::string_view name, std::initializer_list<Attribute> attributes) {
    tag("<", name, "");
    for (const auto& [attribute, value] : attributes) {
        tag(" ", attribute, "=\"");
        append_xml_escaped(document_, value);
        document_ += '"';
    }
    document_ += '>';
    open_.emplace_back(name);
    return *this;
}

XmlWriter& XmlWriter::close() {
    tag("</", open_.back(), ">");
    open_.pop_back();
    return *this;
}

XmlWriter& XmlWriter::value(std::string_view text) {
    append_xml_escaped(document_, text);
    return *this;
}

XmlWriter& XmlWriter::text(std::string_view name, std::string_view value) {
    tag("<", name, ">");
    append_xml_escaped(document_, value);
    tag("</", name, ">");
    return *this;
}

XmlWriter& XmlWriter::number(std::string_view name, std::uint64_t value) {
    return text(name, fmt::format_int(value).c_str());
}

XmlWriter& XmlWriter::flag(std::string_view name, bool value) {
    return text(name, value ? "true" : "false");
}

std::string XmlWriter::finish() {
    while (!open_.empty()) close();
    return std::move(document_);
}

void XmlWriter::tag(std::string_view before, std::string_view name, std::string_view after) {
    document_ += before;
    document_ += name;
    document_ += after;
}

}  // namespace kvern::server
