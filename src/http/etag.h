// SPDX-License-Identifier: Apache-2.0
// Entity tags, and the lists of them in If-Match and If-None-Match.
//
// Pure functions, any thread. Tags are opaque: nothing here takes one for an MD5.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kvern/result.h"

namespace kvern::http {

struct Etag {
    std::string value;  // without its quotes
    bool weak = false;
    bool operator==(const Etag&) const = default;
};

struct EtagList {
    bool any = false;  // '*'
    std::vector<Etag> tags;
};

// "x", "W/\"x\"", "x, y" or '*'. Tags may come without quotes, as S3 takes them. Fails with invalid_argument where that
// is not what it is, and beyond limits::etags_max.
Result<EtagList> parse_etags(std::string_view header);

// `current` is the object's tag, without quotes and strong. If-Match compares strongly, If-None-Match weakly; both ask
// only where the object exists.
bool if_match(const EtagList& list, std::string_view current);       // true: go on
bool if_none_match(const EtagList& list, std::string_view current);  // true: go on

std::string quoted(std::string_view etag);
std::string_view unquoted(std::string_view etag);  // as it is where there are no quotes

}  // namespace kvern::http
