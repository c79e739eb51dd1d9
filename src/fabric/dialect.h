// SPDX-License-Identifier: Apache-2.0
// Dialects of S3 over RDMA: where a request has its token, and where the answer says what became of it. Data, any
// thread. The server speaks the first; the headers of others are known to it, so that they are not passed over.
#pragma once

#include <array>
#include <string_view>

namespace kvern::fabric {

struct Dialect {
    std::string_view name;
    std::string_view token;  // header of a request, in lower case, as all names here
    std::string_view reply;  // of its answer: the status of the transfer; 501: declined. Empty: it tells nothing
    std::string_view moved;  // how many bytes
};

// The headers of AWS's fork of aws-c-s3, which Ceph, NooBaa and others speak.
inline constexpr Dialect aws_dialect{"aws", "x-amz-rdma-token", "x-amz-rdma-reply", "x-amz-rdma-bytes-transferred"};
inline constexpr std::string_view declined = "501";
// Dell ObjectScale's. Any 2xx is its success, so what moved must be found out otherwise.
inline constexpr Dialect dell_dialect{"dell", "x-rdma-info", "", ""};

// Of clients that take silence for success: an empty object must not come of them.
inline constexpr std::array<std::string_view, 3> foreign_token_headers{"x-rdma-info", "x-amz-meta-rdma-token",
                                                                       "x-scal-rdma"};

}  // namespace kvern::fabric
