// SPDX-License-Identifier: Apache-2.0
// Which operation a request asks for. Pure functions, any thread.
#pragma once

#include "server/metrics.h"
#include "server/site.h"

namespace kvern::server {

struct Route {
    Operation operation = Operation::unknown;
    Done (*run)(Context&, Request&) = nullptr;
};

// not_implemented names what S3 has and this server has not; method_not_allowed, what nobody has.
http::S3Result<Route> route(const Request& request);

}  // namespace kvern::server
