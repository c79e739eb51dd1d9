// SPDX-License-Identifier: Apache-2.0
#include "store/s3/reads.h"

#include <algorithm>
#include <array>

#include "http/percent.h"
#include "kvern/limits.h"
#include "store/op_check.h"

namespace kvern {
namespace {

Outcome odd_answer(const S3Endpoint& endpoint, std::string_view s3_key, const std::string& what) {
    return failed(ErrorCode::io, endpoint.named(s3_key) + ": " + what);
}

// An answer that is neither good nor what was expected of this request.
Outcome unexpected(const S3Endpoint& endpoint, std::string_view s3_key, const S3Answer& answer) {
    return odd_answer(
        endpoint, s3_key,
        "answered " + std::to_string(answer.status()) + " " + answer.error.code + " " + answer.error.message);
}

// How a get that moves nothing ends: by a look, which tells the size.
http::Task<Outcome> get_nothing(S3Endpoint& endpoint, const Op& op) {
    auto outcome = co_await s3_stat(endpoint, op);
    if (outcome.status != Status::ok) co_return outcome;
    const auto range = check_range(op, outcome.stat.size_bytes);
    if (!range || *range > 0) {
        outcome.status = Status::failed;
        outcome.error = range
                            ? Error{ErrorCode::io, endpoint.named(endpoint.s3_key(op.key)) + ": the range was refused"}
                            : range.error();
    }
    co_return outcome;
}

S3Request get_request(const S3Endpoint& endpoint, const Op& op) {
    S3Request request;
    request.key = endpoint.s3_key(op.key);
    request.text_answer = false;
    request.into = op.buffers;
    if (op.length != whole_value) {
        request.into = part_of(op.buffers, 0, op.length);
        request.headers.emplace_back(
            "range", "bytes=" + std::to_string(op.offset) + "-" + std::to_string(op.offset + op.length - 1));
    } else if (op.offset > 0) {
        request.headers.emplace_back("range", "bytes=" + std::to_string(op.offset) + "-");
    }
    if (endpoint.options().checksum) {
        request.headers.emplace_back("x-amz-checksum-mode", "ENABLED");
        if (op.offset == 0) request.sum_answer = endpoint.options().checksum;
    }
    if (op.mark_used) request.headers.emplace_back("x-kvern-mark-used", "1");
    return request;
}

// The checksum of the whole object that came with it, in one of the algorithms that are cheap enough.
std::optional<http::ChecksumValue> stored_checksum(const http::Head& head, http::ChecksumAlgorithm algorithm) {
    const auto type = head.find("x-amz-checksum-type");
    if (type && *type != "FULL_OBJECT") return std::nullopt;
    const auto text = head.find(http::header_name(algorithm));
    return text ? http::parse_checksum(algorithm, *text) : std::nullopt;  // "…-3", of parts, is none
}

// Whether the whole object that was read is what was stored, as far as the server tells.
bool is_intact(const S3Answer& answer, const std::vector<Buffer>& buffers, std::uint64_t size_bytes) {
    constexpr std::array algorithms{http::ChecksumAlgorithm::crc64nvme, http::ChecksumAlgorithm::crc32c};
    if (answer.sum) {
        if (const auto stored = stored_checksum(answer.http.head, answer.sum->algorithm)) {
            return *stored == *answer.sum;
        }
    }
    for (const auto algorithm : algorithms) {
        const auto stored = stored_checksum(answer.http.head, algorithm);
        if (stored) return stored->text() == checksum_text(algorithm, part_of(buffers, 0, size_bytes));
    }
    return true;
}

// The stat of an answer to GET: its size is the whole value's. Nothing: the answer contradicts the request.
std::optional<Stat> stat_of_get(const S3Answer& answer, const Op& op) {
    auto stat = stat_of(answer.http.head, op.with_metadata);
    if (answer.status() == 206) {
        const auto range = answer.http.head.find("content-range");
        const auto parsed = range ? parse_content_range(*range) : std::nullopt;
        if (!parsed || parsed->first != op.offset) return std::nullopt;
        if (!answer.ended && parsed->last - parsed->first + 1 != answer.http.body_bytes) return std::nullopt;
        stat.size_bytes = parsed->total;
    } else if (op.offset != 0) {
        return std::nullopt;
    } else if (!answer.http.head.content_length) {
        stat.size_bytes = answer.http.body_bytes;
    }
    return stat;
}

// A body that failed: what the head told is still worth something.
Outcome ended_get(S3Answer& answer, const Op& op) {
    auto outcome = std::move(*answer.ended);
    if (answer.status() != 200 && answer.status() != 206) return outcome;
    auto stat = stat_of_get(answer, op);
    if (!stat) return outcome;
    outcome.stat = std::move(*stat);
    const auto range = check_range(op, outcome.stat.size_bytes);
    if (!range) outcome.error = range.error();
    return outcome;
}

// After an answer that does not tell what it moved: a look at the same version tells how much that must have been, and
// its checksum whether it came. Nothing: the answer now reads as if it had told. A part is for its reader to verify.
http::Task<std::optional<Outcome>> prove_get(S3Endpoint& endpoint, const std::string& key, const Op& op,
                                             S3Answer& answer) {
    const auto look = co_await s3_look(endpoint, key, false);
    if (look.outcome.status != Status::ok) co_return look.outcome;
    const auto size = look.outcome.stat.size_bytes;
    const auto told = stat_of(answer.http.head, false).etag;
    if (!told.empty() && look.outcome.stat.etag != told) {
        co_return busy(endpoint.named(key) + ": it was replaced while it was read");
    }
    const auto wanted = check_range(op, size);
    if (!wanted) co_return failed(wanted.error());
    S3Windows::set_moved(answer, *wanted);
    if (*wanted != size || look.checksum.empty()) co_return std::nullopt;
    if (checksum_text(*endpoint.options().checksum, part_of(op.buffers, 0, size)) == look.checksum)
        co_return std::nullopt;
    endpoint.windows().off("its answers say success, and the bytes did not come");
    co_return failed(ErrorCode::io, endpoint.named(key) + ": answered with success, and other bytes are in memory");
}

}  // namespace

http::Task<Outcome> s3_get(S3Endpoint& endpoint, const Op& op) {
    const bool bounded = op.length != whole_value;
    const bool impossible = bounded && (op.length > total_bytes(op.buffers) || op.length > whole_value - op.offset);
    if (op.length == 0 || impossible) co_return co_await get_nothing(endpoint, op);
    auto request = get_request(endpoint, op);
    const auto room = bounded ? op.length : total_bytes(op.buffers);
    const auto transfer = co_await endpoint.windows().name(request, op.buffers, room, fabric::Direction::into);
    auto answer = co_await endpoint.call(request, endpoint.deadline());
    if (transfer && co_await endpoint.windows().settle(answer, transfer) == S3Windows::Reply::unproven) {
        auto trouble = co_await prove_get(endpoint, request.key, op, answer);
        if (trouble) co_return std::move(*trouble);
    }
    if (answer.ended) co_return ended_get(answer, op);
    if (answer.status() == 404) co_return missed();
    if (answer.status() == 416) co_return co_await get_nothing(endpoint, op);
    if (answer.status() != 200 && answer.status() != 206) co_return unexpected(endpoint, request.key, answer);
    auto stat = stat_of_get(answer, op);
    if (!stat) co_return odd_answer(endpoint, request.key, "answered with another range than was asked for");
    Outcome outcome;
    outcome.stat = std::move(*stat);
    const auto size = outcome.stat.size_bytes;
    const auto wanted = check_range(op, size);
    if (!wanted || *wanted != answer.http.body_bytes) {
        outcome.error = wanted ? Error{ErrorCode::io, endpoint.named(request.key) + ": answered with " +
                                                          std::to_string(answer.http.body_bytes) +
                                                          " bytes instead of " + std::to_string(*wanted)}
                               : wanted.error();
        co_return outcome;
    }
    if (endpoint.options().checksum && *wanted == size && !is_intact(answer, op.buffers, size)) {
        outcome.error = {ErrorCode::corrupt, endpoint.named(request.key) +
                                                 ": the bytes do not have the checksum that they were stored with"};
        co_return outcome;
    }
    outcome.status = Status::ok;
    outcome.bytes = *wanted;
    co_return outcome;
}

http::Task<S3Look> s3_look(S3Endpoint& endpoint, const std::string& s3_key, bool with_metadata) {
    S3Look look;
    S3Request request;
    request.method = "HEAD";
    request.key = s3_key;
    if (endpoint.options().checksum) request.headers.emplace_back("x-amz-checksum-mode", "ENABLED");
    auto answer = co_await endpoint.call(request, endpoint.deadline());
    if (answer.ended) {
        look.outcome = std::move(*answer.ended);
    } else if (answer.status() == 404) {
        look.outcome = missed();
    } else if (answer.status() != 200 || !answer.http.head.content_length) {
        look.outcome = unexpected(endpoint, s3_key, answer);
    } else {
        look.outcome.status = Status::ok;
        look.outcome.stat = stat_of(answer.http.head, with_metadata);
        const auto algorithm = endpoint.options().checksum;
        const auto stored = algorithm ? stored_checksum(answer.http.head, *algorithm) : std::nullopt;
        if (stored) look.checksum = stored->text();
    }
    co_return look;
}

http::Task<Outcome> s3_stat(S3Endpoint& endpoint, const Op& op) {
    const auto key = endpoint.s3_key(op.key);
    auto look = co_await s3_look(endpoint, key, op.with_metadata);
    co_return std::move(look.outcome);
}

// ------------------------------------------------------------------------------------------------------- many at once

namespace {

http::Task<void> stat_into(S3Endpoint& endpoint, const Op& op, Outcome& outcome) {
    outcome = co_await s3_stat(endpoint, op);
}

// Nothing: this server does not answer such questions (any more).
http::Task<std::optional<std::vector<Outcome>>> ask_exists(S3Endpoint& endpoint, std::span<const Op* const> ops) {
    S3Request request;
    request.method = "POST";
    request.query.push_back({"kvern-exists", ""});
    request.headers.emplace_back("content-type", "text/plain");
    for (const auto* const op : ops) {
        http::append_percent_encoded(request.text, endpoint.s3_key(op->key), http::Slash::keep);
        request.text += '\n';
    }
    auto answer = co_await endpoint.call(request, endpoint.deadline());
    const bool refused = answer.ended && (answer.ended->error.code == ErrorCode::not_supported ||
                                          answer.ended->error.code == ErrorCode::io);
    if (answer.ended && !refused) co_return std::vector<Outcome>(ops.size(), *answer.ended);
    auto stats = answer.good() ? parse_exists(answer.http.text, ops.size())
                               : Result<std::vector<std::optional<Stat>>>(fail(ErrorCode::io, ""));
    if (!stats) {
        endpoint.forget_exists();
        co_return std::nullopt;
    }
    std::vector<Outcome> outcomes(ops.size(), missed());
    for (std::size_t i = 0; i < ops.size(); ++i) {
        auto& stat = (*stats)[i];
        if (!stat) continue;
        outcomes[i].status = Status::ok;
        outcomes[i].stat = std::move(*stat);
    }
    co_return outcomes;
}

}  // namespace

http::Task<std::vector<Outcome>> s3_stats(S3Endpoint& endpoint, std::span<const Op* const> ops) {
    std::vector<Outcome> outcomes;
    while (endpoint.answers_exists() && ops.size() > 1) {
        const auto some = ops.first(std::min(ops.size(), limits::s3_exists_keys_max));
        auto told = co_await ask_exists(endpoint, some);
        if (!told) break;
        std::move(told->begin(), told->end(), std::back_inserter(outcomes));
        ops = ops.subspan(some.size());
    }
    const auto known = outcomes.size();
    outcomes.resize(known + ops.size());
    http::Together looks;
    for (std::size_t i = 0; i < ops.size(); ++i) {
        looks.start(stat_into(endpoint, *ops[i], outcomes[known + i]));
        co_await looks.at_most(endpoint.options().connections - 1);
    }
    co_await looks.at_most(0);
    co_return outcomes;
}

// --------------------------------------------------------------------------------------------------------- lists

namespace {

// One page of one endpoint.
struct Page {
    std::optional<Outcome> ended;
    std::vector<Entry> entries;  // sorted; keys without the prefix; only what a store may show
    bool more = false;
    std::string horizon;  // if more: the page says nothing about keys beyond this
};

// Foreign keys, folders' markers and our own probes are no keys of the store.
bool is_shown(const std::string& key, const Op& op) {
    return key.starts_with(op.key) && key > op.after && check_key(key);
}

http::Task<Page> list_page(S3Endpoint& endpoint, const Op& op, const std::string& after, std::size_t limit) {
    Page page;
    S3Request request;
    request.query.push_back({"list-type", "2"});
    request.query.push_back({"encoding-type", "url"});
    request.query.push_back({"max-keys", std::to_string(limit)});
    if (const auto prefix = endpoint.s3_key(op.key); !prefix.empty()) request.query.push_back({"prefix", prefix});
    if (!after.empty()) request.query.push_back({"start-after", endpoint.s3_key(after)});
    auto answer = co_await endpoint.call(request, endpoint.deadline());
    if (answer.ended) {
        page.ended = std::move(answer.ended);
        co_return page;
    }
    if (!answer.good()) {
        page.ended = unexpected(endpoint, "", answer);
        co_return page;
    }
    auto listing = parse_listing(answer.http.text);
    if (!listing) {
        page.ended = odd_answer(endpoint, "", listing.error().message);
        co_return page;
    }
    const auto prefix_bytes = endpoint.options().prefix.size();
    for (auto& entry : listing->entries) {
        if (!entry.key.starts_with(endpoint.options().prefix)) continue;
        entry.key.erase(0, prefix_bytes);
        page.horizon = std::max(page.horizon, entry.key);
        if (is_shown(entry.key, op)) page.entries.push_back(std::move(entry));
    }
    // Some servers list folder by folder, which is another order than that of the keys.
    std::sort(page.entries.begin(), page.entries.end(), [](const auto& a, const auto& b) { return a.key < b.key; });
    page.more = listing->more && page.horizon > after;  // a server that repeats itself would never end
    co_return page;
}

http::Task<void> list_into(S3Endpoint& endpoint, const Op& op, const std::string& after, std::size_t limit,
                           Page& page) {
    page = co_await list_page(endpoint, op, after, limit);
}

// Merges pages up to where all of them say something; false: `outcome` has ended.
bool merge(std::vector<Page>& pages, const S3Owner& owner, std::string& after, Outcome& outcome) {
    std::optional<std::string> horizon;
    for (auto& page : pages) {
        if (page.ended) {
            outcome = std::move(*page.ended);
            return false;
        }
        if (page.more && (!horizon || page.horizon < *horizon)) horizon = page.horizon;
    }
    for (std::size_t i = 0; i < pages.size(); ++i) {
        for (auto& entry : pages[i].entries) {
            const bool beyond = horizon && entry.key > *horizon;
            if (beyond || (pages.size() > 1 && owner(entry.key) != i)) continue;
            outcome.entries.push_back(std::move(entry));
        }
    }
    outcome.more = horizon.has_value();
    if (horizon) after = *horizon;
    return true;
}

}  // namespace

http::Task<Outcome> s3_list(std::span<S3Endpoint* const> endpoints, const S3Owner& owner, const Op& op) {
    const auto wanted = std::min(op.limit, limits::list_entries_max);
    const auto asked = std::min(wanted + 1, limits::list_entries_max);
    std::string after = op.after;
    Outcome outcome;
    do {
        std::vector<Page> pages(endpoints.size());
        http::Together lists;
        for (std::size_t i = 0; i < endpoints.size(); ++i) {
            lists.start(list_into(*endpoints[i], op, after, asked, pages[i]));
        }
        co_await lists.at_most(0);
        if (!merge(pages, owner, after, outcome)) co_return outcome;
    } while (outcome.more && outcome.entries.size() < wanted);
    std::sort(outcome.entries.begin(), outcome.entries.end(),
              [](const auto& a, const auto& b) { return a.key < b.key; });
    if (outcome.entries.size() > wanted) {
        outcome.entries.resize(wanted);
        outcome.more = true;
    }
    outcome.status = Status::ok;
    co_return outcome;
}

// ------------------------------------------------------------------------------------------------------------- space

namespace {

http::Task<Outcome> space_of(S3Endpoint& endpoint) {
    const auto nobody_knows = endpoint.place().url + ": S3 does not tell how much space there is";
    if (endpoint.speaks_kvern() == Known::no) co_return failed(ErrorCode::not_supported, nobody_knows);
    S3Request request;
    request.query.push_back({"kvern-space", ""});
    auto answer = co_await endpoint.call(request, endpoint.deadline());
    // Any server may refuse, or answer with a list, what it has never heard of.
    const bool trouble =
        answer.ended &&
        (answer.ended->status == Status::busy || answer.ended->error.code == ErrorCode::unavailable ||
         answer.ended->error.code == ErrorCode::cancelled || answer.ended->error.code == ErrorCode::permission);
    if (trouble) co_return std::move(*answer.ended);
    auto space = answer.good() ? parse_space(answer.http.text) : fail(ErrorCode::io, "");
    if (!space) co_return failed(ErrorCode::not_supported, nobody_knows);
    Outcome outcome;
    outcome.status = Status::ok;
    outcome.space = *space;
    co_return outcome;
}

}  // namespace

http::Task<Outcome> s3_space(std::span<S3Endpoint* const> endpoints) {
    Outcome sum;
    for (auto* const endpoint : endpoints) {
        auto one = co_await space_of(*endpoint);
        if (one.status != Status::ok) co_return one;
        sum.space.capacity_bytes += one.space.capacity_bytes;
        sum.space.free_bytes += one.space.free_bytes;
        sum.space.quota_bytes += one.space.quota_bytes;
    }
    sum.status = Status::ok;
    co_return sum;
}

}  // namespace kvern
