// SPDX-License-Identifier: Apache-2.0
// A small S3 in this process, in memory, that verifies every signature and fails as it is told to.
#pragma once

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/text.h"
#include "fabric/local_guest.h"
#include "fabric/local_host.h"
#include "http/checksum.h"
#include "http/date.h"
#include "http/http_fixture.h"
#include "http/percent.h"
#include "http/query.h"
#include "http/sigv4.h"
#include "store/s3/store.h"
#include "store/store_fixture.h"

namespace kvern::testing {

struct Fault {
    enum class Kind {
        answer,       // status and code instead of doing it
        early,        // the same, before the body was read
        drop,         // the connection ends instead of an answer
        lose_answer,  // it is done, then the connection ends
        reset_body,   // half a body, then the connection ends
        stall_body,   // half a body, then nothing
        wrong_sum,    // another checksum than the body's
        wrong_range,  // another part than was asked for, of the same length
        whole,        // the range is ignored
        delay,        // for `ms`, then as if nothing had been
    };
    Kind kind = Kind::answer;
    std::string method = {};       // empty: any
    std::string target_part = {};  // of path and query
    unsigned times = 1;
    unsigned status = 503;
    std::string code = "SlowDown";
    unsigned ms = 0;
    std::vector<std::pair<std::string, std::string>> headers = {};
    std::string region = {};
};

class FakeS3 {
  public:
    struct Object {
        std::string bytes, etag, metadata, checksum;
    };

    explicit FakeS3(std::shared_ptr<const http::TlsContext> tls = nullptr)
        : scheme_(tls ? "https" : "http"),
          server_([this](http::Exchange& exchange) { return serve(exchange); }, 1, std::move(tls)) {}
    ~FakeS3() { ending_ = true; }

    std::string url() const { return scheme_ + "://127.0.0.1:" + server_.address().port; }
    std::string uri(const std::string& more = {}, const std::string& prefix = "/p") const {
        return "s3://bucket" + prefix + "?endpoint=" + url() + more;
    }
    void fault(Fault fault) {
        const std::lock_guard lock(mutex_);
        faults_.push_back(std::move(fault));
    }
    std::vector<std::string> requests() const {
        const std::lock_guard lock(mutex_);
        return requests_;
    }
    std::size_t count(const std::string& start) const {
        const auto all = requests();
        return static_cast<std::size_t>(
            std::count_if(all.begin(), all.end(), [&](const auto& one) { return one.starts_with(start); }));
    }
    void forget_requests() {
        const std::lock_guard lock(mutex_);
        requests_.clear();
    }
    std::map<std::string, Object> objects() const {
        const std::lock_guard lock(mutex_);
        return objects_;
    }
    void change(const std::string& key, const std::function<void(Object&)>& how) {
        const std::lock_guard lock(mutex_);
        how(objects_.at(key));
    }
    void add(const std::string& key, const std::string& bytes) {
        const std::lock_guard lock(mutex_);
        objects_[key] = {bytes, "e" + std::to_string(++version_), {}, sum(bytes)};
    }
    std::size_t open_uploads() const {
        const std::lock_guard lock(mutex_);
        return uploads_.size();
    }
    std::string wrong_signature() const {  // of any request so far
        const std::lock_guard lock(mutex_);
        return wrong_signature_;
    }

    // Set before anything is asked.
    bool honours_conditions = true;
    bool kvern = false;
    std::string region = "us-east-1";
    http::Credentials credentials{"AKTEST", "secret", ""};
    std::atomic<bool> any_credentials{false};
    std::size_t page = 1000;

    // One-sided transfers, where there is a host; Tokens says how they go.
    enum class Tokens { honest, blind, blind_and_unsummed, declined, claims, cuts_short, never_answers };
    fabric::LocalHost* windows = nullptr;
    std::atomic<Tokens> tokens{Tokens::honest};

  private:
    struct Request {
        std::string method, target, path, key, body;
        std::vector<http::QueryPair> query;
        std::map<std::string, std::string> headers;
        bool asks(std::string_view name) const { return http::find_query(query, name) != nullptr; }
        std::string value(std::string_view name) const {
            const auto* const found = http::find_query(query, name);
            return found ? found->value : std::string();
        }
        std::string header(const std::string& name) const {
            const auto found = headers.find(name);
            return found == headers.end() ? std::string() : found->second;
        }
    };
    struct Answer {
        unsigned status = 200;
        std::string body;
        std::vector<std::pair<std::string, std::string>> headers;
        std::uint64_t told_bytes = 0;  // HEAD
    };
    struct Upload {
        std::string key, metadata;
        std::map<unsigned, Object> parts;
    };

