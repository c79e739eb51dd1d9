// SPDX-License-Identifier: Apache-2.0
#include "server/s3_server.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>

#include "base/log.h"
#include "base/text.h"
#include "http/date.h"
#include "http/pause.h"
#include "http/server.h"
#include "kvern/version.h"
#include "server/access_log.h"
#include "server/dashboard.h"
#include "server/object_headers.h"
#include "server/route.h"
#include "server/site.h"
#include "server/xml_writer.h"

namespace kvern::server {

using http::AnswerHead;
using http::Exchange;
using http::S3Code;
using http::S3Result;
using http::Task;

namespace {

// Paths that are no buckets: a bucket's name has three characters at least.
constexpr std::string_view operations_path = "/-/";

// `request`: none for what was too broken to be one.
std::string error_document(const http::S3Error& error, const Request* request) {
    XmlWriter xml("Error", "");
    xml.text("Code", http::to_string(error.code)).text("Message", error.message);
    if (request != nullptr && request->error_size_bytes) {  // from which AWS's runtime knows that an object is empty
        xml.text("RangeRequested", request->header("range").value_or(""));
        xml.number("ActualObjectSize", *request->error_size_bytes);
    }
    xml.text("Resource", request == nullptr ? std::string_view() : request->raw_path);
    xml.text("RequestId", request == nullptr ? std::string_view() : request->id).text("HostId", "kvern");
    return xml.finish();
}

Result<std::shared_ptr<Region>> make_region(std::uint64_t memory_bytes) {
    if (memory_bytes < limits::server_memory_bytes_min) {
        return fail(ErrorCode::invalid_argument, "--memory: at least " + format_size(limits::server_memory_bytes_min) +
                                                     ", not " + format_size(memory_bytes));
    }
    RegionOptions options;
    options.name = "kvern-serve";
    // The rest is for connections, requests and the program itself.
    options.size_bytes = memory_bytes - std::min(memory_bytes / 4, limits::server_memory_reserve_bytes);
    options.touch_in_background = false;
    return Region::create(options);
}

}  // namespace

struct S3Server::Impl {
    Impl(ServeOptions given, Store& below, std::shared_ptr<Region> region, AccessLog opened)
        : options(std::move(given)),
          store(below),
          access_log(std::move(opened)),
          site{below,
               options.keys ? &*options.keys : nullptr,
               options.region,
               options.domains,
               MemoryGate(std::move(region)),
               {},
               {},
               {},
               Usage(options.quotas, options.default_quota),
               WallClock::system()},
          id_prefix(new_id(4)) {}

    Task<void> handle(Exchange& exchange);
    Task<S3Result<>> run(Context& context, Request& request, Operation& operation);
    S3Result<> authenticate(Worker& worker, Request& request) const;
    Task<void> answer_error(Request& request, const http::S3Error& error) const;
    Task<void> handle_operations(Exchange& exchange, bool own_address);
    Task<void> operations_page(Worker& worker, Exchange& exchange, std::string_view path);
    Task<void> scan_now_and_then();
    Task<void> flush_now_and_then(std::size_t loop);
    http::ServerOptions http_options(const http::HostPort& address, std::shared_ptr<const http::TlsContext> tls) const;
    void start_background();
    void end_background();
    Metrics::Gauges gauges() const;
    std::string stats() const;

