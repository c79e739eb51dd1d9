// SPDX-License-Identifier: Apache-2.0
#include "store/s3/endpoint.h"

#include <algorithm>
#include <charconv>

#include "base/log.h"
#include "base/text.h"
#include "kvern/limits.h"
#include "store/op_check.h"

namespace kvern {
namespace {

constexpr std::chrono::milliseconds pause_slice{50};  // a pause notices an abort within this
constexpr std::chrono::minutes skew_suspicious{5};

bool is_region(std::string_view text) {
    return !text.empty() && text.size() <= 63 && std::all_of(text.begin(), text.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
    });
}

std::optional<http::sys_seconds> date_of(const http::Head& head) {
    const auto date = head.find("date");
    return date ? http::parse_http_date(*date) : std::nullopt;
}

// Whole seconds; the other form, a date, is not worth it.
Duration retry_after(const http::Head& head) {
    const auto text = head.find("retry-after");
    unsigned seconds = 0;
    if (!text) return {};
    const auto [rest, error] = std::from_chars(text->data(), text->data() + text->size(), seconds);
    if (error != std::errc{} || rest != text->data() + text->size()) return {};
    return std::min<Duration>(std::chrono::seconds(seconds), limits::s3_backoff_max);
}

std::string answer_text(unsigned status, const S3ErrorText& text) {
    auto said = std::to_string(status);
    if (!text.code.empty()) said += " " + text.code;
    if (!text.message.empty()) said += ": " + text.message;
    return said;
}

Outcome cancelled() {
    return failed(ErrorCode::cancelled, "the store was closed while this was under way");
}

}  // namespace

struct S3Endpoint::Adapted {
    bool clock = false, region = false, keys = false;
};

struct S3Endpoint::Attempt {
    http::HttpAnswer http;
    S3ErrorText text;
    std::optional<http::ChecksumValue> sum;
    std::optional<Error> failure;  // no whole answer
    bool unsent = false;
    S3Verdict verdict = S3Verdict::trouble;
};

S3Endpoint::S3Endpoint(http::Loop& loop, const S3Options& options, const S3Place& place,
                       std::shared_ptr<const http::TlsContext> tls, S3KeyRing& keys, S3Facts& facts,
                       const S3Regions& regions, const S3Seams& seams)
    : loop_(loop),
      options_(options),
      place_(place),
      tls_(std::move(tls)),
      keys_(keys),
      facts_(facts),
      wall_(*seams.wall),
      breaker_(*seams.clock),
      backoff_(seams.seed != 0 ? seams.seed : std::random_device{}()),
      region_(options.region),
      windows_(*this, regions) {
    new_client();
}

S3Endpoint::~S3Endpoint() = default;

void S3Endpoint::new_client() {
    if (client_) retired_.push_back(std::move(client_));
    http::HttpClientOptions options;
    options.address = place_.address;
    if (place_.tls) options.tls = tls_;
    options.connections_max = options_.connections;
    options.connect_limit = options_.connect_timeout;
    options.stall_limit = options_.stall_timeout;
    options.idle_limit = limits::s3_idle_limit;
    client_ = std::make_unique<http::HttpClient>(loop_, std::move(options));
}

std::string S3Endpoint::named(std::string_view s3_key) const {
    const auto bucket = "bucket '" + options_.bucket + "' at " + place_.url;
    return s3_key.empty() ? bucket : "key '" + url_escape(s3_key) + "' of " + bucket;
}

http::Task<void> S3Endpoint::pause(Duration duration) {
    const auto until = loop_.now() + duration;
    while (!aborted_ && loop_.now() < until) {
        co_await loop_.sleep(std::min<Duration>(until - loop_.now(), pause_slice));
    }
}

void S3Endpoint::abort() {
    aborted_ = true;
    const std::string reason = "the store was closed";
    client_->abort_all(reason);
    for (const auto& client : retired_) client->abort_all(reason);
}

// ----------------------------------------------------------------------------------------------------- one attempt

http::sys_seconds S3Endpoint::server_time() const {
    return http::second_of(wall_.now_ns()) + clock_offset_;
}

