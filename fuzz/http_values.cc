// SPDX-License-Identifier: Apache-2.0
// Values of headers: ranges, dates, lists of entity tags, checksums.
#include <algorithm>

#include "base/text.h"
#include "fuzz.h"
#include "http/checksum.h"
#include "http/date.h"
#include "http/etag.h"
#include "http/range.h"
#include "kvern/limits.h"

namespace kvern::fuzz {
namespace {

using namespace http;

void check_ranges(std::string_view input) {
    for (const std::uint64_t size_bytes : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{100}, ~std::uint64_t{0}}) {
        const Range range = parse_range(input, size_bytes);
        if (range.kind != RangeKind::part) continue;
        FUZZ_REQUIRE(range.length > 0 && range.offset < size_bytes && range.length <= size_bytes - range.offset);
        const auto told = parse_content_range(content_range(range, size_bytes));
        FUZZ_REQUIRE(told && told->offset == range.offset && told->length == range.length);
    }
    if (const auto range = parse_content_range(input)) {
        FUZZ_REQUIRE(range->length > 0 && range->length <= range->size_bytes - range->offset);
    }
}

void check_dates(std::string_view input) {
    if (const auto time = parse_http_date(input)) FUZZ_REQUIRE(parse_http_date(http_date(*time)) == time);
    if (const auto time = parse_basic_date(input)) {
        const BasicDate text = basic_date(*time);
        FUZZ_REQUIRE(parse_basic_date({text.data(), text.size()}) == time);
    }
    if (const auto time = parse_iso_date(input)) FUZZ_REQUIRE(parse_iso_date(iso_date(*time)) == time);
}

void check_etags(std::string_view input) {
    const auto list = parse_etags(input);
    if (!list) {
        FUZZ_REQUIRE(!list.error().message.empty());
        return;
    }
    FUZZ_REQUIRE(list->any == list->tags.empty() && list->tags.size() <= limits::etags_max);
    for (const Etag& tag : list->tags) {
        FUZZ_REQUIRE(if_match(*list, tag.value) || tag.weak);
        FUZZ_REQUIRE(!if_none_match(*list, tag.value));
        const auto again = parse_etags((tag.weak ? "W/" : "") + quoted(tag.value));
        FUZZ_REQUIRE(again && again->tags.size() == 1 && again->tags[0] == tag);
    }
}

void check_checksums(std::string_view input) {
    const auto bytes = from_base64(input);
    FUZZ_REQUIRE(!bytes || to_base64(*bytes) == input);
    for (const ChecksumAlgorithm algorithm : s3_checksums) {
        const auto value = parse_checksum(algorithm, input);
        FUZZ_REQUIRE(!value || value->text() == input);
    }
}

}  // namespace

void check(std::string_view input) {
    check_ranges(input);
    check_dates(input);
    check_etags(input);
    check_checksums(input);
}

std::vector<std::string> seeds() {
    return {"bytes=0-9",
            "bytes=-18446744073709551615",
            "bytes=10-",
            "bytes 0-9/100",
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "20130524T000000Z",
            "2026-01-31T12:00:00.000Z",
            "\"a\", W/\"b\",c",
            "*",
            "rosUhgp5mIg=",
            "sOO8/Q=="};
}

}  // namespace kvern::fuzz
