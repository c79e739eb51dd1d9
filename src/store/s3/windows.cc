// SPDX-License-Identifier: Apache-2.0
#include "store/s3/windows.h"

#include <algorithm>
#include <charconv>

#include "base/log.h"
#include "fabric/dialect.h"
#include "kvern/limits.h"
#include "store/s3/endpoint.h"

namespace kvern {
namespace {

constexpr std::chrono::milliseconds hold_slice{100};

std::optional<std::uint64_t> number(std::optional<std::string_view> text) {
    std::uint64_t value = 0;
    if (!text || text->empty()) return std::nullopt;
    const auto [rest, error] = std::from_chars(text->data(), text->data() + text->size(), value);
    if (error != std::errc{} || rest != text->data() + text->size()) return std::nullopt;
    return value;
}

bool is_success(std::uint64_t status) {
    return status >= 200 && status < 300;
}

// The buffers as one piece of memory, or nothing.
std::optional<Buffer> one_piece(const std::vector<Buffer>& buffers) {
    if (buffers.empty()) return std::nullopt;
    auto whole = buffers.front();
    for (std::size_t i = 1; i < buffers.size(); ++i) {
        if (buffers[i].data != whole.data + whole.size_bytes) return std::nullopt;
        whole.size_bytes += buffers[i].size_bytes;
    }
    return whole;
}

}  // namespace

void S3Regions::add(std::shared_ptr<Region> region) {
    const std::lock_guard lock(mutex_);
    regions_.push_back(std::move(region));
    count_.store(regions_.size(), std::memory_order_release);
}

void S3Regions::clear() {
    const std::lock_guard lock(mutex_);
    regions_.clear();
    count_.store(0, std::memory_order_release);
}

std::vector<std::shared_ptr<Region>> S3Regions::all() const {
    const std::lock_guard lock(mutex_);
    return regions_;
}

// ------------------------------------------------------------------------------------------------------------ learning

bool S3Windows::may_ask() const {
    const auto rdma = endpoint_.options().rdma;
    if (rdma == S3Options::Rdma::off || learning_ || regions_.count() == 0) return false;
    if (off_until_ > endpoint_.loop().now()) return false;
    return rdma != S3Options::Rdma::automatic || endpoint_.offers_fabric();
}

void S3Windows::off(std::string reason) {
    off_until_ = endpoint_.loop().now() + limits::fabric_pause;
    windows_.clear();
    handed_over_.clear();
    way_ = {};
    endpoint_.note_windows(nullptr);
    log(LogLevel::warning, "s3", endpoint_.place().url + ": no transfers straight into memory for a while: " + reason);
}

Result<void> S3Windows::hand_over_all() {
    for (auto& region : regions_.all()) {
        if (std::find(handed_over_.begin(), handed_over_.end(), region) != handed_over_.end()) continue;
        auto windows = way_.guest->hand_over(region);
        if (!windows) return tl::unexpected(windows.error());
        for (auto& window : *windows) windows_.push_back(std::move(window));
        handed_over_.push_back(std::move(region));
    }
    return {};
}

http::Task<void> S3Windows::learn() {
    learning_ = true;
    auto way = co_await s3_find_way(endpoint_);
    if (way) way_ = std::move(*way);
    auto done = way ? hand_over_all() : tl::unexpected(way.error());
    if (done && way_.dialect == nullptr && !windows_.empty()) {
        const auto& window = windows_.front();
        auto token = way_.guest->token(window, 0, limits::page_bytes, fabric::Direction::into);
        Result<const fabric::Dialect*> dialect = nullptr;
        if (token) {
            dialect = co_await s3_find_dialect(endpoint_, token->text);
        } else {
            dialect = tl::unexpected(token.error());
        }
        if (dialect) way_.dialect = *dialect;
        if (!dialect) done = tl::unexpected(dialect.error());
    }
    learning_ = false;
    if (!done) co_return off(done.error().message);
    if (way_.dialect == nullptr) way_ = {};  // the regions went meanwhile
    if (!way_.guest) co_return;              // or an older transfer has ended it
    endpoint_.note_windows(way_.guest->provider());
}

// ----------------------------------------------------------------------------------------------------------- transfers

Result<std::optional<fabric::Guest::Minted>> S3Windows::token_for(const std::vector<Buffer>& buffers,
                                                                  std::uint64_t size_bytes,
                                                                  fabric::Direction direction) const {
    const auto piece = one_piece(buffers);
    if (!piece || piece->size_bytes < size_bytes) return std::nullopt;
    for (const auto& window : windows_) {
        if (piece->data < window.begin || piece->data >= window.begin + window.size_bytes) continue;
        const auto offset = static_cast<std::uint64_t>(piece->data - window.begin);
        if (size_bytes > window.size_bytes - offset) return std::nullopt;
        auto token = way_.guest->token(window, offset, size_bytes, direction);
        if (!token) return tl::unexpected(token.error());
        return std::move(*token);
    }
    return std::nullopt;
}

http::Task<S3Windows::Transfer> S3Windows::name(S3Request& request, const std::vector<Buffer>& buffers,
                                                std::uint64_t size_bytes, fabric::Direction direction) {
    if (size_bytes == 0 || learning_) co_return Transfer{};
    if (!way_.guest) {
        if (!may_ask()) co_return Transfer{};
        co_await learn();
    } else if (handed_over_.size() < regions_.count()) {
        if (auto done = hand_over_all(); !done) off(done.error().message);
    }
    if (!way_.guest) co_return Transfer{};
    auto token = token_for(buffers, size_bytes, direction);
    if (!token) off(token.error().message);
    if (!token || !*token) co_return Transfer{};
    request.headers.emplace_back(way_.dialect->token, std::move((*token)->text));
    request.once = true;
    co_return Transfer{way_.guest, way_.dialect, std::move((*token)->kept), size_bytes, direction};
}

bool S3Windows::holds_too_much() const {
    std::uint64_t all = 0;
    for (const auto& region : regions_.all()) all += region->size_bytes();
    return static_cast<double>(held_bytes_) > static_cast<double>(all) * limits::fabric_held_fraction_max;
}

// Whatever becomes of this way meanwhile, and of the store: only time, and the end of the server that was told, end it.
// Closing the socket would not, since the server keeps what it is writing to.
http::Task<void> S3Windows::hold(const Transfer& transfer) {
    held_bytes_ += transfer.size_bytes;
    if (way_.guest && holds_too_much()) off("too much memory waits for transfers without an answer");
    const auto until = endpoint_.loop().now() + limits::fabric_hold;
    while (endpoint_.loop().now() < until && transfer.guest->alive()) co_await endpoint_.loop().sleep(hold_slice);
    held_bytes_ -= transfer.size_bytes;
    if (way_.guest == transfer.guest && !way_.guest->alive()) off("the server is gone");
}

S3Windows::Reply S3Windows::declined(const S3Answer& answer, const Transfer& transfer) {
    // What does not fit says nothing about the way.
    const bool too_large = answer.http.head.content_length.value_or(0) > transfer.size_bytes;
    if (is_success(answer.status()) && too_large) return Reply::declined;
    if (way_.guest != transfer.guest) return Reply::declined;  // that way is given up already
    const bool restarted = !way_.guest->alive();
    off(restarted ? "the server was started anew" : "it declined a token");
    if (restarted) off_until_ = TimePoint::min();  // ask the new one
    return Reply::declined;
}

http::Task<S3Windows::Reply> S3Windows::settle(S3Answer& answer, const Transfer& transfer) {
    if (answer.status() == 0) {  // without a head nobody knows what the server does now
        if (answer.unclear) co_await hold(transfer);
        co_return Reply::none;
    }
    const auto& head = answer.http.head;
    const auto& dialect = *transfer.dialect;
    const auto reply = number(head.find(dialect.reply));
    if (reply == 501) co_return declined(answer, transfer);
    // Whoever does not know tokens may also find that nothing has not the sum that was promised, or refuse the header.
    const bool ignorant = !reply && (answer.status() == 400 || answer.status() == 501);
    if (!is_success(answer.status()) && !ignorant) co_return Reply::none;
    const bool into = transfer.direction == fabric::Direction::into;
    const bool has_body = head.content_length.value_or(0) > 0 || answer.http.body_bytes > 0;
    if (ignorant || (!reply && into && (has_body || !dialect.reply.empty()))) {
        off("it does not know tokens in " + std::string(dialect.token));
        co_return Reply::silent;
    }
    const auto moved = number(head.find(dialect.moved));
    if (!moved && (!reply || is_success(*reply))) co_return Reply::unproven;
    set_moved(answer, moved.value_or(0));
    co_return Reply::moved;
}

void S3Windows::set_moved(S3Answer& answer, std::uint64_t moved_bytes) {
    answer.http.body_bytes = moved_bytes;
    answer.http.head.content_length = moved_bytes;
    answer.sum.reset();  // of a body, and there was none
}

}  // namespace kvern
