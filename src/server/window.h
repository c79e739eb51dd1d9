// SPDX-License-Identifier: Apache-2.0
// Window: the client's memory that a request's token names: mapped into this process, or reached over the network.
//
// Loop's thread. It does not know requests; who may use it was decided before it was made.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "fabric/local_host.h"
#include "fabric/ofi_mover.h"
#include "http/loop.h"

namespace kvern::server {

class Window {
  public:
    explicit Window(fabric::Span span) : span_(std::move(span)), size_bytes_(span_.size_bytes) {}
    Window(fabric::OfiMover& mover, fabric::Token token)
        : mover_(&mover), token_(std::move(token)), size_bytes_(token_.size_bytes) {}

    std::uint64_t size_bytes() const { return size_bytes_; }
    // The memory itself, where it is mapped; else null, and only start() moves anything.
    std::byte* data() const { return span_.data; }

    // A transfer under way, awaited once: it ends when nothing touches `memory` any more, and it must be awaited before
    // that memory is given back.
    class Moving {
        struct State {
            http::Signal over;
            Result<void> result;
        };

      public:
        http::Task<Result<void>> ended() {
            co_await state_->over.wait();
            co_return state_->result;
        }

      private:
        friend class Window;
        std::shared_ptr<State> state_ = std::make_shared<State>();
    };
    // REQUIRES: data() is null; a range within the window; memory of the server's own region.
    Moving start(http::Loop& loop, fabric::Direction direction, std::uint64_t offset,
                 std::span<std::byte> memory) const {
        Moving moving;
        const auto done = [&loop, state = moving.state_](Result<void> result) {
            loop.post([state, result = std::move(result)] {
                state->result = result;
                state->over.set();
            });
        };
        mover_->move({token_, offset, memory.data(), memory.size(), direction, done});
        return moving;
    }

  private:
    fabric::Span span_;
    fabric::OfiMover* mover_ = nullptr;
    fabric::Token token_;
    std::uint64_t size_bytes_ = 0;
};

}  // namespace kvern::server
