// SPDX-License-Identifier: Apache-2.0
// S3Endpoint: one server, or AWS's own of a region, as one loop sees it: requests are signed, sent, and tried again
// where that helps; a server in trouble is left alone for a while.
//
// Loop's thread; S3Facts are read by any. It knows requests and answers, and no operations of a store.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/breaker.h"
#include "http/client.h"
#include "http/waiters.h"
#include "store/s3/answers.h"
#include "store/s3/credentials.h"
#include "store/s3/request.h"
#include "store/s3/retry.h"
#include "store/s3/windows.h"

namespace kvern {

enum class Known : std::uint8_t { unknown, yes, no };

// What has been found out about one server, for descriptions. Any thread.
struct S3Facts {
    std::atomic<Known> conditions{Known::unknown};  // If-None-Match and If-Match of a PUT are honoured
    std::atomic<Known> exists{Known::unknown};      // a kvern server's answers to batches of stats
    std::atomic<const char*> windows{nullptr};      // the provider by which it reaches our regions itself; null: none
};

// What tests replace.
struct S3Seams {
    const Clock* clock = &Clock::steady();         // of breakers
    const WallClock* wall = &WallClock::system();  // of signatures and of ends of credentials
    Environment environment = process_environment();
    std::uint64_t seed = 0;  // of pauses and probes; 0: another each time
};

struct S3Answer {
    http::HttpAnswer http;                   // status 0: none came, or not its head
    S3ErrorText error;                       // of an answer that is not 2xx
    std::optional<http::ChecksumValue> sum;  // of the body, as S3Endpoint was asked for
    std::optional<Outcome> ended;  // busy or failed: there is nothing in the answer for an operation to interpret
    bool unclear = false;          // an earlier attempt may have taken effect

    unsigned status() const { return http.head.status; }
    bool good() const { return !ended && status() >= 200 && status() < 300; }
};

class S3Endpoint {
  public:
    // All must outlive it.
    S3Endpoint(http::Loop& loop, const S3Options& options, const S3Place& place,
               std::shared_ptr<const http::TlsContext> tls, S3KeyRing& keys, S3Facts& facts, const S3Regions& regions,
               const S3Seams& seams);
    ~S3Endpoint();  // REQUIRES: no call under way
    S3Endpoint(const S3Endpoint&) = delete;
    S3Endpoint& operator=(const S3Endpoint&) = delete;

    // The answer if it is 2xx or of S3Verdict::told, after as many attempts as limits and budget allow; else how an
    // operation ends. The request must outlive it, and so must what its buffers name.
    http::Task<S3Answer> call(const S3Request& request, TimePoint deadline);

    // Finds out, once, whether conditions of a PUT are honoured, by values under a key of their own that nobody else
    // can have. Nothing: they are known now; else why not.
    http::Task<std::optional<Outcome>> learn_conditions(TimePoint deadline);
    bool honours_conditions() const { return facts_.conditions.load() == Known::yes; }
    bool answers_exists() const { return facts_.exists.load() == Known::yes; }
    // It answered wrongly; its next answer may say yes again.
    void forget_exists() {
        facts_.exists = Known::no;
        extensions_.clear();
    }
    bool offers_fabric() const { return offers_fabric_; }
    void note_windows(const char* provider) { facts_.windows = provider; }  // a literal, or null
    S3Windows& windows() { return windows_; }
    Known speaks_kvern() const { return facts_.exists.load(); }

    TimePoint deadline() const { return loop_.now() + options_.timeout; }  // of what starts now
    const S3Options& options() const { return options_; }
    const S3Place& place() const { return place_; }
    http::Loop& loop() const { return loop_; }
    std::string s3_key(std::string_view key) const { return options_.prefix + std::string(key); }
    // "key 'k' of bucket 'b' at http://…", or without the key where it is empty.
    std::string named(std::string_view s3_key) const;
    // Waits, less if the endpoint is aborted.
    http::Task<void> pause(Duration duration);

    bool aborted() const { return aborted_; }
    // Breaks off what is under way and whatever follows: it ends as cancelled.
    void abort();

  private:
    struct Adapted;  // what one call has already changed about itself
    struct Attempt;
    http::Task<Attempt> attempt(const S3Request& request, const std::shared_ptr<const S3Keys>& keys,
                                TimePoint deadline);
    bool adapt(const S3Request& request, const Attempt& attempt, const std::shared_ptr<const S3Keys>& keys,
               Adapted& adapted);
    bool adopt_clock(const http::Head& head);
    bool adopt_region(const std::string& region);
    void note_extensions(const http::Head& head);
    bool may_retry(unsigned attempt, bool probe, Duration delay, TimePoint deadline);
    http::Signer* signer(const std::shared_ptr<const S3Keys>& keys);
    http::sys_seconds server_time() const;
    Outcome left_alone(std::string_view s3_key) const;
    Outcome refusal(const S3Request& request, const Attempt& attempt) const;
    Outcome given_up(const S3Request& request, const Attempt& attempt, unsigned attempts) const;
    void new_client();

    http::Task<std::optional<Outcome>> probe_conditions(TimePoint deadline);
    // Whether a PUT under this condition was refused; nothing: `trouble` says why that is not known.
    http::Task<std::optional<bool>> refuses(const std::string& key, std::string_view condition, std::string_view value,
                                            TimePoint deadline, std::optional<Outcome>& trouble);

    http::Loop& loop_;
    const S3Options& options_;
    S3Place place_;  // AWS's follows the bucket's region
    const std::shared_ptr<const http::TlsContext> tls_;
    S3KeyRing& keys_;
    S3Facts& facts_;
    const WallClock& wall_;
    Breaker breaker_;
    RetryBudget budget_;
    Backoff backoff_;
    std::string region_;
    std::string last_trouble_;
    std::chrono::seconds clock_offset_{0};  // of the server's clock
    std::unique_ptr<http::HttpClient> client_;
    std::vector<std::unique_ptr<http::HttpClient>> retired_;  // of other regions; they may have calls under way
    std::optional<http::Signer> signer_;
    std::shared_ptr<const S3Keys> signer_keys_;
    std::string signer_region_;
    bool probing_ = false;
    http::Waiters probes_;
    bool aborted_ = false;
    std::string extensions_;  // as the latest answer told them
    bool offers_fabric_ = false;
    S3Windows windows_;
};

}  // namespace kvern
