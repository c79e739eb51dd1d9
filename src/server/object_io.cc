// SPDX-License-Identifier: Apache-2.0
#include "server/object_io.h"

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "kvern/limits.h"

namespace kvern::server {

using http::refuse;
using http::S3Code;
using http::S3Error;
using http::S3Result;
using http::Task;

S3Error error_of(const Outcome& outcome, std::string_view what) {
    const auto said = [&](LogLevel level, S3Code code, std::string message) -> S3Error {
        if (log_enabled(level)) log(level, "server", std::string(what) + ": " + outcome.error.message);
        return {code, std::move(message)};
    };
    switch (outcome.status) {
        case Status::miss:
            return {S3Code::no_such_key, "The specified key does not exist"};
        case Status::busy:
            return said(LogLevel::debug, S3Code::slow_down, "The store is busy: please reduce your request rate");
        default:
            break;
    }
    switch (outcome.error.code) {
        case ErrorCode::precondition:
            return {S3Code::precondition_failed, "At least one of the preconditions did not hold"};
        case ErrorCode::no_space:
            return said(LogLevel::error, S3Code::insufficient_storage,
                        "The store is full: nothing can be written until something is removed");
        case ErrorCode::unavailable:
        case ErrorCode::cancelled:
            return said(LogLevel::error, S3Code::service_unavailable, "The store can't be reached at the moment");
        default:
            return said(LogLevel::error, S3Code::internal_error, "The store failed; the server's log has its reason");
    }
}

S3Error no_memory() {
    return {S3Code::slow_down,
            "No memory was free within " + std::to_string(limits::server_memory_wait.count()) + " ms (--memory)"};
}

namespace {

S3Error damaged(const std::string& key, std::string etag, std::string_view what) {
    log(LogLevel::error, "server", "object '" + key + "' is damaged: " + std::string(what));
    return {S3Code::object_damaged, "The object is damaged: " + std::string(what), std::move(etag)};
}

Op get_op(const std::string& key, std::uint64_t offset, std::uint64_t length, std::byte* memory) {
    Op op;
    op.kind = OpKind::get;
    op.key = key;
    op.offset = offset;
    op.length = length;
    op.buffers.push_back({memory, length});
    return op;
}

// What is wrong with a value that should be an object; empty: nothing.
std::string fault_of(const Result<ObjectRecord>& record, const Stat& stat) {
    if (!record) return record.error().message;
    if (record->size_bytes + record->tail_bytes == stat.size_bytes) return {};
    return "its value has " + std::to_string(stat.size_bytes) + " bytes";
}

ObjectHead head_of(const ObjectPlace& place, const std::string& key, Stat stat) {
    auto record = decode_record(stat.metadata);
    ObjectHead head;
    if (const auto fault = fault_of(record, stat); !fault.empty()) {
        log(LogLevel::error, "server", "object '" + key + "' is damaged: " + fault);
        head.recorded = false;
        head.record.etag = stat.etag;
    } else {
        head.record = std::move(*record);
        head.damaged = place.damaged.holds(key, stat.etag);
    }
    stat.metadata.clear();
    head.stat = std::move(stat);
    return head;
}

S3Result<ObjectHead> recorded(ObjectHead head) {
    if (!head.recorded) return tl::unexpected(damage_of(head));
    return head;
}

}  // namespace

S3Error damage_of(const ObjectHead& head) {
    const auto* const what = head.recorded ? "its bytes are not what was stored" : "it has no record";
    return {S3Code::object_damaged, std::string("The object is damaged: ") + what, head.record.etag};
}

Task<S3Result<ObjectHead>> look_at(ObjectPlace place, std::string key) {
    Op op;
    op.kind = OpKind::stat;
    op.key = key;
    op.with_metadata = true;
    auto outcome = co_await place.port.ask(std::move(op));
    if (outcome.status != Status::ok) co_return tl::unexpected(error_of(outcome, key));
    co_return head_of(place, key, std::move(outcome.stat));
}

Task<S3Result<ObjectHead>> read_head(ObjectPlace place, std::string key) {
    auto head = co_await look_at(place, std::move(key));
    if (!head) co_return head;
    co_return recorded(std::move(*head));
}

Task<S3Result<>> complete_record(ObjectPlace place, std::string key, ObjectHead& head) {
    auto& record = head.record;
    if (record.tail_bytes == 0 || !record.block_sums.empty()) co_return S3Result<>{};
    auto pass = co_await place.gate.enter(place.loop, record.tail_bytes, limits::server_memory_wait);
    if (!pass) co_return tl::unexpected(no_memory());
    const auto outcome = co_await place.port.ask(get_op(key, record.size_bytes, record.tail_bytes, pass->data()));
    if (outcome.status != Status::ok) co_return tl::unexpected(error_of(outcome, key));
    if (outcome.stat.etag != head.stat.etag) {
        co_return refuse(S3Code::slow_down, "The object was replaced while it was read");
    }
    const auto joined = join_tail(record, {pass->data(), record.tail_bytes});
    if (!joined) {
        place.damaged.add(key, head.stat.etag);
        co_return tl::unexpected(damaged(key, record.etag, joined.error().message));
    }
    co_return S3Result<>{};
}

// ------------------------------------------------------------------------------------------------------------ reading

Task<S3Result<ObjectReader>> ObjectReader::open(ObjectPlace place, std::string key, bool mark_used) {
    auto pass = co_await place.gate.enter(place.loop, limits::server_first_read_bytes, limits::server_memory_wait);
    if (!pass) co_return tl::unexpected(no_memory());
    auto op = get_op(key, 0, whole_value, pass->data());
    op.buffers.front().size_bytes = pass->size_bytes();
    op.with_metadata = true;
    op.mark_used = mark_used;
    auto outcome = co_await place.port.ask(std::move(op));
    // A value that is larger than the buffer fails, and tells its size.
    const bool large = outcome.status == Status::failed && outcome.stat.size_bytes > pass->size_bytes();
    if (outcome.status != Status::ok && !large) co_return tl::unexpected(error_of(outcome, key));
    auto head = recorded(head_of(place, key, std::move(outcome.stat)));
    if (!head) co_return tl::unexpected(head.error());
    ObjectReader reader(place, std::move(key), std::move(*head));
    auto& record = reader.head_.record;
    if (large) {
        const auto completed = co_await complete_record(place, reader.key_, reader.head_);
        if (!completed) co_return tl::unexpected(completed.error());
    } else {
        if (record.tail_bytes > 0) {
            const auto joined = join_tail(record, {pass->data() + record.size_bytes, record.tail_bytes});
            if (!joined) {
                place.damaged.add(reader.key_, reader.head_.stat.etag);
                co_return tl::unexpected(damaged(reader.key_, record.etag, joined.error().message));
            }
        }
        reader.present_ = Window{0, record.size_bytes, std::move(*pass)};
        reader.ahead_ = record.size_bytes;
    }
    co_return std::move(reader);
}

void ObjectReader::choose(std::uint64_t begin, std::uint64_t end) {
    begin_ = begin;
    end_ = end;
}

// Asks for the next window. Without `must` only if memory is free at once.
Task<S3Result<>> ObjectReader::read_ahead(bool must) {
    if (ahead_ >= end_) co_return S3Result<>{};
    const auto& record = head_.record;
    const auto block = std::uint64_t{record.block_bytes};
    const auto most = std::max<std::uint64_t>(limits::server_read_window_bytes / block, 1) * block;
    const auto last = std::min((end_ + block - 1) / block * block, record.size_bytes);
    const auto size = std::min(most, last - ahead_);
    auto pass = place_.gate.try_enter(size);
    if (!pass && must) pass = co_await place_.gate.enter(place_.loop, size, limits::server_memory_wait);
    if (!pass) {
        if (must) co_return tl::unexpected(no_memory());
        co_return S3Result<>{};
    }
    auto asked = place_.port.ask(get_op(key_, ahead_, size, pass->data()));
    coming_.push_back({Window{ahead_, ahead_ + size, std::move(*pass)}, std::move(asked)});
    ahead_ += size;
    co_return S3Result<>{};
}

// Of a short part all windows are asked for at once, as far as memory is free: whoever reads it slowly still gets one
// version of an object that is replaced meanwhile.
Task<S3Result<>> ObjectReader::read_all_that_is_short() {
    if (end_ - ahead_ > limits::server_read_ahead_bytes) co_return S3Result<>{};
    for (auto before = ~std::uint64_t{0}; ahead_ < end_ && ahead_ != before;) {
        before = ahead_;
        const auto asked = co_await read_ahead(false);
        if (!asked) co_return asked;
    }
    co_return S3Result<>{};
}

S3Result<std::span<const std::byte>> ObjectReader::give_out(const Window& window) const {
    const std::span<const std::byte> bytes(window.pass.data(), window.end - window.begin);
    if (!blocks_hold(head_.record, window.begin / head_.record.block_bytes, bytes)) {
        place_.damaged.add(key_, head_.stat.etag);
        return tl::unexpected(
            damaged(key_, head_.record.etag, "its bytes do not have the sums that were stored with them"));
    }
    const auto from = std::max(begin_, window.begin), to = std::min(end_, window.end);
    return bytes.subspan(from - window.begin, to - from);
}

Task<S3Result<std::span<const std::byte>>> ObjectReader::next() {
    if (!started_) {
        started_ = true;
        if (present_) co_return give_out(*present_);  // read when it was opened
        ahead_ = begin_ / head_.record.block_bytes * head_.record.block_bytes;
        const auto asked = co_await read_all_that_is_short();
        if (!asked) co_return tl::unexpected(asked.error());
    }
    if (coming_.empty()) {
        present_.reset();
        const auto asked = co_await read_ahead(true);
        if (!asked) co_return tl::unexpected(asked.error());
        if (coming_.empty()) co_return std::span<const std::byte>();
    }
    const auto outcome = co_await coming_.front().asked;
    present_ = std::move(coming_.front().window);
    coming_.pop_front();
    if (outcome.status != Status::ok) co_return tl::unexpected(error_of(outcome, key_));
    if (outcome.stat.etag != head_.stat.etag) {
        co_return refuse(S3Code::slow_down, "The object was replaced while it was read");
    }
    if (!place_.port.immediate() && coming_.empty()) {
        const auto ahead = co_await read_ahead(false);
        if (!ahead) co_return tl::unexpected(ahead.error());
    }
    co_return give_out(*present_);
}

Task<void> ObjectReader::settle() {
    for (auto& coming : coming_) (void)co_await coming.asked;
    coming_.clear();
}

// ------------------------------------------------------------------------------------------------------------ writing

namespace {

// A value that is sent to the store in pieces while the next is read.
class Upload {
  public:
    Upload(ObjectPlace place, std::uint64_t id) : place_(place), id_(id) {}

