// SPDX-License-Identifier: Apache-2.0
#include "store/s3/request.h"

#include <algorithm>

#include "base/text.h"
#include "http/percent.h"
#include "kvern/version.h"
#include "store/op_check.h"

namespace kvern {
namespace {

constexpr std::string_view hash_of_nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

void add_line(std::string& head, std::string_view name, std::string_view value) {
    if (value.empty()) return;
    head += name;
    head += ": ";
    head += value;
    head += "\r\n";
}

}  // namespace

std::uint64_t S3Request::body_bytes() const {
    return text.empty() ? total_bytes(body) : text.size();
}

std::string checksum_text(http::ChecksumAlgorithm algorithm, const std::vector<Buffer>& buffers) {
    auto sum = http::Checksum::make(algorithm);
    if (!sum) return {};
    for (const auto& buffer : buffers) sum->update({buffer.data, buffer.size_bytes});
    return sum->finish().text();
}

std::pair<std::string_view, std::string> checksum_header(http::ChecksumAlgorithm algorithm,
                                                         const std::vector<Buffer>& buffers) {
    return {http::header_name(algorithm), checksum_text(algorithm, buffers)};
}

std::vector<Buffer> part_of(const std::vector<Buffer>& buffers, std::uint64_t offset, std::uint64_t length) {
    std::vector<Buffer> part;
    for (const auto& buffer : buffers) {
        if (offset >= buffer.size_bytes) {
            offset -= buffer.size_bytes;
            continue;
        }
        const auto size = std::min<std::uint64_t>(length, buffer.size_bytes - offset);
        if (size == 0) break;
        part.push_back({buffer.data + offset, static_cast<std::size_t>(size)});
        offset = 0;
        length -= size;
    }
    return part;
}

std::string request_head(const S3Request& request, const S3Place& place, http::Signer* signer, http::sys_seconds now) {
    std::string path = place.base;
    if (!request.key.empty() || path.empty()) {
        path += '/';
        http::append_percent_encoded(path, request.key, http::Slash::keep);
    }
    const auto query = http::canonical_query(request.query);

    std::string head(request.method);
    head += ' ';
    head += path;
    if (!query.empty()) {
        head += '?';
        head += query;
    }
    head += " HTTP/1.1\r\n";
    add_line(head, "host", place.host);
    if (request.has_body()) add_line(head, "content-length", std::to_string(request.body_bytes()));
    add_line(head, "user-agent", std::string("kvern/") + std::string(version()));
    for (const auto& [name, value] : request.headers) add_line(head, name, value);
    if (signer != nullptr) {
        std::vector<http::HeaderView> headers{{"host", place.host}};
        for (const auto& [name, value] : request.headers) headers.push_back({name, value});
        const auto hash = request.text.empty() ? std::string() : to_hex(sha256(request.text));
        const auto payload = !hash.empty()                                 ? std::string_view(hash)
                             : !request.body.empty() || request.body_aside ? http::unsigned_payload
                                                                           : hash_of_nothing;
        const http::RequestHead signed_head{request.method, path, request.query, headers};
        const auto added = signer->sign(signed_head, payload, now);
        add_line(head, "x-amz-date", added.amz_date);
        add_line(head, "x-amz-content-sha256", added.amz_content_sha256);
        add_line(head, "x-amz-security-token", added.amz_security_token);
        add_line(head, "authorization", added.authorization);
    }
    head += "\r\n";
    return head;
}

}  // namespace kvern
