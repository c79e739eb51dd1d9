// SPDX-License-Identifier: Apache-2.0
// The access log: one JSON object a line, gathered on each loop and written together.
//
// One AccessLog a server; lines are added on their loops, flush() by the same. A log that can't be written is said once
// and left out: it never stops a request.
#pragma once

#include <string>
#include <vector>

#include "kvern/result.h"
#include "server/metrics.h"
#include "server/request.h"

namespace kvern::server {

class AccessLog {
  public:
    // `path`: a file to append to, "-" for standard output, or empty for no log.
    static Result<AccessLog> open(const std::string& path, std::size_t loops);
    AccessLog(AccessLog&& other) noexcept;
    ~AccessLog();

    bool on() const { return fd_ >= 0; }
    void add(std::size_t loop, const Request& request, const Metrics::Request& facts, std::int64_t now_ns);
    void flush(std::size_t loop);

  private:
    AccessLog(int fd, bool owned, std::size_t loops) : fd_(fd), owned_(owned), buffers_(loops) {}
    int fd_;
    bool owned_;
    bool failed_ = false;
    std::vector<std::string> buffers_;
};

}  // namespace kvern::server