http::Signer* S3Endpoint::signer(const std::shared_ptr<const S3Keys>& keys) {
    if (!keys) return nullptr;
    if (!signer_ || signer_keys_ != keys || signer_region_ != region_) {
        signer_.emplace(keys->credentials, region_);
        signer_keys_ = keys;
        signer_region_ = region_;
    }
    return &*signer_;
}

http::Task<S3Endpoint::Attempt> S3Endpoint::attempt(const S3Request& request, const std::shared_ptr<const S3Keys>& keys,
                                                    TimePoint deadline) {
    Attempt made;
    std::optional<http::Checksum> sum;
    http::Arrived arrived;
    if (request.sum_answer) {
        auto started = http::Checksum::make(*request.sum_answer);
        if (started) {
            sum.emplace(std::move(*started));
            arrived = [&sum](std::span<const std::byte> bytes) { sum->update(bytes); };
        }
    }
    const Buffer text_buffer{reinterpret_cast<std::byte*>(const_cast<char*>(request.text.data())), request.text.size()};
    http::HttpRequest wire;
    wire.head = request_head(request, place_, signer(keys), server_time());
    wire.is_head = request.method == "HEAD";
    wire.once = request.once;
    wire.body = request.body;
    if (!request.text.empty()) wire.body = std::span<const Buffer>(&text_buffer, 1);
    wire.into = request.into;
    wire.text_body = request.text_answer;
    wire.arrived = arrived ? &arrived : nullptr;
    wire.deadline = deadline;
    auto& client = *client_;
    auto got = co_await client.exchange(wire);
    if (!got) {
        made.failure = std::move(got.error().error);
        made.unsent = got.error().unsent;
        made.http.head = std::move(got.error().head);
        co_return made;
    }
    made.http = std::move(*got);
    if (sum) made.sum = sum->finish();
    const auto status = made.http.head.status;
    if (status < 200 || status >= 300) made.text = error_text(made.http.head, made.http.text);
    made.verdict = judge(status, made.text.code);
    note_extensions(made.http.head);
    co_return made;
}

void S3Endpoint::note_extensions(const http::Head& head) {
    const auto extensions = head.find("x-kvern-extensions").value_or("");
    if (extensions == extensions_ && facts_.exists.load(std::memory_order_relaxed) != Known::unknown) return;
    extensions_ = extensions;
    facts_.exists = http::has_token(extensions, "exists") ? Known::yes : Known::no;
    offers_fabric_ = http::has_token(extensions, "fabric");
}

// ------------------------------------------------------------------------------------- what a server's answer teaches

bool S3Endpoint::adopt_clock(const http::Head& head) {
    const auto date = date_of(head);
    if (!date) return false;
    clock_offset_ = *date - http::second_of(wall_.now_ns());
    log(LogLevel::warning, "s3",
        place_.url + ": its clock is " + std::to_string(clock_offset_.count()) +
            " s ahead of this host's: signatures follow it");
    return true;
}

bool S3Endpoint::adopt_region(const std::string& region) {
    if (!is_region(region) || region == region_) return false;
    log(LogLevel::warning, "s3",
        "bucket '" + options_.bucket + "' is in region " + region + ", not in " + region_ + ": give region=" + region);
    region_ = region;
    if (place_.aws) {
        place_ = s3_aws_place(options_.bucket, region, place_.base.empty());
        new_client();
    }
    return true;
}

// True: the same request may be good now.
bool S3Endpoint::adapt(const S3Request& request, const Attempt& attempt, const std::shared_ptr<const S3Keys>& keys,
                       Adapted& adapted) {
    const auto& head = attempt.http.head;
    // An answer to HEAD has no document that could say so.
    bool skewed = attempt.verdict == S3Verdict::skewed;
    if (const auto date = date_of(head); date && request.method == "HEAD" && head.status == 403) {
        skewed = skewed || std::chrono::abs(*date - server_time()) > skew_suspicious;
    }
    if (skewed && !adapted.clock) {
        adapted.clock = true;
        return adopt_clock(head);
    }
    const bool elsewhere = attempt.verdict == S3Verdict::other_region ||
                           (request.method == "HEAD" && head.status == 400 && !attempt.text.region.empty());
    if (elsewhere && !adapted.region) {
        adapted.region = true;
        // Another call may have followed it already.
        return adopt_region(attempt.text.region) || attempt.text.region == region_;
    }
    if (attempt.verdict == S3Verdict::keys_refused && keys && !adapted.keys) {
        adapted.keys = true;
        keys_.refused(keys);
        return true;
    }
    return false;
}

