// SPDX-License-Identifier: Apache-2.0
// TLS contexts for both ends (OpenSSL): the roots a client trusts, the certificate a server shows.
//
// Immutable after creation, shared by any threads. Sessions live in Stream. TLS 1.2 and newer.
#pragma once

#include <memory>
#include <string>

#include "kvern/result.h"

struct ssl_ctx_st;

namespace kvern::http {

class TlsContext {
  public:
    // `ca_file`: PEM roots; empty: the system's. Peers' names are checked against their certificates.
    static Result<std::shared_ptr<const TlsContext>> client(const std::string& ca_file);
    // PEM files: the chain, leaf first, and its key.
    static Result<std::shared_ptr<const TlsContext>> server(const std::string& certificate_file,
                                                            const std::string& key_file);
    ssl_ctx_st* get() const { return context_.get(); }

  private:
    explicit TlsContext(ssl_ctx_st* context);
    std::shared_ptr<ssl_ctx_st> context_;
};

// The reasons that OpenSSL left on this thread, newest last; clears them.
std::string tls_reasons();

}  // namespace kvern::http
