// SPDX-License-Identifier: Apache-2.0
#include "server/dashboard.h"

#include <fmt/format.h>

#include "base/sha256.h"
#include "base/text.h"

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

// 'sha256-…' of what stands between <tag> and </tag>, as a browser sums it.
std::string hash_source(std::string_view page, const std::string& tag) {
    const auto begin = page.find("<" + tag + ">") + tag.size() + 2;
    const auto digest = sha256(page.substr(begin, page.find("</" + tag + ">") - begin));
    return "'sha256-" + to_base64({reinterpret_cast<const char*>(digest.data()), digest.size()}) + "'";
}

}  // namespace

const std::string& dashboard_policy() {
    static const std::string policy = "default-src 'none'; script-src " + hash_source(dashboard_html(), "script") +
                                      "; style-src " + hash_source(dashboard_html(), "style") +
                                      "; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
                                      "frame-ancestors 'none'";
    return policy;
}

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