// -------------------------------------------------------------------------------------------------------- how it ends

Outcome S3Endpoint::left_alone(std::string_view s3_key) const {
    return failed(ErrorCode::unavailable,
                  named(s3_key) + ": left alone for a while after failures; the last was: " + last_trouble_);
}

Outcome S3Endpoint::refusal(const S3Request& request, const Attempt& attempt) const {
    const auto status = attempt.http.head.status;
    const auto said = answer_text(status, attempt.text);
    const auto text = named(request.key) + ": " + said;
    switch (attempt.verdict) {
        case S3Verdict::no_bucket:
            return failed(ErrorCode::invalid_argument,
                          "bucket '" + options_.bucket + "' does not exist at " + place_.url + " (" + said +
                              "): create it, for instance with kvern bench store or aws s3 mb");
        case S3Verdict::skewed:
            return failed(ErrorCode::permission, text + " (set this host's clock)");
        case S3Verdict::other_region:
            return failed(ErrorCode::invalid_argument, text + " (region " + region_ + " was tried; give region=)");
        case S3Verdict::denied:
            // AWS does not let everybody know what is missing.
            return failed(ErrorCode::permission,
                          request.method == "HEAD" || request.method == "GET"
                              ? text + " (missing keys are answered so too, unless s3:ListBucket is allowed)"
                              : text);
        case S3Verdict::keys_refused:
            return failed(ErrorCode::permission, text);
        case S3Verdict::no_space:
            return failed(ErrorCode::no_space, text);
        case S3Verdict::not_supported:
            return failed(ErrorCode::not_supported, text);
        case S3Verdict::damaged: {
            auto outcome = failed(ErrorCode::corrupt, text);
            // Whoever removes what is damaged names the version that was.
            if (const auto etag = attempt.http.head.find("etag")) outcome.stat.etag = without_quotes(*etag);
            return outcome;
        }
        default:
            return failed(ErrorCode::io, text);
    }
}

Outcome S3Endpoint::given_up(const S3Request& request, const Attempt& attempt, unsigned attempts) const {
    auto text = named(request.key) + ": ";
    text += attempt.failure ? attempt.failure->message : answer_text(attempt.http.head.status, attempt.text);
    if (attempts > 1) text += " (after " + std::to_string(attempts) + " attempts)";
    if (!attempt.failure && attempt.verdict == S3Verdict::throttled) return busy(std::move(text));
    return failed(attempt.failure ? attempt.failure->code : ErrorCode::unavailable, std::move(text));
}

bool S3Endpoint::may_retry(unsigned attempt, bool probe, Duration delay, TimePoint deadline) {
    if (probe || aborted_ || breaker_.open() || attempt >= limits::s3_attempts_max) return false;
    return loop_.now() + delay < deadline && budget_.retry();
}