    static Answer error(unsigned status, const std::string& code, const std::string& region = {}) {
        Answer answer{status,
                      "<?xml version=\"1.0\"?><Error><Code>" + code + "</Code><Message>" + code +
                          " says the fake</Message>" + (region.empty() ? "" : "<Region>" + region + "</Region>") +
                          "</Error>",
                      {},
                      0};
        return answer;
    }
    std::optional<Fault> next_fault(const Request& request) {
        for (auto& fault : faults_) {
            const bool fits = (fault.method.empty() || fault.method == request.method) &&
                              request.target.find(fault.target_part) != std::string::npos;
            if (fault.times == 0 || !fits) continue;
            --fault.times;
            return fault;
        }
        return std::nullopt;
    }

    http::Task<void> serve(http::Exchange& exchange) {
        Request request;
        request.method = exchange.request().method;
        request.target = exchange.request().target;
        for (const auto& header : exchange.request().headers) request.headers[std::string(header.name)] = header.value;
        const auto question = std::min(request.target.find('?'), request.target.size());
        request.path = request.target.substr(0, question);
        if (question < request.target.size()) request.query = *http::parse_query(request.target.substr(question + 1));
        const auto decoded = *http::percent_decode(request.path, http::Plus::literal);
        const auto slash = decoded.find('/', 1);
        request.key = slash == std::string::npos ? std::string() : decoded.substr(slash + 1);
        std::optional<Fault> fault;
        {
            const std::lock_guard lock(mutex_);
            requests_.push_back(request.method + " " + request.target);
            fault = next_fault(request);
        }
        const auto kind = fault ? fault->kind : Fault::Kind::delay;
        if (kind == Fault::Kind::early) {
            const auto answer = error(fault->status, fault->code);
            exchange.close_after();
            (void)co_await exchange.answer(http::AnswerHead(answer.status), answer.body);
            co_return;
        }
        for (;;) {
            const auto seen = co_await exchange.look();
            if (!seen) co_return;
            if (seen->empty()) break;
            request.body.append(reinterpret_cast<const char*>(seen->data()), seen->size());
            exchange.take(seen->size());
        }
        if (fault && kind == Fault::Kind::delay) {
            for (unsigned ms = 0; ms < fault->ms && !ending_; ms += 5) {
                co_await exchange.loop().sleep(std::chrono::milliseconds(5));
            }
        }
        if (kind == Fault::Kind::drop) co_return exchange.break_off("as told");
        Answer answer;
        {
            const std::lock_guard lock(mutex_);
            answer = kind == Fault::Kind::answer ? error(fault->status, fault->code, fault->region)
                                                 : checked(request, exchange.request(), kind);
            if (fault) {
                for (const auto& header : fault->headers) answer.headers.push_back(header);
            }
        }
        if (kind == Fault::Kind::lose_answer) co_return exchange.break_off("as told");
        const bool silent = tokens == Tokens::never_answers && !request.header("x-amz-rdma-token").empty();
        if (silent) co_return exchange.break_off("as told");
        co_await send(exchange, request, answer, kind);
    }

    http::Task<void> send(http::Exchange& exchange, const Request& request, const Answer& answer, Fault::Kind kind) {
        http::AnswerHead head(answer.status);
        for (const auto& [name, value] : answer.headers) head.add(name, value);
        if (kvern) head.add("x-kvern-extensions", windows != nullptr ? "exists, space, fabric" : "exists, space");
        if (kind == Fault::Kind::reset_body || kind == Fault::Kind::stall_body) {
            exchange.begin(head, answer.body.size());
            (void)co_await exchange.send(std::as_bytes(std::span(answer.body)).first(answer.body.size() / 2));
            while (kind == Fault::Kind::stall_body && !ending_) {
                co_await exchange.loop().sleep(std::chrono::milliseconds(5));
            }
            exchange.break_off("as told");
            co_return;
        }
        if (request.method == "HEAD" && answer.status == 200) {
            exchange.begin(head, answer.told_bytes);
            (void)co_await exchange.send({});
            co_return;
        }
        (void)co_await exchange.answer(std::move(head), request.method == "HEAD" ? std::string_view() : answer.body);
    }

