// SPDX-License-Identifier: Apache-2.0
#include "http/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

namespace kvern::http {
namespace {

ssl_ctx_st* make(const SSL_METHOD* method) {
    auto* const context = SSL_CTX_new(method);
    if (context == nullptr) return nullptr;
    SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    // A peer that ends without close_notify has ended: lengths are known from the head, so nothing can be cut unseen.
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_IGNORE_UNEXPECTED_EOF);
    return context;
}

}  // namespace

TlsContext::TlsContext(ssl_ctx_st* context) : context_(context, SSL_CTX_free) {}

Result<std::shared_ptr<const TlsContext>> TlsContext::client(const std::string& ca_file) {
    ERR_clear_error();
    auto* const context = make(TLS_client_method());
    if (context == nullptr) return fail(ErrorCode::resource, "TLS: " + tls_reasons());
    std::shared_ptr<const TlsContext> made(new TlsContext(context));
    const int loaded = ca_file.empty() ? SSL_CTX_set_default_verify_paths(context)
                                       : SSL_CTX_load_verify_locations(context, ca_file.c_str(), nullptr);
    if (loaded != 1) {
        return fail(ErrorCode::invalid_argument, "TLS: the roots in '" + (ca_file.empty() ? "the system" : ca_file) +
                                                     "' can't be read: " + tls_reasons());
    }
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
    return made;
}

Result<std::shared_ptr<const TlsContext>> TlsContext::server(const std::string& certificate_file,
                                                             const std::string& key_file) {
    ERR_clear_error();
    auto* const context = make(TLS_server_method());
    if (context == nullptr) return fail(ErrorCode::resource, "TLS: " + tls_reasons());
    std::shared_ptr<const TlsContext> made(new TlsContext(context));
    if (SSL_CTX_use_certificate_chain_file(context, certificate_file.c_str()) != 1) {
        return fail(ErrorCode::invalid_argument,
                    "TLS: certificate '" + certificate_file + "' can't be used: " + tls_reasons());
    }
    if (SSL_CTX_use_PrivateKey_file(context, key_file.c_str(), SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_check_private_key(context) != 1) {
        return fail(ErrorCode::invalid_argument, "TLS: key '" + key_file + "' can't be used with certificate '" +
                                                     certificate_file + "': " + tls_reasons());
    }
    return made;
}

std::string tls_reasons() {
    std::string text;
    while (const auto code = ERR_get_error()) {
        char line[256];
        ERR_error_string_n(code, line, sizeof line);
        text += (text.empty() ? "" : "; ") + std::string(line);
    }
    return text.empty() ? "no reason given" : text;
}

}  // namespace kvern::http
