// SPDX-License-Identifier: Apache-2.0
// Store URIs: their parts, and the parameters of each engine. Opens nothing.
#include "base/uri.h"

#include <array>

#include "base/text.h"
#include "fuzz.h"
#include "kvern/limits.h"
#include "store/file/store.h"
#include "store/mem_store.h"

namespace kvern::fuzz {
namespace {

void check_engines(const Uri& uri) {
    if (const auto options = file_options(uri)) {
        FUZZ_REQUIRE(uri.host.empty() && uri.path.front() == '/');
        FUZZ_REQUIRE(options->depth >= 1 && options->depth <= limits::file_depth_max);
    } else {
        FUZZ_REQUIRE(!options.error().message.empty());
    }
    const auto memory = open_mem_store(uri);  // takes no memory before the first put
    FUZZ_REQUIRE(memory || !memory.error().message.empty());
}

}  // namespace

void check(std::string_view input) {
    const auto uri = Uri::parse(input);
    if (!uri) {
        FUZZ_REQUIRE(!uri.error().message.empty());
        return;
    }
    FUZZ_REQUIRE(!uri->scheme.empty() && uri->text == input);
    FUZZ_REQUIRE(uri->path.find('\0') == uri->path.npos && uri->host.find('\0') == uri->host.npos);
    check_engines(*uri);
    // The same parts, written by the rules, are read as the same parts.
    std::string written = uri->scheme + "://" + url_escape(uri->host) + url_escape(uri->path);
    char separator = '?';
    for (const auto& [name, value] : uri->params) {
        written += separator + url_escape(name) + "=" + url_escape(value);
        separator = '&';
    }
    const bool writable = uri->host.find('/') == uri->host.npos && (uri->path.empty() || uri->path.front() == '/');
    if (!writable) return;  // an escaped '/' in the host, or a path that follows no host
    const auto again = Uri::parse(written);
    FUZZ_REQUIRE(again && again->scheme == uri->scheme && again->host == uri->host);
    FUZZ_REQUIRE(again->path == uri->path && again->params == uri->params);
}

std::vector<std::string> seeds() {
    return {"file:///mnt/kv",
            "file:///mnt/kv?io=uring&direct=on&depth=32",
            "file:///mnt/with%20space?io=threads",
            "mem:?size=256MiB",
            "mem:?size=18446744073709551615",
            "FILE://host/path?depth=0",
            "s3://bucket/prefix?region=eu-1&endpoint=http%3A%2F%2Fhost%3A9000"};
}

}  // namespace kvern::fuzz
