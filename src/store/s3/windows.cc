// SPDX-License-Identifier: Apache-2.0
#include "store/s3/windows.h"

#include <algorithm>
#include <charconv>

#include "base/log.h"
#include "fabric/dialect.h"
#include "fabric/token.h"
#include "kvern/limits.h"
#include "store/s3/endpoint.h"

namespace kvern {
namespace {

using fabric::aws_dialect;

constexpr std::chrono::milliseconds hold_slice{100};

std::optional<std::uint64_t> number(std::optional<std::string_view> text) {
    std::uint64_t value = 0;
    if (!text || text->empty()) return std::nullopt;
    const auto [rest, error] = std::from_chars(text->data(), text->data() + text->size(), value);
    if (error != std::errc{} || rest != text->data() + text->size()) return std::nullopt;
    return value;
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
    return rdma == S3Options::Rdma::local || endpoint_.offers_fabric();
}

void S3Windows::off(std::string reason) {
    off_until_ = endpoint_.loop().now() + limits::fabric_pause;
    windows_.clear();
    handed_over_.clear();
    guest_.reset();
    endpoint_.note_windows(false);
    log(LogLevel::warning, "s3", endpoint_.place().url + ": no transfers straight into memory for a while: " + reason);
}

Result<void> S3Windows::hand_over_all() {
    for (auto& region : regions_.all()) {
        if (std::find(handed_over_.begin(), handed_over_.end(), region) != handed_over_.end()) continue;
        auto id = guest_->hand_over(*region);
        if (!id) return tl::unexpected(id.error());
        windows_.push_back({region->base(), region->size_bytes(), std::move(*id)});
        handed_over_.push_back(std::move(region));
    }
    return {};
}

http::Task<void> S3Windows::learn() {
    learning_ = true;
    S3Request question;
    question.query.push_back({"kvern-fabric", ""});
    auto answer = co_await endpoint_.call(question, endpoint_.deadline());
    learning_ = false;
    if (!answer.good()) {
        off("it does not answer how");
        co_return;
    }
    const auto way = parse_local_way(answer.http.text);
    if (!way) co_return off(way.error().message);
    if (way->socket.empty()) co_return off("it offers none (kvern serve --rdma local)");
    // A path may be on a volume that two network namespaces share.
    const bool abstract = way->socket.front() == '@';
    if (abstract && way->host != fabric::local_host_id()) co_return off("it runs on another host");
    auto guest = fabric::LocalGuest::connect(way->socket);
    if (!guest) co_return off(guest.error().message);
    guest_ = std::make_shared<fabric::LocalGuest>(std::move(*guest));
    if (auto done = hand_over_all(); !done) co_return off(done.error().message);
    endpoint_.note_windows(true);
}

// ----------------------------------------------------------------------------------------------------------- transfers

std::optional<std::string> S3Windows::token_for(const std::vector<Buffer>& buffers, std::uint64_t size_bytes) const {
    const auto piece = one_piece(buffers);
    if (!piece || piece->size_bytes < size_bytes) return std::nullopt;
    for (const auto& window : windows_) {
        if (piece->data < window.begin || piece->data >= window.begin + window.size_bytes) continue;
        const auto offset = static_cast<std::uint64_t>(piece->data - window.begin);
        if (size_bytes > window.size_bytes - offset) return std::nullopt;
        return fabric::local_token(window.id, offset, size_bytes);
    }
    return std::nullopt;
}

http::Task<S3Windows::Transfer> S3Windows::name(S3Request& request, const std::vector<Buffer>& buffers,
                                                std::uint64_t size_bytes) {
    if (size_bytes == 0) co_return Transfer{};
    if (!guest_) {
        if (!may_ask()) co_return Transfer{};
        co_await learn();
    } else if (handed_over_.size() < regions_.count()) {
        if (auto done = hand_over_all(); !done) off(done.error().message);
    }
    if (!guest_) co_return Transfer{};
    const auto token = token_for(buffers, size_bytes);
    if (!token) co_return Transfer{};
    request.headers.emplace_back(aws_dialect.token, *token);
    request.once = true;
    co_return Transfer{guest_, size_bytes};
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
    if (guest_ && holds_too_much()) off("too much memory waits for transfers without an answer");
    const auto until = endpoint_.loop().now() + limits::fabric_hold;
    while (endpoint_.loop().now() < until && transfer.guest->alive()) co_await endpoint_.loop().sleep(hold_slice);
    held_bytes_ -= transfer.size_bytes;
    if (guest_ == transfer.guest && !guest_->alive()) off("the server is gone");
}

http::Task<S3Windows::Reply> S3Windows::settle(S3Answer& answer, const Transfer& transfer) {
    if (answer.status() == 0) {  // without a head nobody knows what the server does now
        if (answer.unclear) co_await hold(transfer);
        co_return Reply::none;
    }
    const auto reply = number(answer.http.head.find(aws_dialect.reply));
    const bool success = answer.status() >= 200 && answer.status() < 300;
    if (reply == 501) {
        // What does not fit says nothing about the way.
        if (success && answer.http.head.content_length.value_or(0) > transfer.size_bytes) co_return Reply::declined;
        if (guest_ != transfer.guest) co_return Reply::declined;  // that way is given up already
        const bool restarted = !guest_->alive();
        off(restarted ? "the server was started anew" : "it declined a token");
        if (restarted) off_until_ = TimePoint::min();  // ask the new one
        co_return Reply::declined;
    }
    // Whoever does not know tokens may also find that nothing has not the sum that was promised.
    if (!success && (reply || answer.status() != 400)) co_return Reply::none;
    if (!reply) {
        off("it does not know tokens");
        co_return Reply::silent;
    }
    const auto moved = number(answer.http.head.find(aws_dialect.moved));
    answer.http.body_bytes = moved.value_or(0);
    answer.http.head.content_length = answer.http.body_bytes;
    answer.sum.reset();  // of a body, and there was none
    co_return Reply::moved;
}

}  // namespace kvern
