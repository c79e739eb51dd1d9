// SPDX-License-Identifier: Apache-2.0
// The server's page (dashboard.html, which the build embeds) and the metrics of usage. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "server/usage.h"

namespace kvern::server {

std::string_view dashboard_html();
const std::string& dashboard_policy();  // Content-Security-Policy: its own script and style, its own server, no more
std::string usage_metrics(const Usage& usage);  // Prometheus text

}  // namespace kvern::server
