// SPDX-License-Identifier: Apache-2.0
#include "engine/name_space.h"

#include "base/log.h"
#include "base/text.h"
#include "cache/key.h"
#include "kvern/limits.h"

namespace kvern {
namespace {

constexpr std::uint64_t tag_of_marks = 0;  // their answers are of no interest

}  // namespace

void NameSpace::open(const Identity& identity, std::string label) {
    text_ = identity.to_json();
    label_ = std::move(label);
    digest_ = namespace_of(text_);
    hex_ = to_hex(digest_);
    publish();
}

void NameSpace::publish() {
    if (!writes_) return;
    published_at_ = clock_.now();
    publish(identity_key(hex_), text_);
    publish(label_key(hex_), label_ + "\n");
}

void NameSpace::publish(std::string key, std::string text) {
    const std::uint64_t tag = next_tag_++;
    std::string& kept = published_[tag] = std::move(text);
    Op op;
    op.kind = OpKind::put;
    op.tag = tag;
    op.key = std::move(key);
    op.buffers = {{reinterpret_cast<std::byte*>(kept.data()), kept.size()}};
    op.condition = Condition::absent;
    Op mark;
    mark.tag = tag_of_marks;
    mark.key = op.key;
    mark.length = 0;
    mark.mark_used = true;
    Op both[] = {std::move(op), std::move(mark)};
    store_.submit(both, answers_);
}

void NameSpace::tend() {
    if (is_open() && clock_.now() - published_at_ > limits::namespace_mark_interval) publish();
    if (published_.empty()) return;
    for (const Completion& completion : answers_.drain()) {
        if (completion.tag == tag_of_marks) continue;  // it may have come before there was anything to mark
        if (completion.outcome.status != Status::ok && completion.outcome.error.code != ErrorCode::precondition)
            log(LogLevel::warning, "identity", completion.outcome.error.message);
        published_.erase(completion.tag);
    }
}

void NameSpace::abandon() {
    static_cast<void>(new auto(std::move(published_)));
}

}  // namespace kvern
