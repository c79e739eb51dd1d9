// SPDX-License-Identifier: Apache-2.0
// A key and a certificate that it signs itself, for 127.0.0.1 and localhost, as PEM files: a server's, and a client's
// root.
#pragma once

#include <gtest/gtest.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <string>

namespace kvern::http::testing {

struct TestCertificate {
    std::string certificate_file, key_file;

    explicit TestCertificate(const std::string& folder)
        : certificate_file(folder + "/certificate.pem"), key_file(folder + "/key.pem") {
        EVP_PKEY* const key = EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", "P-256");
        X509* const certificate = X509_new();
        X509_set_version(certificate, X509_VERSION_3);
        ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
        X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
        X509_gmtime_adj(X509_getm_notAfter(certificate), 24L * 3600);
        X509_set_pubkey(certificate, key);
        auto* const name = X509_get_subject_name(certificate);
        X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("test"), -1, -1, 0);
        X509_set_issuer_name(certificate, name);
        auto* const names = X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, "IP:127.0.0.1,DNS:localhost");
        X509_add_ext(certificate, names, -1);
        X509_EXTENSION_free(names);
        EXPECT_NE(X509_sign(certificate, key, EVP_sha256()), 0);
        write(certificate_file, [&](FILE* file) { return PEM_write_X509(file, certificate); });
        write(key_file,
              [&](FILE* file) { return PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr); });
        X509_free(certificate);
        EVP_PKEY_free(key);
    }

  private:
    template <class F>
    static void write(const std::string& path, F&& put) {
        FILE* const file = std::fopen(path.c_str(), "w");
        ASSERT_NE(file, nullptr) << path;
        EXPECT_EQ(put(file), 1);
        std::fclose(file);
    }
};

}  // namespace kvern::http::testing
