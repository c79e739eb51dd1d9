// SPDX-License-Identifier: Apache-2.0
// Writes the XML documents that S3 answers with.
//
// One writer belongs to one thread. It escapes texts and closes elements; it does not check names, which are ours, nor
// that texts are UTF-8: a caller that is asked for encoding-type=url encodes keys before they come here.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace kvern::server {

// & < > " ' and carriage returns by reference; control characters too, which only a lenient parser takes: S3 does so.
void append_xml_escaped(std::string& to, std::string_view text);

// No character that XML has no way to write, which is what control characters are.
bool fit_for_xml(std::string_view text);

class XmlWriter {
  public:
    // Begins with the XML declaration and opens the root element, in S3's namespace unless that is empty.
    explicit XmlWriter(std::string_view root, std::string_view name_space = s3_namespace);

    static constexpr std::string_view s3_namespace = "http://s3.amazonaws.com/doc/2006-03-01/";

    struct Attribute {
        std::string_view name, value;
    };
    XmlWriter& open(std::string_view name, std::initializer_list<Attribute> attributes = {});
    XmlWriter& close();  // the element opened last
    XmlWriter& text(std::string_view name, std::string_view value);
    XmlWriter& value(std::string_view text);  // of the element opened last
    XmlWriter& number(std::string_view name, std::uint64_t value);
    XmlWriter& flag(std::string_view name, bool value);

    std::string finish();  // closes what is open; once

  private:
    void tag(std::string_view before, std::string_view name, std::string_view after);

    std::string document_;
    std::vector<std::string> open_;
};

}  // namespace kvern::server
