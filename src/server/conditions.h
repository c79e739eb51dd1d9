// SPDX-License-Identifier: Apache-2.0
// Conditions of requests: If-Match and its kin, for reading, copying and writing. Pure functions, any thread.
#pragma once

#include <optional>
#include <string_view>

#include "http/s3_error.h"
#include "kvern/store.h"
#include "server/object_record.h"

namespace kvern::server {

// The four headers as they came; names differ between a request's own and those of a copy's source.
struct ConditionHeaders {
    std::optional<std::string_view> match{}, none_match{}, modified_since{}, unmodified_since{};
    bool any() const { return match || none_match || modified_since || unmodified_since; }
};

enum class Verdict : std::uint8_t { go_on, not_modified, failed };

// For reading: an ETag decides before a date, as RFC 9110 orders them. Dates that can't be read are ignored.
Verdict judge_read(const ConditionHeaders& headers, const ObjectRecord& record);

}  // namespace kvern::server
