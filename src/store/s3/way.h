// SPDX-License-Identifier: Apache-2.0
// S3Way: how one server reaches this process's regions: by which provider, told in which headers. Found out once.
//
// Loop's thread. Finding may block the loop for a moment: a connection on this host, or opening a network endpoint.
#pragma once

#include <memory>
#include <string>

#include "fabric/dialect.h"
#include "fabric/guest.h"
#include "http/task.h"
#include "kvern/result.h"

namespace kvern {

class S3Endpoint;

struct S3Way {
    std::shared_ptr<fabric::Guest> guest;
    const fabric::Dialect* dialect = nullptr;  // null: still to be found, with a token
};

// As the endpoint's options and its server want it. The error says in a sentence why there is none.
http::Task<Result<S3Way>> s3_find_way(S3Endpoint& endpoint);
// Asks for a probe object that is not there, with a token: whose answer has the header of a reply speaks that dialect.
http::Task<Result<const fabric::Dialect*>> s3_find_dialect(S3Endpoint& endpoint, std::string token);

}  // namespace kvern
