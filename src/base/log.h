// SPDX-License-Identifier: Apache-2.0
// The one logger: lines to stderr with time, level and component. Any thread. Not for hot paths: format only what is
// said.
#pragma once

#include <string>
#include <string_view>

namespace kvern {

enum class LogLevel { debug, info, warning, error };

// KVERN_LOG=debug|info|warning|error chooses the level; warning is the default. An unknown value is warning, said once.
void log(LogLevel level, std::string_view component, std::string_view message);
bool log_enabled(LogLevel level);

}  // namespace kvern
