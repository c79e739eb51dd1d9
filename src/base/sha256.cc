// SPDX-License-Identifier: Apache-2.0
#include "base/sha256.h"

#include <openssl/evp.h>

#include <cstdlib>

#include "base/log.h"

namespace kvern {
namespace {

// A digest names keys and identities: a wrong one could pass off foreign bytes as ours. OpenSSL refuses only when it
// has no memory or its configuration forbids SHA-256; there is nothing sensible to go on with then.
void require(bool done, std::string_view what) {
    if (done) return;
    log(LogLevel::error, "sha256", what);
    std::abort();
}

const EVP_MD* algorithm() {
    // Fetched once: an implicit fetch for each digest costs more than hashing a key. Leaked on purpose.
    static const EVP_MD* const fetched = EVP_MD_fetch(nullptr, "SHA256", nullptr);
    return fetched;
}

}  // namespace

struct Sha256::Context {
    EVP_MD_CTX* evp = EVP_MD_CTX_new();
    Context() = default;
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;
    ~Context() { EVP_MD_CTX_free(evp); }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
    require(algorithm() != nullptr && context_->evp != nullptr &&
                EVP_DigestInit_ex2(context_->evp, algorithm(), nullptr) == 1,
            "OpenSSL offers no SHA-256: check its configuration (OPENSSL_CONF)");
}

Sha256::~Sha256() = default;

void Sha256::update(std::string_view bytes) {
    require(EVP_DigestUpdate(context_->evp, bytes.data(), bytes.size()) == 1, "EVP_DigestUpdate failed");
}

Digest Sha256::finish() {
    Digest digest{};
    unsigned size_bytes = 0;
    require(EVP_DigestFinal_ex(context_->evp, digest.data(), &size_bytes) == 1 && size_bytes == digest.size(),
            "EVP_DigestFinal_ex failed");
    return digest;
}

Digest sha256(std::string_view bytes) {
    Sha256 sum;
    sum.update(bytes);
    return sum.finish();
}

}  // namespace kvern
