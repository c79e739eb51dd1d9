// SPDX-License-Identifier: Apache-2.0
// From a store into a client's memory: at once where that is mapped, else window by window over the network. The bytes
// are not looked at: whoever gets them verifies them.
//
// Loop's thread. Knows objects and windows, not requests.
#pragma once

#include <cstdint>
#include <string>

#include "http/s3_error.h"
#include "server/site.h"
#include "server/window.h"

namespace kvern::server {

// Of an object: the store's key, and the store's etag, which names the version that its head told.
struct Version {
    std::string key, etag;
    bool mark_used = false;
};

// How much of a transfer is in the client's memory. Doubtful: bytes may even be on their way still.
enum class Arrival : std::uint8_t { all, none, doubtful };

// Bytes [begin, end) of the version. slow_down: it was replaced meanwhile, or no memory was free; or what the store
// said. After an error nothing arrives any more. REQUIRES: a window of at least that size.
http::Task<http::S3Result<Arrival>> fill_window(Context& context, const Window& window, Version version,
                                                std::uint64_t begin, std::uint64_t end);

}  // namespace kvern::server
