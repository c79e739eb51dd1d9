// SPDX-License-Identifier: Apache-2.0
#include "kvern/result.h"

#include <fmt/format.h>

#include <cerrno>
#include <system_error>

namespace kvern {

std::string_view to_string(ErrorCode code) {
    switch (code) {
        case ErrorCode::invalid_argument:
            return "invalid_argument";
        case ErrorCode::not_supported:
            return "not_supported";
        case ErrorCode::permission:
            return "permission";
        case ErrorCode::no_space:
            return "no_space";
        case ErrorCode::io:
            return "io";
        case ErrorCode::corrupt:
            return "corrupt";
        case ErrorCode::precondition:
            return "precondition";
        case ErrorCode::resource:
            return "resource";
        case ErrorCode::unavailable:
            return "unavailable";
        case ErrorCode::cancelled:
            return "cancelled";
        case ErrorCode::internal:
            return "internal";
    }
    return "internal";
}

namespace {

// EEXIST, ENOENT and EINVAL stay `io`: what they mean (a condition, a miss, a wrong option) only the caller knows.
ErrorCode code_of_errno(int errno_value) {
    switch (errno_value) {
        case EACCES:
        case EPERM:
        case EROFS:
            return ErrorCode::permission;
        case ENOSPC:
        case EDQUOT:
            return ErrorCode::no_space;
        case ENOMEM:
        case EMFILE:
        case ENFILE:
        case ENOBUFS:
            return ErrorCode::resource;
        case ENOSYS:
        case EOPNOTSUPP:
            return ErrorCode::not_supported;
        case ECONNREFUSED:
        case ECONNRESET:
        case ECONNABORTED:
        case EHOSTDOWN:
        case EHOSTUNREACH:
        case ENETDOWN:
        case ENETUNREACH:
        case ENOTCONN:
        case EPIPE:
        case ETIMEDOUT:
            return ErrorCode::unavailable;
        case ECANCELED:
            return ErrorCode::cancelled;
        default:
            return ErrorCode::io;
    }
}

}  // namespace

Error error_from_errno(int errno_value, std::string_view what) {
    // generic_category().message() is the thread-safe form of strerror().
    return Error{code_of_errno(errno_value), fmt::format("{}: {}", what, std::generic_category().message(errno_value))};
}

}  // namespace kvern
