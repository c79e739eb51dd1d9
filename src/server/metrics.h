// SPDX-License-Identifier: Apache-2.0
// What the server counts, as Prometheus text and as JSON for its page. Any thread; no locks: counters are relaxed.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "kvern/store.h"

namespace kvern::server {

enum class Operation : std::uint8_t {
    list_buckets,
    create_bucket,
    head_bucket,
    delete_bucket,
    get_bucket_location,
    get_acl,
    put_acl,
    list_objects,
    list_objects_v2,
    delete_objects,
    list_multipart_uploads,
    get_object,
    head_object,
    put_object,
    copy_object,
    delete_object,
    get_object_attributes,
    create_multipart_upload,
    upload_part,
    upload_part_copy,
    complete_multipart_upload,
    abort_multipart_upload,
    list_parts,
    exists,
    space,
    fabric,
    unknown
};
inline constexpr std::size_t operations = static_cast<std::size_t>(Operation::unknown) + 1;
std::string_view to_string(Operation operation);  // "GetObject"

// Seconds; the last is +Inf.
inline constexpr std::array<double, 17> latency_bounds{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                                       0.1,    0.25,    0.5,    1,     2.5,    5,     10,   30};

class Metrics {
  public:
    struct Request {
        Operation operation = Operation::unknown;
        unsigned status = 0;
        Duration total{}, wire{};                   // wire: waiting for the peer; the rest is ours and the store's
        std::uint64_t bytes_in = 0, bytes_out = 0;  // of bodies
        bool lookup = false;                        // a read that could hit or miss
        std::uint64_t window_bytes_in = 0, window_bytes_out = 0;  // moved from and to the memory of clients
    };
    void begun() { ++in_flight_; }
    void ended(const Request& request);
    void looked(std::uint64_t hits, std::uint64_t misses);  // what one request asked about many objects found
    // `by_rights`: a failure that says nothing against the store, such as a condition that does not hold.
    void store_answered(Status status, bool by_rights);

    // What others know, at the moment of asking.
    struct Gauges {
        std::size_t connections = 0, connections_max = 0, memory_waiting = 0;
        std::uint64_t connections_refused = 0, memory_bytes = 0, memory_leased_bytes = 0;
        std::size_t windows = 0;
        std::uint64_t window_bytes = 0;
        std::uint64_t registrations = 0, peers = 0, cuts = 0;  // of providers of networks
    };
    std::string prometheus(const Gauges& gauges) const;
    std::string json(const Gauges& gauges) const;  // an object, without the usage of buckets

  private:
    static constexpr std::size_t classes = 6;  // status / 100
    struct Each {
        std::array<std::atomic<std::uint64_t>, classes> by_class{};
        std::array<std::atomic<std::uint64_t>, latency_bounds.size() + 1> latency{};
        std::atomic<std::uint64_t> latency_ns{0}, wire_ns{0};
    };
    std::array<Each, operations> each_{};
    std::atomic<std::uint64_t> bytes_in_{0}, bytes_out_{0}, window_bytes_in_{0}, window_bytes_out_{0};
    std::atomic<std::uint64_t> hits_{0}, misses_{0};
    std::array<std::atomic<std::uint64_t>, 4> store_outcomes_{};  // by Status; failed ones without the next
    std::atomic<std::uint64_t> store_refused_{0};                 // those that failed by rights
    std::atomic<std::int64_t> in_flight_{0};
};

}  // namespace kvern::server
