// SPDX-License-Identifier: Apache-2.0
// The long values that are being appended to: what is too small for a part is gathered here, the rest goes to S3 in
// parts straight from the caller's memory. A value that stayed small is put in one request when it is committed.
//
// One loop's thread. The appends of one upload are worked through in their order; uploads don't wait for each other.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "store/delivery.h"
#include "store/s3/multipart.h"

namespace kvern {

class S3Uploads {
  public:
    // `open`: of the whole store, held against limits::open_uploads_max. `finish` gets each job once.
    S3Uploads(std::atomic<std::size_t>& open, std::function<void(Job&, Outcome&&)> finish)
        : open_(open), finish_(std::move(finish)) {}

    // A begin; its upload's number stands in Op::upload.
    void begin(S3Endpoint& endpoint, Job&& job);
    // append, commit, abort.
    void take(Job&& job);
    // Cancels what waits; what is open is aborted at the server once its running operation is over.
    void close();
    bool idle() const { return running_ == 0; }

  private:
    struct Upload;
    http::Task<void> run(std::shared_ptr<Upload> upload);
    http::Task<Outcome> work(Upload& upload, const Op& op);
    http::Task<Outcome> append(Upload& upload, const Op& op);
    http::Task<Outcome> commit(Upload& upload, const Op& op);
    http::Task<Outcome> commit_parts(Upload& upload, const Op& op);
    http::Task<std::optional<Outcome>> send(Upload& upload, std::vector<Buffer> list, std::uint64_t least,
                                            std::uint64_t& sent);
    void start(const std::shared_ptr<Upload>& upload);
    void end(std::uint64_t id);

    std::atomic<std::size_t>& open_;
    const std::function<void(Job&, Outcome&&)> finish_;
    std::map<std::uint64_t, std::shared_ptr<Upload>> uploads_;
    unsigned running_ = 0;
    bool closing_ = false;
};

}  // namespace kvern