    // All below: under mutex_.
    Answer checked(const Request& request, const http::Head& wire, Fault::Kind kind) {
        if (!any_credentials) {
            const http::RequestHead head{wire.method, request.path, request.query, wire.headers};
            const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
            auto authorization = http::parse_authorization(head);
            if (!authorization) return error(400, std::string(http::to_string(authorization.error().code)));
            if (authorization->form == http::AuthForm::anonymous) return error(403, "AccessDenied");
            if (authorization->region != region) return error(400, "AuthorizationHeaderMalformed", region);
            if (authorization->session_token != credentials.session_token) return error(400, "ExpiredToken");
            http::Verifier verifier("");
            const auto verified = verifier.verify(*authorization, head, credentials, now);
            if (!verified) {
                const auto code = std::string(http::to_string(verified.error().code));
                if (code != "RequestTimeTooSkewed") wrong_signature_ = request.target + ": " + verified.error().message;
                return error(403, code);
            }
        }
        if (windows != nullptr && request.asks("kvern-fabric")) {
            return {200,
                    R"({"local":{"socket":")" + windows->address() + R"(","host":")" + fabric::local_host_id() + "\"}}",
                    {},
                    0};
        }
        if (request.key.empty()) return of_bucket(request);
        if (!request.header("x-amz-rdma-token").empty()) return one_sided(request, kind);
        if (request.method == "PUT") return put(request);
        if (request.method == "GET" || request.method == "HEAD") return get(request, kind);
        if (request.method == "DELETE") return remove(request);
        return request.asks("uploads") ? create(request) : complete(request);
    }
    Answer one_sided(Request request, Fault::Kind kind) {
        const auto how = tokens.load();
        const bool is_put = request.method == "PUT";
        const bool blind = how == Tokens::blind || how == Tokens::blind_and_unsummed;
        const auto token = fabric::parse_token(request.header("x-amz-rdma-token"));
        const auto span =
            token && windows != nullptr ? windows->find(*token) : Result<fabric::Span>(fail(ErrorCode::io, ""));
        if (!blind && (how == Tokens::declined || !span)) {
            auto answer = is_put ? error(501, "NotImplemented") : get(request, kind);
            answer.headers.emplace_back("x-amz-rdma-reply", "501");
            return answer;
        }
        if (how == Tokens::blind_and_unsummed) request.headers.erase("x-amz-checksum-crc64nvme");
        auto size = span ? span->size_bytes : 0;
        if (how == Tokens::cuts_short) size /= 2;
        if (is_put && !blind) request.body.assign(reinterpret_cast<const char*>(span->data), size);
        if (is_put && how == Tokens::cuts_short) request.headers.erase("x-amz-checksum-crc64nvme");
        auto answer = is_put ? put(request) : get(request, kind);
        if (blind || answer.status >= 300) return answer;
        if (!is_put) {
            size = std::min<std::size_t>(answer.body.size(), size);
            if (how != Tokens::claims) std::memcpy(span->data, answer.body.data(), size);
            answer.body.clear();
        }
        answer.headers.emplace_back("x-amz-rdma-reply", std::to_string(answer.status));
        answer.headers.emplace_back("x-amz-rdma-bytes-transferred", std::to_string(size));
        return answer;
    }
    static std::string sum(const std::string& bytes) {
        auto checksum = http::Checksum::make(http::ChecksumAlgorithm::crc64nvme);
        checksum->update(std::as_bytes(std::span(bytes)));
        return checksum->finish().text();
    }
    std::optional<Answer> refused(const Request& request, const std::string& key) const {
        if (!honours_conditions) return std::nullopt;
        const auto found = objects_.find(key);
        if (request.header("if-none-match") == "*" && found != objects_.end()) return error(412, "PreconditionFailed");
        const auto match = request.header("if-match");
        if (match.empty()) return std::nullopt;
        if (found == objects_.end()) return error(404, "NoSuchKey");
        if (match != "\"" + found->second.etag + "\"") return error(412, "PreconditionFailed");
        return std::nullopt;
    }
    Object made(const Request& request) {
        return {request.body, "e" + std::to_string(++version_), request.header("x-amz-meta-kvern"), sum(request.body)};
    }
    Answer put(const Request& request) {
        const auto told = request.header("x-amz-checksum-crc64nvme");
        if (!told.empty() && told != sum(request.body)) return error(400, "BadDigest");
        auto object = made(request);
        Answer answer;
        answer.headers.emplace_back("ETag", "\"" + object.etag + "\"");
        if (request.asks("uploadId")) {
            const auto upload = uploads_.find(request.value("uploadId"));
            if (upload == uploads_.end()) return error(404, "NoSuchUpload");
            upload->second.parts[static_cast<unsigned>(std::stoul(request.value("partNumber")))] = std::move(object);
            return answer;
        }
        if (auto no = refused(request, request.key)) return *no;
        objects_[request.key] = std::move(object);
        return answer;
    }
    Answer get(const Request& request, Fault::Kind kind) {
        const auto found = objects_.find(request.key);
        if (found == objects_.end()) return error(404, "NoSuchKey");
        const auto& object = found->second;
        Answer answer;
        answer.told_bytes = object.bytes.size();
        answer.headers = {{"ETag", "\"" + object.etag + "\""}, {"Last-Modified", "Mon, 01 Dec 2025 00:00:00 GMT"}};
        if (!object.metadata.empty()) answer.headers.emplace_back("x-amz-meta-kvern", object.metadata);
        answer.body = object.bytes;
        auto range = request.header("range");
        if (kind == Fault::Kind::whole) range.clear();
        if (!range.empty()) {
            const auto dash = range.find('-');
            std::size_t first = std::stoull(range.substr(6, dash - 6));
            if (first >= object.bytes.size()) return error(416, "InvalidRange");
            const auto to = range.substr(dash + 1);
            std::size_t last = to.empty() ? object.bytes.size() - 1 : std::stoull(to);
            last = std::min(last, object.bytes.size() - 1);
            if (kind == Fault::Kind::wrong_range) --first, --last;
            answer.status = 206;
            answer.body = object.bytes.substr(first, last - first + 1);
            answer.headers.emplace_back("Content-Range", "bytes " + std::to_string(first) + "-" + std::to_string(last) +
                                                             "/" + std::to_string(object.bytes.size()));
        }
        if (request.header("x-amz-checksum-mode") == "ENABLED") {
            answer.headers.emplace_back("x-amz-checksum-crc64nvme",
                                        kind == Fault::Kind::wrong_sum ? sum(object.bytes + "x") : object.checksum);
            answer.headers.emplace_back("x-amz-checksum-type", "FULL_OBJECT");
        }
        return answer;
    }
    Answer remove(const Request& request) {
        if (request.asks("uploadId")) {
            uploads_.erase(request.value("uploadId"));
        } else {
            if (auto no = refused(request, request.key)) return *no;
            objects_.erase(request.key);
        }
        return Answer{204, {}, {}, 0};
    }
    Answer create(const Request& request) {
        const auto id = "u" + std::to_string(++version_);
        uploads_[id] = {request.key, request.header("x-amz-meta-kvern"), {}};
        return Answer{200,
                      "<InitiateMultipartUploadResult><UploadId>" + id + "</UploadId></InitiateMultipartUploadResult>",
                      {},
                      0};
    }
    Answer complete(const Request& request) {
        const auto upload = uploads_.find(request.value("uploadId"));
        if (upload == uploads_.end()) return error(404, "NoSuchUpload");
        if (auto no = refused(request, request.key)) return *no;
        Object object;
        for (const auto& [number, part] : upload->second.parts) {
            if (request.body.find(part.etag) == std::string::npos) return error(400, "InvalidPart");
            object.bytes += part.bytes;
        }
        object.etag = "e" + std::to_string(++version_) + "-" + std::to_string(upload->second.parts.size());
        object.metadata = upload->second.metadata;
        object.checksum = sum(object.bytes);
        if (request.header("x-amz-checksum-crc64nvme") != object.checksum) return error(400, "BadDigest");
        uploads_.erase(upload);
        const auto etag = object.etag;
        objects_[request.key] = std::move(object);
        return Answer{
            200,
            "<CompleteMultipartUploadResult><ETag>&quot;" + etag + "&quot;</ETag></CompleteMultipartUploadResult>",
            {},
            0};
    }
    Answer of_bucket(const Request& request) {
        if (request.method == "PUT") return Answer{};
        if (request.method == "HEAD") return error(404, "");
        if (request.asks("kvern-exists")) return kvern ? exists(request) : error(501, "NotImplemented");
        if (request.asks("kvern-space") && kvern) {
            return Answer{200, R"({"capacity_bytes":1000,"free_bytes":400,"quota_bytes":900})", {}, 0};
        }
        if (request.asks("delete")) return remove_many(request);
        return list(request);
    }
    Answer exists(const Request& request) {
        Answer answer;
        for (std::size_t at = 0; at < request.body.size();) {
            const auto end = request.body.find('\n', at);
            const auto found =
                objects_.find(*http::percent_decode(request.body.substr(at, end - at), http::Plus::literal));
            answer.body += found == objects_.end() ? "-\n"
                                                   : std::to_string(found->second.bytes.size()) +
                                                         " 1764547200123456789 \"" + found->second.etag + "\"\n";
            at = end + 1;
        }
        return answer;
    }
    Answer remove_many(const Request& request) {
        if (request.header("content-md5").empty()) return error(400, "InvalidRequest");
        Answer answer{200, "<DeleteResult>", {}, 0};
        for (std::size_t at = 0; (at = request.body.find("<Key>", at)) != std::string::npos;) {
            at += 5;
            const auto key = request.body.substr(at, request.body.find("</Key>", at) - at);
            if (key.ends_with("/locked")) {
                answer.body += "<Error><Key>" + key + "</Key><Code>AccessDenied</Code><Message>no</Message></Error>";
            } else {
                objects_.erase(key);
            }
        }
        answer.body += "</DeleteResult>";
        return answer;
    }
    Answer list(const Request& request) {
        const auto prefix = request.value("prefix"), after = request.value("start-after");
        const auto most = std::min<std::size_t>(page, std::stoul("0" + request.value("max-keys")));
        std::string entries;
        std::size_t count = 0;
        bool more = false;
        for (auto one = objects_.upper_bound(after); one != objects_.end(); ++one) {
            if (!one->first.starts_with(prefix)) continue;
            if (count == most) {
                more = true;
                break;
            }
            ++count;
            entries += "<Contents><Key>" + http::percent_encode(one->first, http::Slash::keep) +
                       "</Key><LastModified>2025-12-01T00:00:00.123Z</LastModified><ETag>&quot;" + one->second.etag +
                       "&quot;</ETag><Size>" + std::to_string(one->second.bytes.size()) + "</Size></Contents>";
        }
        return Answer{200,
                      std::string("<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>") +
                          (more ? "true" : "false") + "</IsTruncated>" + entries + "</ListBucketResult>",
                      {},
                      0};
    }

