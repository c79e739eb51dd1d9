// SPDX-License-Identifier: Apache-2.0
#include "server/conditions.h"

#include <chrono>

#include "http/date.h"
#include "http/etag.h"

namespace kvern::server {
namespace {

bool written_after(const ObjectRecord& record, std::chrono::sys_seconds date) {
    return http::second_of(record.written_ns) > date;
}

}  // namespace

Verdict judge_read(const ConditionHeaders& headers, const ObjectRecord& record) {
    if (headers.match) {
        const auto list = http::parse_etags(*headers.match);
        if (!list || !http::if_match(*list, record.etag)) return Verdict::failed;
    } else if (headers.unmodified_since) {
        const auto date = http::parse_http_date(*headers.unmodified_since);
        if (date && written_after(record, *date)) return Verdict::failed;
    }
    if (headers.none_match) {
        const auto list = http::parse_etags(*headers.none_match);
        if (list && !http::if_none_match(*list, record.etag)) return Verdict::not_modified;
    } else if (headers.modified_since) {
        const auto date = http::parse_http_date(*headers.modified_since);
        if (date && !written_after(record, *date)) return Verdict::not_modified;
    }
    return Verdict::go_on;
}

}  // namespace kvern::server