    ServeOptions options;
    Store& store;
    AccessLog access_log;
    Site site;
    std::vector<std::unique_ptr<http::Loop>> loops;
    std::vector<std::unique_ptr<Worker>> workers;
    std::unique_ptr<http::Server> server, pages;  // pages: of operations, where they have an address of their own
    const std::int64_t started_ns = WallClock::system().now_ns();
    const std::string id_prefix;
    std::atomic<std::uint64_t> next_id{1};
    std::atomic<bool> stopping{false};
    // Coroutines that run as long as the server.
    std::mutex mutex;
    std::condition_variable background_over;
    std::size_t background = 0;                        // under mutex
    std::vector<std::unique_ptr<http::Pause>> pauses;  // each of one loop: scan's, then one a loop for the log
};

// ----------------------------------------------------------------------------------------------------------- requests

S3Result<> S3Server::Impl::authenticate(Worker& worker, Request& request) const {
    const auto& head = request.exchange.request();
    const http::RequestHead signed_head{head.method, request.raw_path, request.query, head.headers};
    auto authorization = http::parse_authorization(signed_head);
    if (!authorization) return tl::unexpected(authorization.error());
    request.authorization = std::move(*authorization);
    if (site.keys == nullptr || request.authorization.form == http::AuthForm::anonymous) return {};
    const auto* const key = site.keys->find(request.authorization.access_key);
    if (key == nullptr) {
        return http::refuse(S3Code::invalid_access_key_id,
                            "The AWS Access Key Id you provided does not exist in our records");
    }
    const auto now = http::second_of(site.clock.now_ns());
    if (auto verified = worker.verifier.verify(request.authorization, signed_head, key->credentials, now); !verified) {
        return verified;
    }
    request.who = key;
    const auto payload = request.authorization.payload;
    if (payload == http::PayloadForm::streaming_signed || payload == http::PayloadForm::streaming_signed_trailer) {
        request.chunk_seed = worker.verifier.chunk_seed(request.authorization, key->credentials);
    }
    return {};
}

Task<S3Result<>> S3Server::Impl::run(Context& context, Request& request, Operation& operation) {
    const auto parsed = parse_target(request, options.domains);
    if (!parsed) co_return parsed;
    if (request.method() == "OPTIONS") {  // of browsers, that ask before they send and sign nothing
        if (request.header("origin"))
            co_return http::refuse(S3Code::access_denied, "Requests of other origins (CORS) are not allowed");
        co_return http::refuse(S3Code::invalid_request, "An OPTIONS request needs the header Origin");
    }
    const auto authentic = authenticate(context.worker, request);
    const auto routed = route(request);
    if (routed) operation = routed->operation;
    if (!authentic) co_return authentic;
    if (!routed) co_return tl::unexpected(routed.error());
    request.operation = to_string(operation);
    co_return co_await routed->run(context, request);
}

Task<void> S3Server::Impl::answer_error(Request& request, const http::S3Error& error) const {
    AnswerHead head(http::http_status(error.code));
    head.add("Content-Type", "application/xml");
    if (!request.error_range.empty()) head.add("Content-Range", request.error_range);
    if (error.code == S3Code::slow_down) head.add("Retry-After", "1");
    if (request.method() == "HEAD") head.add("x-kvern-error", http::to_string(error.code));  // there is no document
    if (!error.etag.empty()) head.add("ETag", quoted(error.etag));
    (void)co_await request.exchange.answer(std::move(head), error_document(error, &request));
}

Task<void> S3Server::Impl::handle(Exchange& exchange) {
    auto& worker = *workers[exchange.loop_index()];
    if (exchange.request().target.starts_with(operations_path)) {
        co_await handle_operations(exchange, false);
        co_return;
    }
    Request request(exchange);
    request.id = id_prefix + std::to_string(next_id++);
    exchange.add_to_answer("x-amz-request-id: " + request.id + "\r\nServer: kvern\r\nx-kvern-extensions: " +
                           (site.offers_fabric() ? "exists, fabric" : "exists") + "\r\n");
    Context context{site, worker};
    Metrics::Request facts;
    site.metrics.begun();
    const auto done = co_await run(context, request, facts.operation);
    if (!done) {
        request.error = http::to_string(done.error().code);
        if (!exchange.begun()) co_await answer_error(request, done.error());
    }
    facts.status = exchange.status();
    facts.total = exchange.loop().now() - exchange.started();
    facts.wire = exchange.wire_time();
    facts.bytes_in = exchange.body_bytes_in();
    facts.bytes_out = exchange.body_bytes_out();
    facts.window_bytes_in = request.window_bytes_in;
    facts.window_bytes_out = request.window_bytes_out;
    facts.lookup = facts.operation == Operation::get_object || facts.operation == Operation::head_object;
    site.metrics.ended(facts);
    access_log.add(worker.index, request, facts, site.clock.now_ns());
}

// ---------------------------------------------------------------------------------------------------------- operation

Metrics::Gauges S3Server::Impl::gauges() const {
    const auto memory = site.gate.stats();
    const auto windows = site.windows ? site.windows->stats() : fabric::LocalStats{};
    std::uint64_t peers = 0, cuts = 0;
    for (const auto& one : site.movers) {
        peers += one->stats().peers;
        cuts += one->stats().cut;
    }
    return {server ? server->connections() : 0,
            options.connections_max,
            site.gate.waiting(),
            server ? server->refused() : 0,
            memory.size_bytes,
            memory.leased_bytes,
            windows.windows,
            windows.window_bytes,
            fabric::registrations(),
            peers,
            cuts};
}

std::string S3Server::Impl::stats() const {
    std::string buckets;
    for (const auto& [name, usage] : site.usage.all()) {
        std::string labels;
        for (const auto& [label, bytes] : usage.bytes_by_label) {
            labels += (labels.empty() ? "" : ",") + json_text(label) + ":" + std::to_string(bytes);
        }
        buckets += (buckets.empty() ? "" : ",") + json_text(name) + ":{\"bytes\":" + std::to_string(usage.bytes) +
                   ",\"objects\":" + std::to_string(usage.objects) +
                   ",\"quota_bytes\":" + std::to_string(site.usage.quota(name)) + ",\"bytes_by_label\":{" + labels +
                   "}}";
    }
    return "{\"time_ns\":" + std::to_string(site.clock.now_ns()) + ",\"started_ns\":" + std::to_string(started_ns) +
           ",\"version\":" + json_text(version()) + ",\"store\":" + json_text(store.describe()) +
           ",\"scanned_ns\":" + std::to_string(site.usage.scanned_ns()) +
           ",\"requests\":" + site.metrics.json(gauges()) + ",\"buckets\":{" + buckets + "}}\n";
}

// Pages need no signature. Where they have an address of their own, the address of S3 tells only whether it works.
Task<void> S3Server::Impl::handle_operations(Exchange& exchange, bool own_address) {
    auto& worker = *workers[exchange.loop_index()];
    const auto target = exchange.request().target;
    const auto path = target.substr(0, target.find('?'));
    const bool elsewhere = options.operations && !own_address && path != "/-/healthy" && path != "/-/ready";
    co_await operations_page(worker, exchange, elsewhere ? std::string_view() : path);
}

Task<void> S3Server::Impl::operations_page(Worker& worker, Exchange& exchange, std::string_view path) {
    const auto answer = [&exchange](unsigned status, std::string_view type, std::string body) -> Task<void> {
        AnswerHead head(status);
        head.add("Content-Type", type).add("Cache-Control", "no-store").add("X-Content-Type-Options", "nosniff");
        if (type.starts_with("text/html")) head.add("Content-Security-Policy", dashboard_policy());
        (void)co_await exchange.answer(std::move(head), body);
    };
    if (exchange.request().method != "GET" && exchange.request().method != "HEAD") {
        co_await answer(405, "text/plain", "only GET\n");
    } else if (path == "/-/healthy") {
        co_await answer(200, "text/plain", "ok\n");
    } else if (path == "/-/ready") {
        std::string trouble = "stopping";
        if (!stopping) trouble = co_await worker.readiness.trouble();
        const bool ready = trouble.empty();
        // Not within the call: GCC 12 destroys what a choice within co_await makes twice.
        std::string text = ready ? "ready" : std::move(trouble);
        co_await answer(ready ? 200 : 503, "text/plain", std::move(text) + "\n");
    } else if (path == "/-/metrics") {
        co_await answer(200, "text/plain; version=0.0.4",
                        site.metrics.prometheus(gauges()) + usage_metrics(site.usage));
    } else if (path == "/-/stats") {
        co_await answer(200, "application/json", stats());
    } else if (path == "/-/ui" || path == "/-/ui/") {
        co_await answer(200, "text/html; charset=utf-8", std::string(dashboard_html()));
    } else {
        co_await answer(404, "text/plain",
                        "known: /-/healthy /-/ready /-/metrics /-/stats /-/ui (with --operations at that address)\n");
    }
}

Task<void> S3Server::Impl::scan_now_and_then() {
    auto& pause = *pauses.front();
    while (!stopping) {
        co_await site.usage.scan(workers.front()->port);
        co_await pause.wait(limits::usage_scan_interval);
    }
    end_background();
}

Task<void> S3Server::Impl::flush_now_and_then(std::size_t loop) {
    auto& pause = *pauses[loop + 1];
    while (!stopping) {
        co_await pause.wait(limits::access_log_interval);
        access_log.flush(loop);
    }
    end_background();
}

void S3Server::Impl::end_background() {
    const std::lock_guard lock(mutex);
    if (--background == 0) background_over.notify_all();
}

void S3Server::Impl::start_background() {
    background = access_log.on() ? loops.size() + 1 : 1;
    pauses.push_back(std::make_unique<http::Pause>(*loops.front()));
    for (const auto& loop : loops) pauses.push_back(std::make_unique<http::Pause>(*loop));
    loops.front()->spawn(scan_now_and_then());
    for (std::size_t i = 0; access_log.on() && i < loops.size(); ++i) loops[i]->spawn(flush_now_and_then(i));
}

// ------------------------------------------------------------------------------------------------------ start and stop

S3Server::S3Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
S3Server::~S3Server() {
    stop(limits::server_drain);
}

namespace {

// A store that loses metadata would lose every object's record: found out before the first request.
Result<void> check_metadata(Store& store) {
    Op put;
    put.kind = OpKind::put;
    put.key = "probe/" + new_id(8);
    put.metadata = std::string(limits::user_metadata_bytes_max, 'm');
    const auto key = put.key;
    const auto stored = run(store, put, limits::command_wait);
    Op stat;
    stat.kind = OpKind::stat;
    stat.key = key;
    stat.with_metadata = true;
    const auto seen = run(store, stat, limits::command_wait);
    Op remove;
    remove.kind = OpKind::remove;
    remove.key = key;
    (void)run(store, remove, limits::command_wait);
    if (stored.status != Status::ok) {
        return fail(ErrorCode::not_supported,
                    "the store can't be written, or keeps no metadata: " + explain(put, stored));
    }
    if (seen.status != Status::ok || seen.stat.metadata != put.metadata) {
        return fail(ErrorCode::not_supported,
                    "the store keeps no metadata: kvern serve needs a file system with extended attributes");
    }
    return {};
}

Result<std::shared_ptr<const http::TlsContext>> tls_of(const ServeOptions& options) {
    if (options.certificate_file.empty() && options.key_file.empty()) return std::shared_ptr<const http::TlsContext>();
    if (options.certificate_file.empty() || options.key_file.empty()) {
        return fail(ErrorCode::invalid_argument, "TLS needs both --tls-cert and --tls-key");
    }
    return http::TlsContext::server(options.certificate_file, options.key_file);
}

// All providers that can be opened, which must be one at least.
Result<std::vector<std::unique_ptr<fabric::OfiMover>>> open_movers(const ServeOptions& options,
                                                                   const std::shared_ptr<Region>& memory) {
    std::vector<std::unique_ptr<fabric::OfiMover>> movers;
    std::string why;
    for (const auto& provider : options.ofi_providers) {
        auto mover = fabric::OfiMover::open(provider, options.fabric_address, memory);
        if (mover) {
            movers.push_back(std::move(*mover));
            continue;
        }
        if (options.every_ofi_provider) {
            return fail(ErrorCode::not_supported, "--fabric-providers: " + mover.error().message);
        }
        log(LogLevel::info, "server", "without a provider: " + mover.error().message);
        why += (why.empty() ? "" : "; ") + mover.error().message;
    }
    if (movers.empty() && !options.ofi_providers.empty()) return fail(ErrorCode::not_supported, "--rdma ofi: " + why);
    return movers;
}

}  // namespace

http::ServerOptions S3Server::Impl::http_options(const http::HostPort& address,
                                                 std::shared_ptr<const http::TlsContext> tls) const {
    http::ServerOptions http_options;
    http_options.address = address;
    http_options.tls = std::move(tls);
    http_options.connections_max = options.connections_max;
    http_options.head_limit = limits::server_head_limit;
    http_options.idle_limit = limits::server_idle_limit;
    http_options.stall_limit = limits::server_stall_limit;
    http_options.send_buffer_bytes = options.send_buffer_bytes;
    http_options.refuse = [](unsigned status, std::string_view reason) {
        AnswerHead head(status);
        head.add("Content-Type", "application/xml");
        const auto code = status == 431 ? S3Code::request_header_section_too_large : S3Code::invalid_request;
        return std::pair(std::move(head), error_document({code, std::string(reason)}, nullptr));
    };
    return http_options;
}

Result<std::unique_ptr<S3Server>> S3Server::start(ServeOptions options, Store& store) {
    if (!options.keys && !http::is_loopback(options.listen.host)) {
        return fail(ErrorCode::permission, "anonymous access is allowed on a loopback address only, not on '" +
                                               options.listen.host + "': give keys instead");
    }
    auto tls = tls_of(options);
    if (!tls) return tl::unexpected(tls.error());
    if (auto keeps = check_metadata(store); !keeps) return tl::unexpected(keeps.error());
    auto region = make_region(options.memory_bytes);
    if (!region) return tl::unexpected(region.error());
    store.attach(*region);
    const auto cores = std::max(std::thread::hardware_concurrency(), 1U);
    const auto threads = options.threads == 0 ? cores : std::min(options.threads, cores);
    auto log = AccessLog::open(options.access_log, threads);
    if (!log) return tl::unexpected(log.error());

    Result<std::unique_ptr<fabric::LocalHost>> windows(nullptr);
    if (options.local_windows) windows = fabric::LocalHost::listen(options.window_socket);
    if (!windows) return tl::unexpected(windows.error());
    auto networks = fabric::Networks::parse(options.fabric_networks);
    if (!networks) return tl::unexpected(networks.error());
    auto movers = open_movers(options, *region);
    if (!movers) return tl::unexpected(movers.error());
    auto impl = std::make_unique<Impl>(std::move(options), store, std::move(*region), std::move(*log));
    impl->site.windows = std::move(*windows);
    impl->site.movers = std::move(*movers);
    impl->site.networks = std::move(*networks);
    std::vector<http::Loop*> all;
    for (unsigned i = 0; i < threads; ++i) {
        all.push_back(impl->loops.emplace_back(std::make_unique<http::Loop>("kvern-serve-" + std::to_string(i))).get());
        impl->workers.push_back(std::make_unique<Worker>(i, *all.back(), impl->site));
    }
    auto* const raw = impl.get();
    auto http_options = impl->http_options(impl->options.listen, std::move(*tls));
    auto server = http::Server::start(
        std::move(http_options), [raw](Exchange& exchange) { return raw->handle(exchange); }, all);
    Result<std::unique_ptr<http::Server>> pages(nullptr);
    if (server && impl->options.operations) {
        pages = http::Server::start(
            impl->http_options(*impl->options.operations, nullptr),
            [raw](Exchange& exchange) { return raw->handle_operations(exchange, true); }, all);
    }
    if (!server || !pages) {
        if (server) (*server)->stop(Duration::zero());
        for (auto& loop : impl->loops) loop->stop();
        return tl::unexpected(server ? pages.error() : server.error());
    }
    impl->pages = std::move(*pages);
    impl->server = std::move(*server);
    impl->start_background();
    return std::unique_ptr<S3Server>(new S3Server(std::move(impl)));
}

unsigned S3Server::port() const {
    return impl_->server->port();
}

std::string S3Server::describe() const {
    const auto& options = impl_->options;
    std::string movers;
    for (const auto& one : impl_->site.movers) movers += ", by " + std::string(one->provider());
    return std::string(options.certificate_file.empty() ? "http://" : "https://") + options.listen.host + ":" +
           std::to_string(port()) + ", " + std::to_string(impl_->loops.size()) + " threads, " +
           format_size(options.memory_bytes) + " of memory, " +
           (options.keys ? std::to_string(options.keys->size()) + " access keys" : "anonymous") +
           (impl_->site.windows ? ", windows at " + impl_->site.windows->address() : "") + movers + ", on " +
           impl_->store.describe();
}

Result<void> S3Server::reload_tls() {
    auto tls = tls_of(impl_->options);
    if (!tls) return tl::unexpected(tls.error());
    impl_->server->replace_tls(std::move(*tls));
    return {};
}

bool S3Server::stop(Duration drain) {
    auto& impl = *impl_;
    if (impl.stopping.exchange(true)) return true;
    const bool drained = impl.server->stop(drain);
    if (impl.pages) impl.pages->stop(Duration::zero());
    for (std::size_t i = 0; i < impl.pauses.size(); ++i) {
        auto& pause = *impl.pauses[i];
        pause.loop().post([&pause] { pause.end(); });
    }
    bool over = false;
    {
        std::unique_lock lock(impl.mutex);
        over = impl.background_over.wait_for(lock, limits::close_wait, [&] { return impl.background == 0; });
    }
    const bool asking =
        std::any_of(impl.workers.begin(), impl.workers.end(), [](const auto& one) { return one->readiness.asking(); });
    if (!over || asking || impl.server->connections() > 0 || (impl.pages && impl.pages->connections() > 0))
        return false;
    for (auto& loop : impl.loops) loop->stop();
    for (std::size_t i = 0; impl.access_log.on() && i < impl.loops.size(); ++i) impl.access_log.flush(i);
    return drained;
}

}  // namespace kvern::server
