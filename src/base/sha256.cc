// SPDX-License-Identifier: Apache-2.0
// OpenSSL's own interface of SHA-256 is deprecated in favour of EVP, which takes memory and locks for each digest and
// can't give the state after a block: signing a request would cost five times as much.
#define OPENSSL_SUPPRESS_DEPRECATED
#include "base/sha256.h"

#include <openssl/evp.h>
#include <openssl/sha.h>

#include <algorithm>
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

using Block = std::array<std::uint8_t, SHA256_CBLOCK>;

Digest finish(SHA256_CTX& context, std::string_view bytes) {
    Digest digest;
    SHA256_Update(&context, bytes.data(), bytes.size());
    SHA256_Final(digest.data(), &context);
    return digest;
}

// Of one block: `key` with every byte changed by `pad`.
std::array<std::uint32_t, 8> state_after(Block key, std::uint8_t pad) {
    for (std::uint8_t& byte : key) byte ^= pad;
    SHA256_CTX context;
    SHA256_Init(&context);
    SHA256_Transform(&context, key.data());
    std::array<std::uint32_t, 8> state{};
    std::copy(std::begin(context.h), std::end(context.h), state.begin());
    return state;
}

void resume(SHA256_CTX& context, const std::array<std::uint32_t, 8>& state) {
    SHA256_Init(&context);
    std::copy(state.begin(), state.end(), std::begin(context.h));
    context.Nl = SHA256_CBLOCK * 8;  // bits so far
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
    SHA256_CTX context;
    SHA256_Init(&context);
    return finish(context, bytes);
}

HmacSha256::HmacSha256(std::string_view key) {
    Block padded{};
    if (key.size() > padded.size()) {
        const Digest digest = sha256(key);
        std::copy(digest.begin(), digest.end(), padded.begin());
    } else {
        std::copy(key.begin(), key.end(), padded.begin());
    }
    inner_ = state_after(padded, 0x36);
    outer_ = state_after(padded, 0x5c);
}

Digest HmacSha256::sign(std::string_view text) const {
    SHA256_CTX context;
    resume(context, inner_);
    const Digest inner = finish(context, text);
    resume(context, outer_);
    return finish(context, {reinterpret_cast<const char*>(inner.data()), inner.size()});
}

}  // namespace kvern
