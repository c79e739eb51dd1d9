// SPDX-License-Identifier: Apache-2.0
#include "server/object_headers.h"

#include <algorithm>
#include <array>

#include "http/date.h"
#include "kvern/limits.h"

namespace kvern::server {

using http::refuse;
using http::S3Code;
using http::S3Result;

namespace {

constexpr std::string_view user_prefix = "x-amz-meta-";
constexpr std::array<std::string_view, 5> kept{"cache-control", "content-disposition", "content-encoding",
                                               "content-language", "expires"};

// "aws-chunked" is how the body came, not what the object is.
std::string without_aws_chunked(std::string_view coding) {
    std::string rest;
    while (!coding.empty()) {
        const auto comma = std::min(coding.find(','), coding.size());
        auto item = coding.substr(0, comma);
        coding.remove_prefix(std::min(comma + 1, coding.size()));
        while (item.starts_with(' ')) item.remove_prefix(1);
        while (item.ends_with(' ')) item.remove_suffix(1);
        if (item.empty() || item == "aws-chunked") continue;
        rest += (rest.empty() ? "" : ", ") + std::string(item);
    }
    return rest;
}

std::string canonical_name(std::string_view name) {
    std::string text(name);
    bool upper = !text.starts_with("x-amz-");
    for (auto& c : text) {
        if (upper && c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
        upper = c == '-' && !name.starts_with("x-amz-");
    }
    return text;
}

}  // namespace

std::string http_time(std::int64_t time_ns) {
    return http::http_date(http::second_of(time_ns));
}

std::string iso_time(std::int64_t time_ns) {
    return http::iso_date(std::chrono::floor<std::chrono::milliseconds>(
        std::chrono::sys_time<std::chrono::nanoseconds>(std::chrono::nanoseconds(time_ns))));
}

S3Result<ObjectRecord> record_from_headers(const Request& request) {
    ObjectRecord record;
    std::size_t user_bytes = 0;
    for (const auto& header : request.exchange.request().headers) {
        if (header.name == "content-type") {
            record.content_type = header.value;
        } else if (header.name == "content-encoding") {
            auto coding = without_aws_chunked(header.value);
            if (!coding.empty()) record.headers.emplace_back(header.name, std::move(coding));
        } else if (std::find(kept.begin(), kept.end(), header.name) != kept.end()) {
            record.headers.emplace_back(header.name, header.value);
        } else if (header.name.starts_with(user_prefix)) {
            user_bytes += header.name.size() - user_prefix.size() + header.value.size();
            // One name twice is one value, as HTTP joins them.
            const auto same = std::find_if(record.headers.begin(), record.headers.end(),
                                           [&](const auto& one) { return one.first == header.name; });
            if (same == record.headers.end()) {
                record.headers.emplace_back(header.name, header.value);
            } else {
                same->second += "," + std::string(header.value);
            }
        }
    }
    if (user_bytes > limits::user_metadata_bytes_max) {
        return refuse(S3Code::metadata_too_large, "Your metadata headers exceed the maximum of " +
                                                      std::to_string(limits::user_metadata_bytes_max) + " bytes");
    }
    return record;
}

ObjectRecord copied_record(const ObjectRecord& from) {
    ObjectRecord record;
    record.content_type = from.content_type;
    record.headers = from.headers;
    return record;
}

void add_object_headers(http::AnswerHead& answer, const Request& request, const ObjectRecord& record) {
    // A presigned GET may say how the answer is to look; CR and LF in it would be headers of the asker's own.
    const auto asked = [&](std::string_view name) -> std::string {
        const auto value = request.param("response-" + std::string(name));
        if (!value || value->find_first_of("\r\n") != std::string_view::npos) return {};
        return std::string(*value);
    };
    answer.add("ETag", '"' + record.etag + '"').add("Last-Modified", http_time(record.written_ns));
    const auto type = asked("content-type");
    answer.add("Content-Type", !type.empty()                 ? std::string_view(type)
                               : record.content_type.empty() ? std::string_view("binary/octet-stream")
                                                             : std::string_view(record.content_type));
    for (const auto name : kept) {
        if (const auto value = asked(name); !value.empty()) answer.add(canonical_name(name), value);
    }
    for (const auto& [name, value] : record.headers) {
        if (asked(name).empty()) answer.add(canonical_name(name), value);
    }
}

void add_checksum_headers(http::AnswerHead& answer, const ObjectRecord& record) {
    if (!record.algorithm || record.checksum.empty()) return;
    answer.add(http::header_name(*record.algorithm), record.checksum);
    answer.add("x-amz-checksum-type", record.composite ? "COMPOSITE" : "FULL_OBJECT");
}

void add_checksum_elements(XmlWriter& xml, const ObjectRecord& record) {
    if (!record.algorithm || record.checksum.empty()) return;
    xml.text(http::element_name(*record.algorithm), record.checksum);
    xml.text("ChecksumType", record.composite ? "COMPOSITE" : "FULL_OBJECT");
}

}  // namespace kvern::server
