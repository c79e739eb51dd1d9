// SPDX-License-Identifier: Apache-2.0
// The one error type of Kvern: Result<T> = expected<T, Error>.
//
// Pure values, usable from any thread. No exception crosses a public interface: a function that can fail
// returns a Result, and its Error's message names the object, the peer or the option, and the system's own words.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

namespace kvern {

enum class ErrorCode : std::uint8_t {
    invalid_argument,  // the caller's input is wrong: option, URI, key, size
    not_supported,     // right input, but this engine, file system or CPU can't do it
    permission,        // EACCES, EPERM, EROFS; 403
    no_space,          // ENOSPC, EDQUOT
    io,                // EIO and every other answer of the system
    corrupt,           // bytes are there and are not what they must be
    precondition,      // a condition (absent, etag) did not hold; nothing was changed
    resource,          // a limit of this process: memory, descriptors, locked memory
    unavailable,       // the store or peer can't be reached, or closed
    cancelled,         // given up by the caller or by shutdown
    internal,          // a broken invariant of Kvern
};

std::string_view to_string(ErrorCode code);

struct Error {
    ErrorCode code = ErrorCode::internal;
    std::string message;
};

template <class T = void>
using Result = tl::expected<T, Error>;

inline tl::unexpected<Error> fail(ErrorCode code, std::string message) {
    return tl::unexpected<Error>(Error{code, std::move(message)});
}

// Maps an errno value to a code; the message is "<what>: <strerror text>".
Error error_from_errno(int errno_value, std::string_view what);

}  // namespace kvern
