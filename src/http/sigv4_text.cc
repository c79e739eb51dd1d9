// SPDX-License-Identifier: Apache-2.0
#include "http/sigv4_text.h"

#include <openssl/crypto.h>

namespace kvern::http::sigv4 {
namespace {

constexpr std::string_view digits = "0123456789abcdef";

bool is_blank(char c) {
    return c == ' ' || c == '\t';
}

// Without blanks at both ends, and with one space for any number of them inside.
void append_trimmed(std::string& to, std::string_view value) {
    value = trimmed(value);
    while (!value.empty()) {
        std::size_t end = 0;
        while (end < value.size() && !is_blank(value[end])) ++end;
        to.append(value, 0, end);
        value = trimmed(value.substr(end));
        if (!value.empty()) to += ' ';
    }
}

void append_headers(std::string& to, std::span<const HeaderView> headers) {
    for (std::size_t i = 0; i < headers.size(); ++i) {
        const bool continues = i > 0 && headers[i].name == headers[i - 1].name;
        if (continues) {
            to.back() = ',';  // was the line end of the value before
        } else {
            to += headers[i].name;
            to += ':';
        }
        append_trimmed(to, headers[i].value);
        to += '\n';
    }
}

void append_line(std::string& to, std::string_view line) {
    to += line;
    to += '\n';
}

}  // namespace

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
    while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
    return text;
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
    return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

void append_hex(std::string& to, const Digest& digest) {
    char text[2 * sizeof(Digest)];
    for (std::size_t i = 0; i < digest.size(); ++i) {
        text[2 * i] = digits[digest[i] >> 4];
        text[2 * i + 1] = digits[digest[i] & 15];
    }
    to.append(text, sizeof text);
}

void append_scope(std::string& to, std::string_view day, std::string_view region) {
    to += day;
    to += '/';
    to += region;
    to += '/';
    to += service;
    to += '/';
    to += terminator;
}

void append_signature(std::string& to, const CanonicalRequest& request, const HmacSha256& key,
                      std::string_view amz_date, std::string_view scope, std::string& scratch) {
    scratch.clear();
    append_line(scratch, request.method);
    append_line(scratch, request.path);
    append_line(scratch, request.query);
    append_headers(scratch, request.headers);
    append_line(scratch, {});
    append_line(scratch, request.signed_names);
    scratch += request.payload_hash;
    const Digest digest = sha256(scratch);

    scratch.clear();
    append_line(scratch, algorithm);
    append_line(scratch, amz_date);
    append_line(scratch, scope);
    append_hex(scratch, digest);
    append_hex(to, key.sign(scratch));
}

}  // namespace kvern::http::sigv4