http::Task<S3Answer> S3Endpoint::call(const S3Request& request, TimePoint deadline) {
    S3Answer answer;
    if (aborted_) {
        answer.ended = cancelled();
        co_return answer;
    }
    if (!breaker_.allow()) {
        answer.ended = left_alone(request.key);
        co_return answer;
    }
    const bool probe = breaker_.open();
    budget_.request();
    Adapted adapted;
    for (unsigned attempts = 1;;) {
        const auto keys = co_await keys_.get();
        if (!keys) {
            breaker_.undecided();
            answer.ended = aborted_ ? cancelled() : failed(keys.error());
            co_return answer;
        }
        auto made = co_await attempt(request, *keys, deadline);
        answer.unclear = answer.unclear || made.http.repeated || (made.failure && !made.unsent);
        const bool final_failure = made.failure && made.failure->code != ErrorCode::unavailable;
        const bool again =
            made.failure ? !final_failure : made.verdict == S3Verdict::trouble || made.verdict == S3Verdict::throttled;
        if (aborted_ && made.failure) {
            breaker_.undecided();
            answer.ended = cancelled();
            co_return answer;
        }
        if (!again) {
            if (final_failure && made.failure->code != ErrorCode::io) {  // no certificate that is trusted, for instance
                breaker_.failure();
                last_trouble_ = made.failure->message;
            } else {
                breaker_.success();
            }
            if (!made.failure && adapt(request, made, *keys, adapted)) continue;
            if (final_failure) {
                answer.ended = given_up(request, made, attempts);
            } else if (made.verdict != S3Verdict::ok && made.verdict != S3Verdict::told) {
                answer.ended = refusal(request, made);
            }
            answer.http = std::move(made.http);
            answer.error = std::move(made.text);
            answer.sum = made.sum;
            co_return answer;
        }
        answer.unclear = answer.unclear || !made.unsent;
        const bool lost = request.once && made.failure && !made.unsent;
        const auto delay = std::max(backoff_.after(attempts), retry_after(made.http.head));
        if (lost || !may_retry(attempts, probe, delay, deadline)) {
            answer.ended = given_up(request, made, attempts);
            last_trouble_ = answer.ended->error.message;
            breaker_.failure();
            answer.http = std::move(made.http);
            answer.error = std::move(made.text);
            co_return answer;
        }
        co_await pause(delay);
        ++attempts;
    }
}

// ---------------------------------------------------------------------------------------------------------- conditions

http::Task<std::optional<Outcome>> S3Endpoint::learn_conditions(TimePoint deadline) {
    while (facts_.conditions.load() == Known::unknown) {
        if (probing_) {
            co_await probes_.wait();
            continue;
        }
        probing_ = true;
        auto trouble = co_await probe_conditions(deadline);
        probing_ = false;
        probes_.wake_all();
        if (trouble) co_return trouble;
    }
    co_return std::nullopt;
}

http::Task<std::optional<bool>> S3Endpoint::refuses(const std::string& key, std::string_view condition,
                                                    std::string_view value, TimePoint deadline,
                                                    std::optional<Outcome>& trouble) {
    S3Request put;
    put.method = "PUT";
    put.key = key;
    put.text = "kvern";
    put.headers.emplace_back(condition, std::string(value));
    auto answer = co_await call(put, deadline);
    if (answer.ended && answer.ended->error.code == ErrorCode::not_supported) co_return false;
    if (answer.ended) {
        trouble = std::move(answer.ended);
        co_return std::nullopt;
    }
    co_return !answer.good();
}

http::Task<std::optional<Outcome>> S3Endpoint::probe_conditions(TimePoint deadline) {
    const auto random = backoff_.number();
    const std::string_view random_bytes(reinterpret_cast<const char*>(&random), sizeof random);
    const auto key = s3_key(".kvern-probe/" + to_hex(random_bytes));
    std::optional<Outcome> trouble;
    // The first makes the value, whatever the server thinks of conditions; only a server that does not know the header
    // at all may refuse it.
    (void)co_await refuses(key, "if-none-match", "*", deadline, trouble);
    if (trouble) co_return trouble;
    const auto absent = co_await refuses(key, "if-none-match", "*", deadline, trouble);
    if (trouble) co_return trouble;
    const auto etag = co_await refuses(key, "if-match", "\"kvern-none\"", deadline, trouble);
    if (trouble) co_return trouble;
    S3Request remove;
    remove.method = "DELETE";
    remove.key = key;
    (void)co_await call(remove, deadline);
    const bool honoured = *absent && *etag;
    facts_.conditions = honoured ? Known::yes : Known::no;
    if (!honoured) {
        log(LogLevel::warning, "s3",
            place_.url + " does not honour " + (*absent ? "If-Match" : "If-None-Match") +
                " of a PUT: conditions are looked up before the put, and two writers at once may both succeed");
    }
    co_return std::nullopt;
}

}  // namespace kvern
