// SPDX-License-Identifier: Apache-2.0
#include "server/metrics.h"

#include <fmt/format.h>

#include <algorithm>

namespace kvern::server {
namespace {

constexpr std::array<std::string_view, operations> names{"ListBuckets",
                                                         "CreateBucket",
                                                         "HeadBucket",
                                                         "DeleteBucket",
                                                         "GetBucketLocation",
                                                         "GetAcl",
                                                         "PutAcl",
                                                         "ListObjects",
                                                         "ListObjectsV2",
                                                         "DeleteObjects",
                                                         "ListMultipartUploads",
                                                         "GetObject",
                                                         "HeadObject",
                                                         "PutObject",
                                                         "CopyObject",
                                                         "DeleteObject",
                                                         "GetObjectAttributes",
                                                         "CreateMultipartUpload",
                                                         "UploadPart",
                                                         "UploadPartCopy",
                                                         "CompleteMultipartUpload",
                                                         "AbortMultipartUpload",
                                                         "ListParts",
                                                         "KvernExists",
                                                         "KvernSpace",
                                                         "KvernFabric",
                                                         "Unknown"};

std::uint64_t nanoseconds(Duration duration) {
    return static_cast<std::uint64_t>(std::max<std::int64_t>(duration.count(), 0));
}

class Text {
  public:
    void family(std::string_view name, std::string_view type, std::string_view help) {
        text_ += fmt::format("# HELP kvern_server_{0} {2}\n# TYPE kvern_server_{0} {1}\n", name, type, help);
    }
    void sample(std::string_view name, std::string_view labels, auto value) {
        text_ += labels.empty() ? fmt::format("kvern_server_{} {}\n", name, value)
                                : fmt::format("kvern_server_{}{{{}}} {}\n", name, labels, value);
    }
    void one(std::string_view name, std::string_view type, std::string_view help, auto value) {
        family(name, type, help);
        sample(name, "", value);
    }
    std::string take() { return std::move(text_); }