    // `pass` is held until the store has taken the bytes. Waits for the piece before.
    Task<Outcome> append(MemoryGate::Pass pass, std::size_t size_bytes) {
        auto before = co_await settle();
        if (before.status != Status::ok) co_return before;
        Op op;
        op.kind = OpKind::append;
        op.upload = id_;
        op.buffers.push_back({pass.data(), size_bytes});
        held_ = std::move(pass);
        asked_.emplace(place_.port.ask(std::move(op)));
        co_return before;
    }
    // The outcome of the piece under way; ok if there is none.
    Task<Outcome> settle() {
        Outcome outcome;
        outcome.status = Status::ok;
        if (asked_) {
            outcome = co_await *asked_;
            asked_.reset();
            held_.release();
        }
        co_return outcome;
    }
    Task<void> abort() {
        (void)co_await settle();
        Op op;
        op.kind = OpKind::abort;
        op.upload = id_;
        (void)co_await place_.port.ask(std::move(op));
    }
    std::uint64_t id() const { return id_; }

  private:
    ObjectPlace place_;
    const std::uint64_t id_;
    MemoryGate::Pass held_;
    std::optional<StorePort::AskedOne> asked_;
};

S3Result<> finish_record(ObjectRecord& record, std::string& tail) {
    tail = split_tail(record);
    if (encode(record).size() > limits::metadata_bytes_max) {
        return refuse(S3Code::metadata_too_large, "The object's metadata is too large");
    }
    return {};
}

Task<S3Result<ObjectRecord>> write_whole(ObjectPlace place, WriteTarget target, ObjectRecord record, Source& source) {
    const auto size = *target.size_bytes;
    const auto room = size + limits::object_tail_room_bytes;
    auto pass = co_await place.gate.enter(place.loop, room, limits::server_memory_wait);
    if (!pass) co_return tl::unexpected(no_memory());
    const auto read = co_await source.read({pass->data(), size});
    if (!read) co_return tl::unexpected(read.error());
    if (*read != size) co_return refuse(S3Code::incomplete_body, "The body is shorter than its length says");
    const auto finished = co_await source.finish(record);
    if (!finished) co_return tl::unexpected(finished.error());
    auto stored = record;
    std::string tail;
    const auto ready = finish_record(stored, tail);
    if (!ready) co_return tl::unexpected(ready.error());
    std::memcpy(pass->data() + size, tail.data(), tail.size());
    Op op;
    op.kind = OpKind::put;
    op.key = target.key;
    op.buffers.push_back({pass->data(), size + tail.size()});
    op.condition = target.condition;
    op.etag = target.etag;
    op.metadata = encode(stored);
    const auto outcome = co_await place.port.ask(std::move(op));
    if (outcome.status != Status::ok) co_return tl::unexpected(error_of(outcome, target.key));
    co_return std::move(record);
}

Task<S3Result<>> append_all(ObjectPlace place, Upload& upload, Source& source, const std::string& key) {
    for (;;) {
        auto pass = place.gate.try_enter(limits::server_window_bytes);
        if (!pass) {
            // Nothing is held while waiting, so that those who wait for each other's memory do not exist.
            const auto settled = co_await upload.settle();
            if (settled.status != Status::ok) co_return tl::unexpected(error_of(settled, key));
            pass = co_await place.gate.enter(place.loop, limits::server_window_bytes, limits::server_memory_wait);
            if (!pass) co_return tl::unexpected(no_memory());
        }
        const auto read = co_await source.read({pass->data(), limits::server_window_bytes});
        if (!read) co_return tl::unexpected(read.error());
        if (*read == 0) co_return S3Result<>{};
        const bool last = *read < limits::server_window_bytes;
        const auto appended = co_await upload.append(std::move(*pass), *read);
        if (appended.status != Status::ok) co_return tl::unexpected(error_of(appended, key));
        if (last) co_return S3Result<>{};
    }
}

Task<S3Result<>> append_tail(ObjectPlace place, Upload& upload, const std::string& tail, const std::string& key) {
    const auto settled = co_await upload.settle();
    if (settled.status != Status::ok) co_return tl::unexpected(error_of(settled, key));
    if (tail.empty()) co_return S3Result<>{};
    auto pass = co_await place.gate.enter(place.loop, tail.size(), limits::server_memory_wait);
    if (!pass) co_return tl::unexpected(no_memory());
    std::memcpy(pass->data(), tail.data(), tail.size());
    const auto appended = co_await upload.append(std::move(*pass), tail.size());
    const auto over = co_await upload.settle();
    if (appended.status != Status::ok) co_return tl::unexpected(error_of(appended, key));
    if (over.status != Status::ok) co_return tl::unexpected(error_of(over, key));
    co_return S3Result<>{};
}

Task<S3Result<ObjectRecord>> write_parts(ObjectPlace place, WriteTarget target, ObjectRecord record, Source& source) {
    Op begin;
    begin.kind = OpKind::begin;
    begin.key = target.key;
    const auto begun = co_await place.port.ask(std::move(begin));
    if (begun.status != Status::ok) co_return tl::unexpected(error_of(begun, target.key));
    Upload upload(place, begun.upload);
    auto stored = record;
    std::string tail;
    auto done = co_await append_all(place, upload, source, target.key);
    if (done) done = co_await source.finish(record);
    if (done) {
        stored = record;
        done = finish_record(stored, tail);
    }
    if (done) done = co_await append_tail(place, upload, tail, target.key);
    if (!done) {
        co_await upload.abort();
        co_return tl::unexpected(done.error());
    }
    Op commit;
    commit.kind = OpKind::commit;
    commit.upload = upload.id();
    commit.condition = target.condition;
    commit.etag = target.etag;
    commit.metadata = encode(stored);
    const auto outcome = co_await place.port.ask(std::move(commit));
    if (outcome.status != Status::ok) co_return tl::unexpected(error_of(outcome, target.key));
    co_return std::move(record);
}

}  // namespace

Task<S3Result<ObjectRecord>> write_object(ObjectPlace place, WriteTarget target, ObjectRecord record, Source& source) {
    if (target.size_bytes && *target.size_bytes <= limits::server_whole_put_bytes_max) {
        co_return co_await write_whole(place, std::move(target), std::move(record), source);
    }
    co_return co_await write_parts(place, std::move(target), std::move(record), source);
}

}  // namespace kvern::server
