// SPDX-License-Identifier: Apache-2.0
// kvern serve: an S3-compatible server on any store, until a signal.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <thread>

#include "base/log.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/interrupt.h"
#include "cli/target.h"
#include "fabric/ofi_endpoint.h"
#include "server/request.h"
#include "server/s3_server.h"

namespace kvern::cli {
namespace {

struct Options {
    std::string store;
    std::string listen = "127.0.0.1:9000";
    std::string operations;
    std::string keys_file, region, domains, certificate_file, key_file, quotas, access_log, port_file, rdma,
        window_socket, fabric_providers, fabric_address, fabric_networks;
    bool anonymous = false;
    std::uint64_t memory_bytes = limits::server_memory_bytes_default;
    std::uint64_t threads = 0;
    std::uint64_t connections = limits::server_connections_default;
    std::uint64_t send_buffer_bytes = limits::server_send_buffer_bytes;
    std::optional<std::chrono::milliseconds> drain;
};

std::vector<std::string> split(const std::string& list) {
    std::vector<std::string> parts;
    for (std::size_t at = 0; at < list.size();) {
        const auto comma = std::min(list.find(',', at), list.size());
        if (comma > at) parts.push_back(list.substr(at, comma - at));
        at = comma + 1;
    }
    return parts;
}

// "cache=500GiB,bench=10GiB,*=1TiB"
Result<void> read_quotas(const std::string& text, server::ServeOptions& options) {
    for (const auto& part : split(text)) {
        const auto equal = part.find('=');
        const auto size = equal == std::string::npos ? Result<std::uint64_t>(fail(ErrorCode::invalid_argument, ""))
                                                     : parse_size(part.substr(equal + 1));
        if (!size) {
            return fail(ErrorCode::invalid_argument,
                        "--quota '" + part + "': expected BUCKET=SIZE, such as cache=500GiB, or *=1TiB for all others");
        }
        const auto bucket = part.substr(0, equal);
        if (bucket == "*") {
            options.default_quota = *size;
        } else if (server::valid_bucket_name(bucket)) {
            options.quotas[bucket] = *size;
        } else {
            return fail(ErrorCode::invalid_argument, "--quota '" + part + "': no bucket can have the name '" + bucket +
                                                         "' (3 to 63 of a-z, 0-9, '-' and '.')");
        }
    }
    return {};
}

Result<void> read_keys(const Options& options, server::ServeOptions& serve) {
    const char* const access = std::getenv("KVERN_ACCESS_KEY");
    const char* const secret = std::getenv("KVERN_SECRET_KEY");
    if (options.anonymous) {
        if (!options.keys_file.empty())
            return fail(ErrorCode::invalid_argument, "--anonymous and --keys exclude each other");
        return {};
    }
    if (!options.keys_file.empty()) {
        auto keys = server::AccessKeys::load(options.keys_file);
        if (!keys) return tl::unexpected(keys.error());
        serve.keys = std::move(*keys);
        return {};
    }
    if (access == nullptr || secret == nullptr || *access == '\0' || *secret == '\0') {
        return fail(
            ErrorCode::invalid_argument,
            "no access keys: set KVERN_ACCESS_KEY and KVERN_SECRET_KEY, or give --keys FILE (or --anonymous on a "
            "loopback address)");
    }
    serve.keys = server::AccessKeys::single({access, secret, ""});
    return {};
}

Result<server::ServeOptions> serve_options(const Options& options) {
    server::ServeOptions serve;
    auto listen = http::parse_host_port(options.listen);
    if (!listen) return tl::unexpected(listen.error());
    if (listen->port.empty()) {
        return fail(ErrorCode::invalid_argument, "--listen '" + options.listen + "': a port is missing, such as :9000");
    }
    serve.listen = std::move(*listen);
    if (!options.operations.empty()) {
        auto address = http::parse_host_port(options.operations);
        if (!address) return tl::unexpected(address.error());
        serve.operations = std::move(*address);
    }
    if (auto keys = read_keys(options, serve); !keys) return tl::unexpected(keys.error());
    if (auto quotas = read_quotas(options.quotas, serve); !quotas) return tl::unexpected(quotas.error());
    serve.region = options.region;
    serve.domains = split(options.domains);
    serve.certificate_file = options.certificate_file;
    serve.key_file = options.key_file;
    serve.memory_bytes = options.memory_bytes;
    serve.threads = static_cast<unsigned>(options.threads);
    serve.connections_max = options.connections;
    serve.send_buffer_bytes = options.send_buffer_bytes;
    serve.access_log = options.access_log;
    for (const auto& provider : split(options.rdma)) {
        if (provider == "local") {
            serve.local_windows = true;
        } else if (provider == "ofi") {
            serve.ofi_providers = {fabric::ofi_providers.begin(), fabric::ofi_providers.end()};
        } else {
            return fail(ErrorCode::invalid_argument, "--rdma '" + provider + "': known are local and ofi");
        }
    }
    for (const auto& [name, value] : {std::pair("--fabric-providers", &options.fabric_providers),
                                      std::pair("--fabric-address", &options.fabric_address),
                                      std::pair("--fabric-networks", &options.fabric_networks)}) {
        if (value->empty() || !serve.ofi_providers.empty()) continue;
        return fail(ErrorCode::invalid_argument, std::string(name) + " goes with --rdma ofi");
    }
    if (!options.fabric_providers.empty()) {
        serve.ofi_providers = split(options.fabric_providers);
        serve.every_ofi_provider = true;
    }
    serve.fabric_address = options.fabric_address;
    serve.fabric_networks = options.fabric_networks;
    if (!options.window_socket.empty() && !serve.local_windows) {
        return fail(ErrorCode::invalid_argument, "--window-socket goes with --rdma local");
    }
    serve.window_socket = options.window_socket;
    return serve;
}

// Written under another name first, so that whoever waits for it never reads half a number.
bool write_port(const std::string& path, unsigned port) {
    const auto temporary = path + ".new";
    std::ofstream(temporary) << port << "\n";
    return std::rename(temporary.c_str(), path.c_str()) == 0;
}

volatile sig_atomic_t reload_wanted = 0;

void wait_for_signal(server::S3Server& server) {
    struct sigaction action {};
    action.sa_handler = [](int) { reload_wanted = 1; };
    sigaction(SIGHUP, &action, nullptr);
    sigset_t blocked, before;
    sigemptyset(&blocked);
    for (const int one : {SIGHUP, SIGINT, SIGTERM}) sigaddset(&blocked, one);
    pthread_sigmask(SIG_BLOCK, &blocked, &before);
    while (!interrupted()) {
        sigsuspend(&before);
        if (reload_wanted != 0) {
            reload_wanted = 0;
            if (auto reloaded = server.reload_tls(); !reloaded) {
                log(LogLevel::error, "server", reloaded.error().message + "; the certificate in use stays");
            }
        }
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

int serve(const Options& options) {
    auto prepared = serve_options(options);
    if (!prepared) return complain(prepared.error());
    auto store = open_store(options.store);
    if (!store) return complain(store.error());
    auto server = server::S3Server::start(std::move(*prepared), **store);
    if (!server) return complain(server.error());
    if (!options.port_file.empty() && !write_port(options.port_file, (*server)->port())) {
        return complain(exit_failed, "serve: the port can't be written to '" + options.port_file + "'");
    }
    fmt::print(stderr, "kvern serve: {}\n", (*server)->describe());
    wait_for_signal(**server);
    fmt::print(stderr, "kvern serve: stopping; requests under way may finish\n");
    if (!(*server)->stop(options.drain.value_or(limits::server_drain))) {
        fmt::print(stderr, "kvern serve: some requests were broken off\n");
        std::_Exit(exit_failed);  // the store may still be writing into memory of theirs
    }
    server->reset();
    (*store)->close(limits::close_wait);
    return exit_ok;
}

}  // namespace

Command serve_command() {
    return {
        "serve",
        "Serve a store to S3 clients",
        [](Arguments& arguments) -> Runner {
            auto options = std::make_shared<Options>();
            arguments.text("--store", options->store,
                           "Store to serve (required), such as file:///srv/kv or mem:?size=4GiB");
            arguments.text("--listen", options->listen, "Address and port; port 0 takes a free one");
            arguments.text(
                "--operations", options->operations,
                "Address of its own for metrics and page, which need no signature; else they are at --listen");
            arguments.text("--port-file", options->port_file, "File to write the port to once the server listens");
            arguments.text("--keys", options->keys_file,
                           "TOML file of access keys (mode 0600); else KVERN_ACCESS_KEY and KVERN_SECRET_KEY");
            arguments.flag("--anonymous", options->anonymous, "Everybody may do everything; loopback addresses only");
            arguments.text("--region", options->region, "Region that requests must be signed for; any if not given");
            arguments.text("--domain", options->domains, "Host names whose subdomains are buckets, with commas");
            arguments.text("--tls-cert", options->certificate_file, "Certificate chain (PEM); read again on SIGHUP");
            arguments.text("--tls-key", options->key_file, "Its key (PEM)");
            arguments.size("--memory", options->memory_bytes, "Memory of the server, the store mem: aside");
            arguments.number("--threads", options->threads, "Event loops, at most one a core; 0: one a core");
            arguments.number("--connections", options->connections, "Open connections at most");
            arguments.size("--send-buffer", options->send_buffer_bytes,
                           "Of a connection, for bytes under way; more for clients far away; 0: the kernel's choice");
            arguments.text("--quota", options->quotas, "Most that buckets may hold: cache=500GiB,*=1TiB");
            arguments.text("--rdma", options->rdma,
                           "Providers for transfers straight into clients' memory: local, for clients of this host; "
                           "ofi, over the network");
            arguments.text("--window-socket", options->window_socket,
                           "Path of the socket where they hand it over; else an abstract one that nobody can guess");
            arguments.text("--fabric-providers", options->fabric_providers,
                           "Of libfabric, with commas; else those of 'verbs;ofi_rxm' and 'tcp;ofi_rxm' that are here");
            arguments.text("--fabric-address", options->fabric_address,
                           "This host's address in the network of the transfers; else the provider's choice");
            arguments.text(
                "--fabric-networks", options->fabric_networks,
                "Networks where clients' memory may be, such as 10.0.0.0/8, beside where a request comes from");
            arguments.text("--access-log", options->access_log,
                           "File for a JSON line a request; '-' is standard output");
            arguments.duration("--drain", options->drain, "How long requests may finish at a stop (30s)");
            arguments.examples(
                "  KVERN_ACCESS_KEY=me KVERN_SECRET_KEY=secret kvern serve --store file:///srv/kv --listen "
                "0.0.0.0:9000\n"
                "  kvern serve --store mem:?size=4GiB --anonymous          # to try it: http://127.0.0.1:9000/-/ui\n"
                "  kvern serve --store file:///srv/kv --keys keys.toml --tls-cert chain.pem --tls-key key.pem");
            return [options] {
                if (options->store.empty()) return complain(exit_usage, "serve: --store URI is missing");
                return serve(*options);
            };
        },
        {}};
}

}  // namespace kvern::cli