  private:
    std::string text_;
};

}  // namespace

std::string_view to_string(Operation operation) {
    return names[static_cast<std::size_t>(operation)];
}

void Metrics::ended(const Request& request) {
    --in_flight_;
    auto& each = each_[static_cast<std::size_t>(request.operation)];
    ++each.by_class[std::min<std::size_t>(request.status / 100, classes - 1)];
    const auto seconds = std::chrono::duration<double>(request.total).count();
    const auto bucket =
        std::lower_bound(latency_bounds.begin(), latency_bounds.end(), seconds) - latency_bounds.begin();
    each.latency[static_cast<std::size_t>(bucket)].fetch_add(1, std::memory_order_relaxed);
    each.latency_ns.fetch_add(nanoseconds(request.total), std::memory_order_relaxed);
    each.wire_ns.fetch_add(nanoseconds(request.wire), std::memory_order_relaxed);
    bytes_in_.fetch_add(request.bytes_in, std::memory_order_relaxed);
    bytes_out_.fetch_add(request.bytes_out, std::memory_order_relaxed);
    if (request.window_bytes_in > 0) window_bytes_in_.fetch_add(request.window_bytes_in, std::memory_order_relaxed);
    if (request.window_bytes_out > 0) window_bytes_out_.fetch_add(request.window_bytes_out, std::memory_order_relaxed);
    if (request.lookup && request.status < 400) hits_.fetch_add(1, std::memory_order_relaxed);
    if (request.lookup && request.status == 404) misses_.fetch_add(1, std::memory_order_relaxed);
}

void Metrics::looked(std::uint64_t hits, std::uint64_t misses) {
    hits_.fetch_add(hits, std::memory_order_relaxed);
    misses_.fetch_add(misses, std::memory_order_relaxed);
}

void Metrics::store_answered(Status status, bool by_rights) {
    const bool refused = status == Status::failed && by_rights;
    auto& counter = refused ? store_refused_ : store_outcomes_[static_cast<std::size_t>(status)];
    counter.fetch_add(1, std::memory_order_relaxed);
}

std::string Metrics::prometheus(const Gauges& gauges) const {
    Text text;
    text.family("requests_total", "counter", "Requests that were answered, by operation and class of status.");
    for (std::size_t i = 0; i < operations; ++i) {
        for (std::size_t c = 1; c < classes; ++c) {
            if (const auto count = each_[i].by_class[c].load(); count > 0) {
                text.sample("requests_total", fmt::format("operation=\"{}\",status=\"{}xx\"", names[i], c), count);
            }
        }
    }
    text.family("request_seconds", "histogram", "From the end of a request's head to the end of its answer.");
    for (std::size_t i = 0; i < operations; ++i) {
        std::uint64_t count = 0;
        for (const auto& bucket : each_[i].latency) count += bucket.load();
        if (count == 0) continue;
        std::uint64_t below = 0;
        for (std::size_t b = 0; b < latency_bounds.size(); ++b) {
            below += each_[i].latency[b].load();
            text.sample("request_seconds_bucket",
                        fmt::format("operation=\"{}\",le=\"{}\"", names[i], latency_bounds[b]), below);
        }
        text.sample("request_seconds_bucket", fmt::format("operation=\"{}\",le=\"+Inf\"", names[i]), count);
        text.sample("request_seconds_sum", fmt::format("operation=\"{}\"", names[i]),
                    static_cast<double>(each_[i].latency_ns.load()) * 1e-9);
        text.sample("request_seconds_count", fmt::format("operation=\"{}\"", names[i]), count);
    }
    text.family("wire_seconds_total", "counter", "Of request_seconds, what was spent waiting for clients.");
    for (std::size_t i = 0; i < operations; ++i) {
        if (const auto ns = each_[i].wire_ns.load(); ns > 0) {
            text.sample("wire_seconds_total", fmt::format("operation=\"{}\"", names[i]),
                        static_cast<double>(ns) * 1e-9);
        }
    }
    text.one("received_bytes_total", "counter", "Bytes of bodies of requests.", bytes_in_.load());
    text.one("sent_bytes_total", "counter", "Bytes of bodies of answers.", bytes_out_.load());
    text.one("window_received_bytes_total", "counter", "Bytes taken from the memory of clients, one-sided.",
             window_bytes_in_.load());
    text.one("window_sent_bytes_total", "counter", "Bytes put into the memory of clients, one-sided.",
             window_bytes_out_.load());
    text.one("windows", "gauge", "Pieces of clients' memory that can be reached.", gauges.windows);
    text.one("window_bytes", "gauge", "Of them together.", gauges.window_bytes);
    text.one("window_registrations_total", "counter", "Memory made known to networks; no transfer adds to it.",
             gauges.registrations);
    text.one("window_peers", "gauge", "Clients whose memory is connected over a network.", gauges.peers);
    text.one("window_cuts_total", "counter", "Connections to clients' memory that were cut since it did not answer.",
             gauges.cuts);
    text.one("hits_total", "counter", "Reads (GET, HEAD and looks by kvern-exists) of objects that are there.",
             hits_.load());
    text.one("misses_total", "counter", "Reads of objects that are not there.", misses_.load());
    text.family("store_outcomes_total", "counter", "Outcomes of operations of the store below.");
    for (std::size_t i = 0; i < store_outcomes_.size(); ++i) {
        text.sample("store_outcomes_total", fmt::format("outcome=\"{}\"", kvern::to_string(static_cast<Status>(i))),
                    store_outcomes_[i].load());
    }
    text.sample("store_outcomes_total", "outcome=\"refused\"", store_refused_.load());
    text.one("in_flight", "gauge", "Requests under way.", in_flight_.load());
    text.one("connections", "gauge", "Open connections.", gauges.connections);
    text.one("connections_max", "gauge", "Limit of connections.", gauges.connections_max);
    text.one("connections_refused_total", "counter", "Connections closed because of that limit.",
             gauges.connections_refused);
    text.one("memory_bytes", "gauge", "Memory for bodies.", gauges.memory_bytes);
    text.one("memory_leased_bytes", "gauge", "Of it, in use.", gauges.memory_leased_bytes);
    text.one("memory_waiting", "gauge", "Requests that wait for memory.", gauges.memory_waiting);
    return text.take();
}

std::string Metrics::json(const Gauges& gauges) const {
    std::string counts, by_operation;
    std::array<std::uint64_t, latency_bounds.size() + 1> latency{};
    std::array<std::uint64_t, classes> by_class{};
    std::uint64_t total_ns = 0, wire_ns = 0;
    for (std::size_t i = 0; i < operations; ++i) {
        std::uint64_t count = 0;
        std::array<std::uint64_t, classes> own_classes{};
        std::array<std::uint64_t, latency_bounds.size() + 1> own_latency{};
        for (std::size_t c = 0; c < classes; ++c) {
            own_classes[c] = each_[i].by_class[c].load();
            by_class[c] += own_classes[c];
            count += own_classes[c];
        }
        for (std::size_t b = 0; b < latency.size(); ++b) {
            own_latency[b] = each_[i].latency[b].load();
            latency[b] += own_latency[b];
        }
        total_ns += each_[i].latency_ns.load();
        wire_ns += each_[i].wire_ns.load();
        if (count == 0) continue;
        const auto* const comma = counts.empty() ? "" : ",";
        counts += fmt::format("{}\"{}\":{}", comma, names[i], count);
        by_operation += fmt::format("{}\"{}\":{{\"4xx\":{},\"5xx\":{},\"latency_counts\":[{}]}}", comma, names[i],
                                    own_classes[4], own_classes[5], fmt::join(own_latency, ","));
    }
    return fmt::format(
        "{{\"operations\":{{{}}},\"by_operation\":{{{}}},"
        "\"statuses\":{{\"2xx\":{},\"3xx\":{},\"4xx\":{},\"5xx\":{}}},"
        "\"latency_bounds_seconds\":[{}],\"latency_counts\":[{}],\"seconds\":{},\"wire_seconds\":{},"
        "\"received_bytes\":{},\"sent_bytes\":{},\"window_received_bytes\":{},\"window_sent_bytes\":{},\"hits\":{},"
        "\"misses\":{},\"in_flight\":{},\"connections\":{},\"connections_max\":{},\"connections_refused\":{},"
        "\"memory_bytes\":{},\"memory_leased_bytes\":{},\"memory_waiting\":{},"
        "\"store\":{{\"ok\":{},\"miss\":{},\"busy\":{},\"failed\":{},\"refused\":{}}}}}",
        counts, by_operation, by_class[2], by_class[3], by_class[4], by_class[5], fmt::join(latency_bounds, ","),
        fmt::join(latency, ","), static_cast<double>(total_ns) * 1e-9, static_cast<double>(wire_ns) * 1e-9,
        bytes_in_.load(), bytes_out_.load(), window_bytes_in_.load(), window_bytes_out_.load(), hits_.load(),
        misses_.load(), in_flight_.load(), gauges.connections, gauges.connections_max, gauges.connections_refused,
        gauges.memory_bytes, gauges.memory_leased_bytes, gauges.memory_waiting, store_outcomes_[0].load(),
        store_outcomes_[1].load(), store_outcomes_[2].load(), store_outcomes_[3].load(), store_refused_.load());
}

}  // namespace kvern::server
