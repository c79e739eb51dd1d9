// SPDX-License-Identifier: Apache-2.0
// UringReader: gets of a file store by one thread and one io_uring.
//
// Any thread may submit, attach, describe and stop. The thread opens a value, cuts it into pieces of
// limits::file_piece_bytes, keeps at most `depth` pieces of at most `depth` values in flight, and takes turns between
// the values, so that one big value uses the whole depth and a small one does not wait behind it. Buffers inside
// attached regions are registered once the region is touched; other memory works without. Does not write files.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "store/file/context.h"

namespace kvern {

class UringReader {
  public:
    // Takes jobs that the ring can't do because it failed to start.
    using Fallback = std::function<void(std::vector<Job>&&)>;

    // Empty if io_uring can be used here, else why not.
    static std::string unusable_why();

    UringReader(std::shared_ptr<FileContext> context, unsigned depth, Fallback fallback);
    ~UringReader();  // REQUIRES: stop() and join_until() were called
    UringReader(const UringReader&) = delete;
    UringReader& operator=(const UringReader&) = delete;

    void submit(std::vector<Job>&& jobs);
    void attach(std::shared_ptr<Region> region);
    // How the buffers are used: "registered: 1 GiB", "unregistered: <why>".
    std::string describe() const;
    // Cancels what has not started.
    void stop();
    // True: the thread has ended. False: it was detached.
    bool join_until(std::chrono::steady_clock::time_point deadline);

  private:
    struct Shared;
    std::shared_ptr<Shared> shared_;
};

}  // namespace kvern
