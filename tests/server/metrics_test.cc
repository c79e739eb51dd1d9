// SPDX-License-Identifier: Apache-2.0
// What is counted is told, the same in Prometheus' text and in JSON.
#include "server/metrics.h"

#include <gtest/gtest.h>

#include <string>

namespace kvern::server {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

void count(Metrics& metrics, Operation operation, unsigned status, Duration total, Duration wire = {},
           bool lookup = false) {
    metrics.begun();
    metrics.ended({operation, status, total, wire, 10, 100, lookup});
}

TEST(Metrics, NameEachOperation) {
    for (std::size_t i = 0; i < operations; ++i) {
        EXPECT_FALSE(to_string(static_cast<Operation>(i)).empty()) << i;
        for (std::size_t j = 0; j < i; ++j) {
            EXPECT_NE(to_string(static_cast<Operation>(i)), to_string(static_cast<Operation>(j)));
        }
    }
    EXPECT_EQ(to_string(Operation::get_object), "GetObject");
    EXPECT_EQ(to_string(Operation::unknown), "Unknown");
}

TEST(Metrics, CountRequestsByOperationAndClassOfStatus) {
    Metrics metrics;
    count(metrics, Operation::get_object, 200, milliseconds(3));
    count(metrics, Operation::get_object, 206, milliseconds(3));
    count(metrics, Operation::get_object, 404, milliseconds(3));
    count(metrics, Operation::put_object, 503, milliseconds(3));
    const auto text = metrics.prometheus({});
    EXPECT_TRUE(has(text, "kvern_server_requests_total{operation=\"GetObject\",status=\"2xx\"} 2\n"));
    EXPECT_TRUE(has(text, "kvern_server_requests_total{operation=\"GetObject\",status=\"4xx\"} 1\n"));
    EXPECT_TRUE(has(text, "kvern_server_requests_total{operation=\"PutObject\",status=\"5xx\"} 1\n"));
    EXPECT_FALSE(has(text, "HeadObject"));
    EXPECT_TRUE(has(text, "kvern_server_received_bytes_total 40\n"));
    EXPECT_TRUE(has(text, "kvern_server_sent_bytes_total 400\n"));
    const auto json = metrics.json({});
    EXPECT_TRUE(has(json, "\"operations\":{\"GetObject\":3,\"PutObject\":1}"));
    EXPECT_TRUE(has(json, "\"statuses\":{\"2xx\":2,\"3xx\":0,\"4xx\":1,\"5xx\":1}"));
    EXPECT_TRUE(has(json, "\"PutObject\":{\"4xx\":0,\"5xx\":1,\"latency_counts\":["));
    EXPECT_TRUE(has(json, "\"received_bytes\":40,\"sent_bytes\":400"));
}

TEST(Metrics, PutALatencyIntoTheFirstBucketThatHoldsIt) {
    Metrics metrics;
    count(metrics, Operation::get_object, 200, microseconds(100));  // a bound belongs to its bucket
    count(metrics, Operation::get_object, 200, microseconds(101));
    count(metrics, Operation::get_object, 200, seconds(31));
    const auto text = metrics.prometheus({});
    EXPECT_TRUE(has(text, "kvern_server_request_seconds_bucket{operation=\"GetObject\",le=\"0.0001\"} 1\n"));
    EXPECT_TRUE(has(text, "kvern_server_request_seconds_bucket{operation=\"GetObject\",le=\"0.00025\"} 2\n"));
    EXPECT_TRUE(has(text, "kvern_server_request_seconds_bucket{operation=\"GetObject\",le=\"30\"} 2\n"));
    EXPECT_TRUE(has(text, "kvern_server_request_seconds_bucket{operation=\"GetObject\",le=\"+Inf\"} 3\n"));
    EXPECT_TRUE(has(text, "kvern_server_request_seconds_count{operation=\"GetObject\"} 3\n"));
    EXPECT_TRUE(has(metrics.json({}), "\"latency_counts\":[1,1,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,1]"));
}

TEST(Metrics, TellTimeThatWasSpentWaitingForClientsApart) {
    Metrics metrics;
    count(metrics, Operation::put_object, 200, milliseconds(500), milliseconds(250));
    EXPECT_TRUE(has(metrics.prometheus({}), "kvern_server_wire_seconds_total{operation=\"PutObject\"} 0.25\n"));
    EXPECT_TRUE(has(metrics.json({}), "\"seconds\":0.5,\"wire_seconds\":0.25"));
}

TEST(Metrics, CallAReadAHitOrAMissOnlyWhereItWasOne) {
    Metrics metrics;
    count(metrics, Operation::get_object, 200, {}, {}, true);
    count(metrics, Operation::get_object, 304, {}, {}, true);
    count(metrics, Operation::head_object, 404, {}, {}, true);
    count(metrics, Operation::get_object, 403, {}, {}, true);
    count(metrics, Operation::get_object, 500, {}, {}, true);
    count(metrics, Operation::list_objects, 404, {}, {}, false);
    EXPECT_TRUE(has(metrics.json({}), "\"hits\":2,\"misses\":1"));
    metrics.looked(30, 4);
    EXPECT_TRUE(has(metrics.prometheus({}), "kvern_server_hits_total 32\n"));
    EXPECT_TRUE(has(metrics.prometheus({}), "kvern_server_misses_total 5\n"));
}

TEST(Metrics, KnowWhatIsUnderWay) {
    Metrics metrics;
    metrics.begun();
    metrics.begun();
    EXPECT_TRUE(has(metrics.prometheus({}), "kvern_server_in_flight 2\n"));
    metrics.ended({});
    EXPECT_TRUE(has(metrics.json({}), "\"in_flight\":1"));
}

TEST(Metrics, CountOutcomesOfTheStore) {
    Metrics metrics;
    for (const auto status : {Status::ok, Status::ok, Status::miss, Status::busy, Status::failed}) {
        metrics.store_answered(status, false);
    }
    metrics.store_answered(Status::failed, true);  // somebody was there before: no fault of the store
    metrics.store_answered(Status::ok, true);
    const auto text = metrics.prometheus({});
    EXPECT_TRUE(has(text, "kvern_server_store_outcomes_total{outcome=\"ok\"} 3\n"));
    EXPECT_TRUE(has(text, "kvern_server_store_outcomes_total{outcome=\"miss\"} 1\n"));
    EXPECT_TRUE(has(text, "kvern_server_store_outcomes_total{outcome=\"failed\"} 1\n"));
    EXPECT_TRUE(has(text, "kvern_server_store_outcomes_total{outcome=\"refused\"} 1\n"));
    EXPECT_TRUE(has(metrics.json({}), "\"store\":{\"ok\":3,\"miss\":1,\"busy\":1,\"failed\":1,\"refused\":1}"));
}

TEST(Metrics, TellWhatOthersKnow) {
    const Metrics metrics;
    Metrics::Gauges gauges;
    gauges.connections = 3;
    gauges.connections_max = 4096;
    gauges.memory_waiting = 2;
    gauges.connections_refused = 5;
    gauges.memory_bytes = 1000;
    gauges.memory_leased_bytes = 700;
    const auto text = metrics.prometheus(gauges);
    EXPECT_TRUE(has(text, "kvern_server_connections 3\n") && has(text, "kvern_server_connections_max 4096\n"));
    EXPECT_TRUE(has(text, "kvern_server_connections_refused_total 5\n") &&
                has(text, "kvern_server_memory_waiting 2\n"));
    EXPECT_TRUE(has(metrics.json(gauges), "\"memory_bytes\":1000,\"memory_leased_bytes\":700,\"memory_waiting\":2"));
}

TEST(Metrics, HaveHelpAndTypeOfEachFamilyBeforeItsSamples) {
    Metrics metrics;
    count(metrics, Operation::get_object, 200, milliseconds(3), milliseconds(1));
    std::string family;
    std::size_t at = 0, samples = 0;
    const auto text = metrics.prometheus({});
    for (std::size_t end = 0; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
        const auto line = text.substr(at, end - at);
        if (line.starts_with("# HELP ")) {
            family = line.substr(7, line.find(' ', 7) - 7);
        } else if (line.starts_with("# TYPE ")) {
            EXPECT_TRUE(line.starts_with("# TYPE " + family + " ")) << line;
        } else {
            EXPECT_TRUE(line.starts_with(family)) << line;
            ++samples;
        }
    }
    EXPECT_GT(samples, 20U);
}

}  // namespace
}  // namespace kvern::server
