// SPDX-License-Identifier: Apache-2.0
// S3Server: `kvern serve`, an S3-compatible server on any store (docs/protocol.md, docs/operations.md).
//
// start() and stop() from the main thread; everything else happens on its loops. The store below must keep metadata,
// and belongs to the caller, who closes it after stop().
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "http/address.h"
#include "kvern/limits.h"
#include "kvern/store.h"
#include "server/keys.h"

namespace kvern::server {

struct ServeOptions {
    http::HostPort listen;
    std::optional<http::HostPort> operations;  // pages and metrics are served here alone, where it is given
    std::optional<AccessKeys> keys;            // none: anonymous, everything is allowed to everybody
    std::string region;                        // requests must be signed for it; empty: for any
    std::vector<std::string> domains;          // whose subdomains are buckets
    std::string certificate_file, key_file;    // both or none
    std::uint64_t memory_bytes = limits::server_memory_bytes_default;
    unsigned threads = 0;  // 0: one a core
    std::size_t connections_max = limits::server_connections_default;
    std::uint64_t send_buffer_bytes = limits::server_send_buffer_bytes;  // of a socket; 0: the kernel's choice
    bool local_windows = false;              // processes of this host may hand over memory, for one-sided transfers
    std::string window_socket;               // where; empty: an abstract one
    std::vector<std::string> ofi_providers;  // of libfabric, for transfers over the network
    bool every_ofi_provider = false;         // must be there, rather than one
    std::string fabric_address;              // of this host, from where; empty: the provider's choice
    std::string fabric_networks;             // of clients, beside where their requests come from; with commas
    std::map<std::string, std::uint64_t> quotas;  // by bucket
    std::uint64_t default_quota = 0;              // 0: none
    std::string access_log;                       // file, "-" for standard output, empty for none
};

class S3Server {
  public:
    static Result<std::unique_ptr<S3Server>> start(ServeOptions options, Store& store);
    ~S3Server();

    unsigned port() const;
    std::string describe() const;  // one line for people
    // Reads certificate and key again; what is in use stays where they can't be read.
    Result<void> reload_tls();
    // Lets requests under way finish until `drain` is over. False: some were broken off, and if the store below does
    // not answer, some still hold its memory: then the process must end without destroying this.
    bool stop(Duration drain);

  private:
    struct Impl;
    explicit S3Server(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace kvern::server
