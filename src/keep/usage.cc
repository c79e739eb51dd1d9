// SPDX-License-Identifier: Apache-2.0
#include "keep/usage.h"

#include <algorithm>
#include <chrono>
#include <map>

namespace kvern {
namespace {

using std::chrono::hours;
using std::chrono::nanoseconds;

constexpr std::array<hours, 4> age_bounds{hours(1), hours(24), hours(7 * 24), hours(30 * 24)};
static_assert(age_bounds.size() + 1 == usage_ages.size());

constexpr std::size_t label_bytes_max = 4096;

std::size_t age_row(std::int64_t age_ns) {
    std::size_t row = 0;
    while (row < age_bounds.size() && age_ns > nanoseconds(age_bounds[row]).count()) ++row;
    return row;
}

void add(UsageRow& row, std::uint64_t objects, std::uint64_t bytes, std::int64_t use_ns) {
    ++row.chunks;
    row.objects += objects;
    row.bytes += bytes;
    row.newest_use_ns = std::max(row.newest_use_ns, use_ns);
}

void add(UsageRow& row, const UsageRow& other) {
    row.chunks += other.chunks;
    row.objects += other.objects;
    row.bytes += other.bytes;
    row.newest_use_ns = std::max(row.newest_use_ns, other.newest_use_ns);
}

void greatest_first(std::vector<UsageRow>& rows) {
    std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
}

std::string first_line(std::string text) {
    text.resize(std::min(text.size(), text.find('\n')));
    std::erase_if(text, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 127; });
    return text;
}

}  // namespace

Usage measure_usage(const Catalogue& catalogue, const std::vector<std::string>& labels, std::int64_t now_ns) {
    Usage usage;
    for (const auto age : usage_ages) usage.ages.push_back({std::string(age), {}, 0, 0, 0, 0, 0});
    std::map<std::string, UsageRow> models;
    for (std::size_t i = 0; i < catalogue.namespaces.size(); ++i) {
        const auto& space = catalogue.namespaces[i];
        UsageRow row{space.hex, labels[i], 0, 0, 0, 0, 0};
        for (std::uint32_t c = 0; c < space.chunks; ++c) {
            const auto& chunk = catalogue.chunks[space.first_chunk + c];
            const auto bytes = catalogue.bytes_of(chunk);
            const auto use_ns = catalogue.use_of(chunk);
            add(row, chunk.objects, bytes, use_ns);
            add(usage.ages[age_row(now_ns - use_ns)], chunk.objects, bytes, use_ns);
        }
        auto& model = models[labels[i]];
        model.name = labels[i];
        ++model.namespaces;
        add(model, row);
        add(usage.total, row);
        usage.namespaces.push_back(std::move(row));
    }
    for (auto& [name, row] : models) usage.models.push_back(std::move(row));
    usage.total.namespaces = catalogue.namespaces.size();
    usage.total.bytes = catalogue.bytes;  // with what names the namespaces
    greatest_first(usage.models);
    greatest_first(usage.namespaces);
    return usage;
}

Result<std::vector<std::string>> read_labels(Client& client, const Catalogue& catalogue) {
    std::vector<std::string> labels(catalogue.namespaces.size());
    // Apart from the client, so that a read which comes after an interrupt still has its memory.
    static std::array<std::byte, label_bytes_max> memory;
    for (std::size_t i = 0; i < labels.size(); ++i) {
        if (!catalogue.namespaces[i].label) continue;
        Op op;
        op.kind = OpKind::get;
        op.key = catalogue.namespaces[i].label->key;
        op.length = std::min<std::uint64_t>(catalogue.namespaces[i].label->size_bytes, memory.size());
        op.buffers = {{memory.data(), memory.size()}};
        const auto outcome = client.call(op);
        if (!outcome) return tl::unexpected(outcome.error());
        if (outcome->status != Status::ok) continue;
        labels[i] = first_line({reinterpret_cast<const char*>(memory.data()), outcome->bytes});
    }
    return labels;
}

}  // namespace kvern
