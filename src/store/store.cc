// SPDX-License-Identifier: Apache-2.0
#include "kvern/store.h"

#include <array>
#include <list>

#include "base/text.h"
#include "base/uri.h"
#include "store/fault_store.h"
#include "store/file/store.h"
#include "store/mem_store.h"
#include "store/s3/store.h"

namespace kvern {
namespace {

using Opener = Result<std::unique_ptr<Store>> (*)(const Uri& uri);
struct Engine {
    std::string_view scheme;
    Opener open;
};
constexpr std::array engines{Engine{"file", open_file_store}, Engine{"mem", open_mem_store},
                             Engine{"s3", open_s3_store}, Engine{"fault", open_fault_store}};

std::string subject(const Op& op) {
    switch (op.kind) {
        case OpKind::append:
        case OpKind::commit:
        case OpKind::abort:
            return " of upload " + std::to_string(op.upload);
        case OpKind::space:
            return " of the store";
        default:
            return " '" + op.key + "'";
    }
}

// Operations that somebody stopped waiting for: their queue, and the memory that may still be written.
struct Abandoned {
    std::unique_ptr<CompletionQueue> queue;
    std::shared_ptr<const void> memory;
};

// Keeps one more; frees those that have been answered meanwhile.
void abandon(Abandoned one) {
    static auto* const mutex = new std::mutex;  // never destroyed: transfers outlive main()
    static auto* const all = new std::list<Abandoned>;
    const std::lock_guard lock(*mutex);
    all->remove_if([](const Abandoned& earlier) { return !earlier.queue->drain().empty(); });
    all->push_back(std::move(one));
}

Outcome unanswered(const Store& store, std::chrono::milliseconds wait) {
    const auto text = store.describe();
    Outcome outcome;
    outcome.error = {ErrorCode::unavailable,
                     "no answer within " + std::to_string(wait.count()) + " ms from " + text.substr(0, text.find(';')) +
                         ": check that the server or device behind it answers, for instance with ls"};
    return outcome;
}

}  // namespace

std::string_view to_string(OpKind kind) {
    switch (kind) {
        case OpKind::get:
            return "get";
        case OpKind::put:
            return "put";
        case OpKind::stat:
            return "stat";
        case OpKind::remove:
            return "remove";
        case OpKind::list:
            return "list";
        case OpKind::begin:
            return "begin";
        case OpKind::append:
            return "append";
        case OpKind::commit:
            return "commit";
        case OpKind::abort:
            return "abort";
        case OpKind::space:
            return "space";
    }
    return "?";
}

std::string_view to_string(Status status) {
    switch (status) {
        case Status::ok:
            return "ok";
        case Status::miss:
            return "miss";
        case Status::busy:
            return "busy";
        case Status::failed:
            return "failed";
    }
    return "?";
}

Result<std::unique_ptr<Store>> open_store(std::string_view text) {
    auto uri = Uri::parse(text);
    if (!uri) return tl::unexpected(uri.error());
    std::array<std::string_view, engines.size()> known;
    for (std::size_t i = 0; i < engines.size(); ++i) {
        if (engines[i].scheme == uri->scheme) return engines[i].open(*uri);
        known[i] = engines[i].scheme;
    }
    return fail(ErrorCode::invalid_argument,
                "store '" + uri->text + "': unknown scheme '" + uri->scheme + "'" + suggestion(uri->scheme, known));
}

Outcome run(Store& store, Op op) {
    CompletionQueue queue;
    store.submit({&op, 1}, queue);
    for (;;) {
        queue.wait(std::chrono::milliseconds(-1));
        auto completions = queue.drain();
        if (!completions.empty()) return std::move(completions.front().outcome);
    }
}

Outcome run(Store& store, Op op, std::chrono::milliseconds wait, std::shared_ptr<const void> memory) {
    auto queue = std::make_unique<CompletionQueue>();
    store.submit({&op, 1}, *queue);
    queue->wait(wait);
    auto completions = queue->drain();
    if (!completions.empty()) return std::move(completions.front().outcome);
    abandon({std::move(queue), std::move(memory)});
    return unanswered(store, wait);
}

std::string explain(const Op& op, const Outcome& outcome) {
    auto text = std::string(to_string(op.kind)) + subject(op) + ": ";
    switch (outcome.status) {
        case Status::ok:
            return text + "ok";
        case Status::miss:
            return text + "no such key";
        case Status::busy:
            return text + "busy: " + outcome.error.message;
        case Status::failed:
            return text + std::string(to_string(outcome.error.code)) + ": " + outcome.error.message;
    }
    return text;
}

}  // namespace kvern
