// SPDX-License-Identifier: Apache-2.0
// S3Windows: one endpoint's way straight into this process's regions: the server is told a token, and reads and writes
// that memory itself. Only who it is told to, only in the requests that hold the token, and never twice for one.
//
// Loop's thread; S3Regions any. A transfer that ended without a definite answer may still write: its operation ends
// only when that can't be any more, so that whoever waits for it keeps its lease in quarantine.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "http/task.h"
#include "kvern/memory.h"
#include "kvern/store.h"
#include "store/s3/request.h"
#include "store/s3/way.h"

namespace kvern {

struct S3Answer;

// The regions that a store was given, for all of its loops.
class S3Regions {
  public:
    void add(std::shared_ptr<Region> region);
    void clear();
    std::size_t count() const { return count_.load(std::memory_order_acquire); }
    std::vector<std::shared_ptr<Region>> all() const;

  private:
    mutable std::mutex mutex_;
    std::vector<std::shared_ptr<Region>> regions_;
    std::atomic<std::size_t> count_{0};
};

class S3Windows {
  public:
    S3Windows(S3Endpoint& endpoint, const S3Regions& regions) : endpoint_(endpoint), regions_(regions) {}

    // One transfer: the server that was told where, and how much. Without a guest: it goes over HTTP.
    struct Transfer {
        std::shared_ptr<const fabric::Guest> guest;
        const fabric::Dialect* dialect = nullptr;
        std::shared_ptr<const void> kept;  // what its token needs
        std::uint64_t size_bytes = 0;
        fabric::Direction direction = fabric::Direction::into;
        explicit operator bool() const { return guest != nullptr; }
    };
    // Names the first `size_bytes` of the buffers in the request, if they are one piece of a region that this server
    // can reach. The first call asks the server how, which is remembered; it may block the loop for a moment.
    http::Task<Transfer> name(S3Request& request, const std::vector<Buffer>& buffers, std::uint64_t size_bytes,
                              fabric::Direction direction);

    // How a request with a token went. `moved`: into or from the memory, as the answer says: its body_bytes and
    // content_length are then those of the transfer. `unproven`: it succeeded, and does not tell what moved, or whether
    // anything did; a look at the object must. `declined`: a get has its body, a put must be sent again with one.
    // `silent`: the server did not look at the token; the body of a get came all the same, a put must be sent with one.
    enum class Reply : std::uint8_t { none, moved, unproven, declined, silent };
    http::Task<Reply> settle(S3Answer& answer, const Transfer& transfer);

    // What an answer without a body has moved, so that it reads as if that had been its body.
    static void set_moved(S3Answer& answer, std::uint64_t moved_bytes);

    void off(std::string reason);  // for limits::fabric_pause

  private:
    bool may_ask() const;
    http::Task<void> learn();
    Result<void> hand_over_all();
    // Nothing: they are not in one window.
    Result<std::optional<fabric::Guest::Minted>> token_for(const std::vector<Buffer>& buffers, std::uint64_t size_bytes,
                                                           fabric::Direction direction) const;
    Reply declined(const S3Answer& answer, const Transfer& transfer);
    http::Task<void> hold(const Transfer& transfer);
    bool holds_too_much() const;

    S3Endpoint& endpoint_;
    const S3Regions& regions_;
    S3Way way_;  // its guest is shared with transfers under way; null: none is known
    std::vector<fabric::Guest::Window> windows_;
    std::vector<std::shared_ptr<Region>> handed_over_;
    bool learning_ = false;
    TimePoint off_until_ = TimePoint::min();
    std::uint64_t held_bytes_ = 0;  // of transfers that may still write
};

}  // namespace kvern
