// SPDX-License-Identifier: Apache-2.0
#include "server/window_reads.h"

#include <algorithm>
#include <deque>

#include "base/log.h"
#include "kvern/limits.h"

namespace kvern::server {

using http::refuse;
using http::S3Code;
using http::S3Result;
using http::Task;

namespace {

Task<S3Result<>> read_version(Context& context, Version version, std::uint64_t offset, std::span<std::byte> into) {
    Op op;
    op.kind = OpKind::get;
    op.key = version.key;
    op.offset = offset;
    op.length = into.size();
    op.buffers.push_back({into.data(), into.size()});
    op.mark_used = version.mark_used;
    const auto outcome = co_await context.worker.port.ask(std::move(op));
    if (outcome.status != Status::ok) co_return tl::unexpected(error_of(outcome, version.key));
    if (outcome.stat.etag != version.etag) {
        co_return refuse(S3Code::slow_down, "The object was replaced while it was read");
    }
    co_return S3Result<>{};
}

// Windows of the object on their way: each is read while those before it are written to the client's memory.
class WindowsOut {
  public:
    explicit WindowsOut(const Window& window) : window_(window) {}
    void add(http::Loop& loop, std::uint64_t offset, MemoryGate::Pass pass, std::size_t size_bytes) {
        auto moving = window_.start(loop, fabric::Direction::into, offset, {pass.data(), size_bytes});
        moving_.push_back({std::move(pass), std::move(moving)});
    }
    // Waits until at most `most` are left; REQUIRED with 0 before this is destroyed.
    Task<Arrival> settle(std::size_t most) {
        while (moving_.size() > most) {
            const auto moved = co_await moving_.front().moving.ended();
            moving_.pop_front();
            moved_any_ = moved_any_ || moved;
            if (moved) continue;
            if (arrival_ == Arrival::all)
                log(LogLevel::warning, "server", "a transfer by token: " + moved.error().message);
            const bool begun = moved_any_ || moved.error().code != ErrorCode::unavailable;
            if (arrival_ != Arrival::doubtful) arrival_ = begun ? Arrival::doubtful : Arrival::none;
        }
        co_return arrival_;
    }

  private:
    struct One {
        MemoryGate::Pass pass;
        Window::Moving moving;
    };
    const Window& window_;
    std::deque<One> moving_;
    Arrival arrival_ = Arrival::all;
    bool moved_any_ = false;
};

Task<S3Result<Arrival>> move_to_window(Context& context, const Window& window, Version version, std::uint64_t begin,
                                       std::uint64_t end) {
    auto& loop = context.worker.loop;
    WindowsOut out(window);
    S3Result<> done;
    auto arrival = Arrival::all;
    for (auto at = begin; at < end && arrival == Arrival::all;) {
        const auto size = std::min<std::uint64_t>(limits::server_window_bytes, end - at);
        auto pass = context.site.gate.try_enter(size);
        if (!pass) {  // whoever waits for memory holds none: others would wait for that
            arrival = co_await out.settle(0);
            if (arrival != Arrival::all) break;
            pass = co_await context.site.gate.enter(loop, size, limits::server_memory_wait);
        }
        if (pass) {
            done = co_await read_version(context, version, at, {pass->data(), size});
        } else {
            done = tl::unexpected(no_memory());
        }
        if (!done) break;
        out.add(loop, at - begin, std::move(*pass), size);
        at += size;
        arrival = co_await out.settle(limits::fabric_reads_ahead - 1);
    }
    arrival = co_await out.settle(0);  // whatever is answered, nothing arrives after it
    if (!done && arrival != Arrival::doubtful) co_return tl::unexpected(done.error());
    co_return arrival;
}

}  // namespace

Task<S3Result<Arrival>> fill_window(Context& context, const Window& window, Version version, std::uint64_t begin,
                                    std::uint64_t end) {
    if (begin == end) co_return Arrival::all;
    if (window.data() == nullptr) co_return co_await move_to_window(context, window, std::move(version), begin, end);
    const auto read = co_await read_version(context, std::move(version), begin, {window.data(), end - begin});
    if (!read) co_return tl::unexpected(read.error());
    co_return Arrival::all;
}

}  // namespace kvern::server
