// SPDX-License-Identifier: Apache-2.0
// Usage: who keeps how much in a store, and how long ago it was used. One thread.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "keep/catalogue.h"

namespace kvern {

struct UsageRow {
    std::string name;                                  // the model's label, a namespace, or an age
    std::string label;                                 // of a namespace's row: its model
    std::uint64_t namespaces = 0;                      // of a model's row
    std::uint64_t chunks = 0, objects = 0, bytes = 0;  // as stored
    std::int64_t newest_use_ns = 0;                    // 0: nothing there
};

// By time since a chunk itself was last used.
inline constexpr std::array<std::string_view, 5> usage_ages{"up to 1h", "up to 1d", "up to 7d", "up to 30d", "older"};

struct Usage {
    std::vector<UsageRow> models;      // by bytes, the greatest first
    std::vector<UsageRow> namespaces;  // by bytes, the greatest first
    std::vector<UsageRow> ages;        // usage_ages in that order
    UsageRow total;
};

// `labels`: one a namespace of the catalogue; empty where there is none.
Usage measure_usage(const Catalogue& catalogue, const std::vector<std::string>& labels, std::int64_t now_ns);

// Reads the label of each namespace: its first line, without control characters. A label that is missing or can't be
// read is empty. Errors: interrupted.
Result<std::vector<std::string>> read_labels(Client& client, const Catalogue& catalogue);

}  // namespace kvern
