// SPDX-License-Identifier: Apache-2.0
// Client: a store with the queue of its completions, for tools that ask many things at once and may be interrupted.
//
// One thread. Owns the store and closes it first, so that a store that hangs never touches the queue afterwards; memory
// that reads name must outlive the client. Knows nothing about what is stored.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kvern/store.h"

namespace kvern {

class Client {
  public:
    using Stop = std::function<bool()>;  // asked while waiting: true ends the wait

    explicit Client(std::unique_ptr<Store> store, Stop stop = {});

    Store& store() { return *store_; }
    bool stopped() const { return stop_ && stop_(); }

    void submit(std::span<Op> ops);
    std::size_t in_flight() const { return in_flight_; }
    // The next completion. REQUIRES: in_flight() > 0. cancelled once the stop is wanted and nothing came for
    // limits::stop_wait; then the client is good for nothing more.
    Result<Completion> next();

    // Submits all and waits for all: the outcomes in the order of the operations, whose tags it sets. REQUIRES:
    // in_flight() == 0. cancelled as above; what was submitted may still happen then.
    Result<std::vector<Outcome>> call(std::span<Op> ops);
    Result<Outcome> call(Op op);

  private:
    CompletionQueue queue_;  // before the store: outlives it
    std::unique_ptr<Store> store_;
    Stop stop_;
    std::vector<Completion> arrived_;  // the next one last
    std::size_t in_flight_ = 0;
};

}  // namespace kvern
