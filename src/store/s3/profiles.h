// SPDX-License-Identifier: Apache-2.0
// The INI files of AWS's tools (~/.aws/credentials, ~/.aws/config): sections and their pairs.
//
// Pure but for reading the file. Any thread. Values may be secrets: nothing here puts one into a message.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "kvern/result.h"

namespace kvern {

using Profile = std::map<std::string, std::string, std::less<>>;  // names in lower case
using Profiles = std::map<std::string, Profile, std::less<>>;     // "[profile x]" is x

// Comments start with '#' or ';' (behind a value: after a space); indented lines below a pair are its sub-settings,
// which are skipped. invalid_argument names the line that is neither a section nor a pair, by its number alone.
Result<Profiles> parse_profiles(std::string_view text);

// Nothing where there is no such file; else errors that name it.
Result<std::optional<Profiles>> read_profiles(const std::string& path);

}  // namespace kvern