    const std::string scheme_;
    mutable std::mutex mutex_;
    std::map<std::string, Object> objects_;
    std::map<std::string, Upload> uploads_;
    std::vector<Fault> faults_;
    std::vector<std::string> requests_;
    std::string wrong_signature_;
    std::uint64_t version_ = 0;
    std::atomic<bool> ending_{false};
    http::testing::LocalServer server_;  // last: its handlers use what stands above
};

// An environment of a test's own: nothing of this machine's is looked at.
inline Environment test_environment(std::map<std::string, std::string> values = {}) {
    values.try_emplace("AWS_EC2_METADATA_DISABLED", "true");
    return [values](const char* name) -> std::optional<std::string> {
        const auto found = values.find(name);
        return found == values.end() ? std::nullopt : std::optional<std::string>(found->second);
    };
}

inline Environment keys_environment() {
    return test_environment({{"AWS_ACCESS_KEY_ID", "AKTEST"}, {"AWS_SECRET_ACCESS_KEY", "secret"}});
}

inline std::unique_ptr<Store> open_s3(const std::string& text, Environment environment = keys_environment(),
                                      const Clock& clock = Clock::steady(),
                                      const WallClock& wall = WallClock::system()) {
    S3Seams seams;
    seams.environment = std::move(environment);
    seams.clock = &clock;
    seams.wall = &wall;
    seams.seed = test_seed();
    auto store = open_s3_store(*Uri::parse(text), seams);
    if (!store) {
        ADD_FAILURE() << text << ": " << store.error().message;
        std::abort();
    }
    return std::move(*store);
}

}  // namespace kvern::testing
