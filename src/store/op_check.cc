// SPDX-License-Identifier: Apache-2.0
#include "store/op_check.h"

#include "base/text.h"
#include "kvern/limits.h"

namespace kvern {
namespace {

constexpr std::string_view reserved_start = ".kvern-";

// A key as it may stand in a message: never kilobytes, never control characters.
std::string shown(std::string_view key) {
    constexpr std::size_t shown_bytes = 80;
    auto text = url_escape(key.substr(0, shown_bytes));
    return "'" + text + (key.size() > shown_bytes ? "…'" : "'");
}

tl::unexpected<Error> broken(std::string_view what, std::string_view key, const std::string& rule) {
    return fail(ErrorCode::invalid_argument, std::string(what) + " " + shown(key) + ": " + rule);
}

Result<void> check_component(std::string_view what, std::string_view key, std::string_view component) {
    if (component.empty()) return broken(what, key, "a component between '/' is empty");
    if (component == "." || component == "..") return broken(what, key, "a component is '.' or '..'");
    if (component.size() > limits::key_component_bytes_max) {
        return broken(what, key,
                      "a component has more than " + std::to_string(limits::key_component_bytes_max) + " bytes");
    }
    if (component.starts_with(reserved_start)) {
        return broken(what, key, "components that start with '.kvern-' are reserved");
    }
    return {};
}

Result<void> check_bytes(std::string_view what, std::string_view key) {
    if (key.size() > limits::key_bytes_max) {
        return broken(what, key, "longer than " + std::to_string(limits::key_bytes_max) + " bytes");
    }
    if (key.find('\0') != std::string_view::npos) return broken(what, key, "contains a byte 0");
    return {};
}

// Components that are followed by a '/', and what remains behind the last '/'.
Result<std::string_view> check_complete_components(std::string_view what, std::string_view key) {
    auto rest = key;
    for (auto slash = rest.find('/'); slash != std::string_view::npos; slash = rest.find('/')) {
        if (auto checked = check_component(what, key, rest.substr(0, slash)); !checked) {
            return tl::unexpected(checked.error());
        }
        rest.remove_prefix(slash + 1);
    }
    return rest;
}

Result<void> check_buffers(const Op& op) {
    for (const auto& buffer : op.buffers) {
        if (buffer.data == nullptr && buffer.size_bytes > 0) {
            return fail(ErrorCode::invalid_argument, std::string(to_string(op.kind)) + ": a buffer has no memory");
        }
    }
    return {};
}

Result<void> check_condition(const Op& op) {
    const bool wants_etag = op.condition == Condition::etag;
    if (op.kind == OpKind::remove && op.condition == Condition::absent) {
        return fail(ErrorCode::invalid_argument, "remove: the condition 'absent' makes no sense");
    }
    if (wants_etag && op.etag.empty()) {
        return fail(ErrorCode::invalid_argument,
                    std::string(to_string(op.kind)) + ": the condition etag needs an etag");
    }
    return {};
}

}  // namespace

Result<void> check_key(std::string_view key) {
    if (key.empty()) return broken("key", key, "it is empty");
    if (auto checked = check_bytes("key", key); !checked) return checked;
    const auto last = check_complete_components("key", key);
    if (!last) return tl::unexpected(last.error());
    return check_component("key", key, *last);
}

Result<void> check_prefix(std::string_view prefix) {
    if (auto checked = check_bytes("prefix", prefix); !checked) return checked;
    const auto last = check_complete_components("prefix", prefix);
    if (!last) return tl::unexpected(last.error());
    if (last->empty() || *last == "." || *last == "..") return {};  // ".x" and "..x" are good names
    return check_component("prefix", prefix, *last);
}

Result<void> check_op(const Op& op) {
    switch (op.kind) {
        case OpKind::get:
        case OpKind::stat:
        case OpKind::put:
        case OpKind::begin:
        case OpKind::remove:
            if (auto checked = check_key(op.key); !checked) return checked;
            break;
        case OpKind::list:
            return check_prefix(op.key);
        case OpKind::append:
        case OpKind::commit:
        case OpKind::abort:
        case OpKind::space:
            break;
    }
    if (op.metadata.size() > limits::metadata_bytes_max) {
        return fail(ErrorCode::invalid_argument, "key " + shown(op.key) + ": metadata of " +
                                                     std::to_string(op.metadata.size()) + " bytes; at most " +
                                                     std::to_string(limits::metadata_bytes_max) + " are allowed");
    }
    if (auto checked = check_condition(op); !checked) return checked;
    return check_buffers(op);
}

std::uint64_t total_bytes(const std::vector<Buffer>& buffers) {
    std::uint64_t total = 0;
    for (const auto& buffer : buffers) total += buffer.size_bytes;
    return total;
}

Result<std::uint64_t> check_range(const Op& op, std::uint64_t size_bytes) {
    if (op.offset > size_bytes) {
        return fail(ErrorCode::invalid_argument, "key " + shown(op.key) + ": offset " + std::to_string(op.offset) +
                                                     " is beyond its size of " + std::to_string(size_bytes));
    }
    const auto rest = size_bytes - op.offset;
    const auto length = op.length == whole_value ? rest : op.length;
    if (length > rest) {
        return fail(ErrorCode::io, "key " + shown(op.key) + ": " + std::to_string(length) + " bytes asked for at " +
                                       std::to_string(op.offset) + ", but its size is " + std::to_string(size_bytes));
    }
    if (const auto room = total_bytes(op.buffers); length > room) {
        return fail(ErrorCode::io, "key " + shown(op.key) + ": " + std::to_string(length) +
                                       " bytes don't fit into buffers of " + std::to_string(room));
    }
    return length;
}

Error precondition_failure(Condition condition, bool exists) {
    if (condition == Condition::absent) return {ErrorCode::precondition, "the key exists"};
    if (!exists) return {ErrorCode::precondition, "there is no such key, so no version of it matches the etag"};
    return {ErrorCode::precondition, "the key has another etag"};
}

Error unknown_upload(std::uint64_t upload) {
    return {ErrorCode::invalid_argument, "no upload " + std::to_string(upload) + " is open: it ended or never began"};
}

std::string too_many_uploads() {
    return std::to_string(limits::open_uploads_max) + " uploads are open: commit or abort some";
}

Outcome failed(ErrorCode code, std::string message) {
    return failed(Error{code, std::move(message)});
}

Outcome failed(Error error) {
    Outcome outcome;
    outcome.status = Status::failed;
    outcome.error = std::move(error);
    return outcome;
}

Outcome busy(std::string message) {
    Outcome outcome;
    outcome.status = Status::busy;
    outcome.error = Error{ErrorCode::unavailable, std::move(message)};
    return outcome;
}

Outcome missed() {
    Outcome outcome;
    outcome.status = Status::miss;
    return outcome;
}

}  // namespace kvern
