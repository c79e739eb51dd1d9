// SPDX-License-Identifier: Apache-2.0
// The rules that every operation must meet before an engine looks at it. Pure functions, any thread.
#pragma once

#include <string_view>

#include "kvern/store.h"

namespace kvern {

// A prefix that at least one key could start with (the empty one included): complete components as in check_key(), the
// last may be cut anywhere.
Result<void> check_prefix(std::string_view prefix);

// invalid_argument that names what is wrong: key, prefix, metadata size, condition, buffers.
Result<void> check_op(const Op& op);

// The sum of the sizes of the buffers.
std::uint64_t total_bytes(const std::vector<Buffer>& buffers);

// How many bytes a get moves from a value of `size_bytes`; invalid_argument or io as include/kvern/store.h says for
// get.
Result<std::uint64_t> check_range(const Op& op, std::uint64_t size_bytes);

// Errors that all engines word alike.
Error precondition_failure(Condition condition, bool exists);
Error unknown_upload(std::uint64_t upload);
std::string too_many_uploads();

// Outcomes in one expression.
Outcome failed(ErrorCode code, std::string message);
Outcome failed(Error error);
Outcome busy(std::string message);
Outcome missed();

}  // namespace kvern
