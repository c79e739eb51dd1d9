// SPDX-License-Identifier: Apache-2.0
// The half of credentials.h that waits: keys of one loop, and the metadata services that temporary ones come from.
#include <algorithm>

#include "base/log.h"
#include "kvern/limits.h"
#include "store/s3/credentials.h"

namespace kvern {
namespace {

constexpr std::string_view token_path = "/latest/api/token";
constexpr std::string_view roles_path = "/latest/meta-data/iam/security-credentials/";
constexpr std::string_view token_life = "21600";  // seconds

std::int64_t nanoseconds(std::chrono::milliseconds time) {
    return std::chrono::nanoseconds(time).count();
}

std::unique_ptr<http::HttpClient> client_for(http::Loop& loop, const S3KeySource& source) {
    if (source.kind != S3KeySource::Kind::container && source.kind != S3KeySource::Kind::instance) return nullptr;
    http::HttpClientOptions options;
    options.address = source.address;
    if (source.tls) {
        auto tls = http::TlsContext::client({});
        if (!tls) return nullptr;
        options.tls = std::move(*tls);
    }
    options.connections_max = 1;
    options.connect_limit = options.stall_limit = options.idle_limit = limits::s3_credentials_wait;
    return std::make_unique<http::HttpClient>(loop, std::move(options));
}

bool is_header_value(std::string_view text) {
    return std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c != 0x7f; });
}

}  // namespace

S3KeyRing::S3KeyRing(http::Loop& loop, const S3KeySource& source, const WallClock& clock)
    : loop_(loop), source_(source), clock_(clock), client_(client_for(loop, source)) {}

S3KeyRing::~S3KeyRing() = default;

bool S3KeyRing::good() const {
    return keys_ && (!keys_->expires_ns || clock_.now_ns() < *keys_->expires_ns);
}

http::Task<Result<std::shared_ptr<const S3Keys>>> S3KeyRing::get() {
    if (source_.kind == S3KeySource::Kind::anonymous) co_return std::shared_ptr<const S3Keys>();
    const auto now = clock_.now_ns();
    const bool ends_soon =
        keys_ && keys_->expires_ns && now > *keys_->expires_ns - nanoseconds(limits::s3_renew_before);
    if ((!keys_ || ends_soon) && !fetching_ && !aborted_ && now >= not_before_ns_) http::detach(renew());
    if (good()) co_return keys_;
    if (fetching_) co_await renewals_.wait();
    if (good()) co_return keys_;
    if (error_) co_return tl::unexpected(*error_);
    co_return fail(ErrorCode::permission, "S3 credentials from " + source_.described + " have ended");
}

void S3KeyRing::refused(const std::shared_ptr<const S3Keys>& keys) {
    if (keys_ != keys) return;  // others have come meanwhile
    keys_.reset();
    not_before_ns_ = 0;
}

void S3KeyRing::abort() {
    aborted_ = true;
    if (client_) client_->abort_all("the store was closed");
}

http::Task<void> S3KeyRing::renew() {
    fetching_ = true;
    auto fetched = co_await fetch();
    if (fetched) {
        keys_ = std::make_shared<const S3Keys>(std::move(*fetched));
        error_.reset();
        not_before_ns_ = 0;
    } else {
        error_ =
            Error{fetched.error().code, "S3 credentials from " + source_.described + ": " + fetched.error().message};
        not_before_ns_ = clock_.now_ns() + nanoseconds(limits::s3_renew_pause);
        log(LogLevel::warning, "s3", error_->message);
    }
    fetching_ = false;
    renewals_.wake_all();
}

http::Task<Result<S3Keys>> S3KeyRing::fetch() {
    if (source_.kind == S3KeySource::Kind::files) co_return source_.read();
    if (!client_) co_return fail(ErrorCode::resource, "no TLS: " + http::tls_reasons());
    if (source_.kind == S3KeySource::Kind::container) co_return co_await fetch_container();
    co_return co_await fetch_instance();
}

// The body of a 200.
http::Task<Result<std::string>> S3KeyRing::ask(const std::string& head) {
    http::HttpRequest request;
    request.head = head;
    request.text_body = true;
    request.deadline = loop_.now() + limits::s3_credentials_wait;
    auto answer = co_await client_->exchange(request);
    if (!answer) co_return tl::unexpected(answer.error().error);
    if (answer->head.status != 200) {
        co_return fail(ErrorCode::permission, "answered " + std::to_string(answer->head.status) + " to " +
                                                  head.substr(0, head.find(" HTTP/")));
    }
    co_return std::move(answer->text);
}

http::Task<Result<S3Keys>> S3KeyRing::fetch_container() {
    const auto token = source_.authorization();
    if (!token) co_return tl::unexpected(token.error());
    std::string head = "GET " + source_.path + " HTTP/1.1\r\nHost: " + source_.address.host + "\r\n";
    if (!token->empty()) head += "Authorization: " + *token + "\r\n";
    head += "Accept: application/json\r\n\r\n";
    const auto document = co_await ask(head);
    if (!document) co_return tl::unexpected(document.error());
    co_return parse_key_document(*document);
}

// Version 2 of the service alone: a token first, which no request that was tricked into being sent can get.
http::Task<Result<S3Keys>> S3KeyRing::fetch_instance() {
    const std::string host = " HTTP/1.1\r\nHost: " + source_.address.host + "\r\n";
    std::string head = "PUT " + std::string(token_path) + host +
                       "X-aws-ec2-metadata-token-ttl-seconds: " + std::string(token_life) +
                       "\r\nContent-Length: 0\r\n\r\n";
    const auto token = co_await ask(head);
    if (!token) co_return tl::unexpected(token.error());
    if (token->empty() || !is_header_value(*token)) co_return fail(ErrorCode::permission, "the token is none");
    const std::string rest = host + "X-aws-ec2-metadata-token: " + *token + "\r\n\r\n";
    head = "GET " + std::string(roles_path) + rest;
    const auto roles = co_await ask(head);
    if (!roles) co_return tl::unexpected(roles.error());
    const auto role = roles->substr(0, roles->find_first_of("\r\n"));
    if (role.empty() || !is_header_value(role) || role.find(' ') != std::string::npos) {
        co_return fail(ErrorCode::permission, "the instance has no role");
    }
    head = "GET " + std::string(roles_path) + role + rest;
    const auto document = co_await ask(head);
    if (!document) co_return tl::unexpected(document.error());
    co_return parse_key_document(*document);
}

}  // namespace kvern
