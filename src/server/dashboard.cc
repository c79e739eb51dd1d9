// SPDX-License-Identifier: Apache-2.0
#include "server/dashboard.h"

#include <fmt/format.h>

namespace kvern::server {
namespace {

// Escaped for a label of Prometheus.
std::string label_text(std::string_view text) {
    std::string escaped;
    for (const char c : text) {
        if (c == '\\' || c == '"') escaped += '\\';
        escaped += c == '\n' ? ' ' : c;
    }
    return escaped;
}

}  // namespace

std::string usage_metrics(const Usage& usage) {
    std::string text =
        "# HELP kvern_server_bucket_bytes Bytes that a bucket holds.\n# TYPE kvern_server_bucket_bytes gauge\n";
    const auto all = usage.all();
    for (const auto& [name, one] : all)
        text += fmt::format("kvern_server_bucket_bytes{{bucket=\"{}\"}} {}\n", name, one.bytes);
    text += "# HELP kvern_server_bucket_objects Objects in a bucket.\n# TYPE kvern_server_bucket_objects gauge\n";
    for (const auto& [name, one] : all)
        text += fmt::format("kvern_server_bucket_objects{{bucket=\"{}\"}} {}\n", name, one.objects);
    text +=
        "# HELP kvern_server_label_bytes Bytes below a label that the cache left, by the last scan.\n# TYPE "
        "kvern_server_label_bytes gauge\n";
    for (const auto& [name, one] : all) {
        for (const auto& [label, bytes] : one.bytes_by_label) {
            text += fmt::format("kvern_server_label_bytes{{bucket=\"{}\",label=\"{}\"}} {}\n", name, label_text(label),
                                bytes);
        }
    }
    return text;
}

}  // namespace kvern::server
