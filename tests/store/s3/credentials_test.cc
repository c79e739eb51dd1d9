// SPDX-License-Identifier: Apache-2.0
// Where keys are looked for, in which order, and how temporary ones are kept fresh.
#include "store/s3/credentials.h"

#include <fstream>
#include <limits>

#include "kvern/limits.h"
#include "store/fake_s3.h"

namespace kvern::testing {
namespace {

void expect_in(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
}

Result<S3KeySource> source_of(const std::string& uri, const Environment& environment) {
    const auto options = s3_options(*Uri::parse(uri), environment);
    EXPECT_TRUE(options) << options.error().message;
    return find_s3_keys(*options, environment);
}

class S3KeyFiles : public ::testing::Test {
  protected:
    S3KeyFiles() {
        std::ofstream(folder_.path() + "/credentials")
            << "[default]\naws_access_key_id = D\naws_secret_access_key = hunter2\n"
            << "[p]\naws_access_key_id = P\naws_secret_access_key = hunter2\naws_session_token = T\n"
            << "[half]\naws_access_key_id = H\n[sso]\nsso_start_url = x\n";
    }
    Environment with(std::map<std::string, std::string> more = {}) {
        more["AWS_SHARED_CREDENTIALS_FILE"] = folder_.path() + "/credentials";
        more["AWS_CONFIG_FILE"] = folder_.path() + "/none";
        return test_environment(std::move(more));
    }
    std::string key(const std::string& uri, const Environment& environment) {
        const auto source = source_of(uri, environment);
        if (!source) return source.error().message;
        EXPECT_EQ(source->described.find("hunter2"), std::string::npos);
        return source->read()->credentials.access_key;
    }
    TempFolder folder_;
};

TEST_F(S3KeyFiles, AreLookedForInOrder) {
    const std::map<std::string, std::string> keys{{"AWS_ACCESS_KEY_ID", "E"}, {"AWS_SECRET_ACCESS_KEY", "hunter2"}};
    std::ofstream(folder_.path() + "/mine") << "[default]\naws_access_key_id = M\naws_secret_access_key = hunter2\n";
    EXPECT_EQ(key("s3://bucket?credentials=" + folder_.path() + "/mine", with(keys)), "M");
    EXPECT_EQ(key("s3://bucket", with(keys)), "E");
    EXPECT_EQ(key("s3://bucket", with()), "D");
    EXPECT_EQ(key("s3://bucket?profile=p", with(keys)), "P") << "what is given in the URI counts more";
    EXPECT_EQ(key("s3://bucket", with({{"AWS_PROFILE", "p"}})), "P");
    EXPECT_EQ(source_of("s3://bucket?anonymous=1", with(keys))->kind, S3KeySource::Kind::anonymous);
    EXPECT_EQ(source_of("s3://bucket?profile=p", with())->read()->credentials.session_token, "T");
}

TEST_F(S3KeyFiles, SayWhatIsMissing) {
    expect_in(key("s3://bucket?profile=half", with()), "has no aws_secret_access_key");
    expect_in(key("s3://bucket?profile=sso", with()), "sso_start_url, which is not supported");
    expect_in(key("s3://bucket?profile=none", with()), "profile 'none' of " + folder_.path() + "/credentials");
    expect_in(key("s3://bucket?credentials=/nowhere", with()), "/nowhere does not exist");
    expect_in(key("s3://bucket", test_environment()), "looked in the environment");
    std::ofstream(folder_.path() + "/broken") << "hunter2";
    const auto text = key("s3://bucket?credentials=" + folder_.path() + "/broken", with());
    expect_in(text, "line 1");
    EXPECT_EQ(text.find("hunter2"), std::string::npos);
}

TEST(S3KeyDocument, IsReadStrictly) {
    const auto keys = parse_key_document(
        R"({"Code":"Success","AccessKeyId":"A","SecretAccessKey":"s","Token":"t","Expiration":"2030-01-01T00:00:00Z"})");
    ASSERT_TRUE(keys) << keys.error().message;
    EXPECT_EQ(keys->credentials.session_token, "t");
    EXPECT_EQ(keys->expires_ns, 1893456000LL * 1'000'000'000);
    const auto late =
        parse_key_document(R"({"AccessKeyId":"A","SecretAccessKey":"s","Expiration":"4060-01-01T00:00:00Z"})");
    ASSERT_TRUE(late) << late.error().message;
    EXPECT_EQ(late->expires_ns, std::numeric_limits<std::int64_t>::max());
    for (const std::string text :
         {"", "[]", "{}", R"({"AccessKeyId":"A"})", R"({"Code":"Failed","AccessKeyId":"A","SecretAccessKey":"s"})",
          R"({"AccessKeyId":"A\r\nx: y","SecretAccessKey":"s"})",
          R"({"AccessKeyId":"A","SecretAccessKey":"s","Expiration":"soon"})"}) {
        EXPECT_FALSE(parse_key_document(text)) << text;
    }
    EXPECT_FALSE(parse_key_document(std::string(100000, '[')));
}

TEST(S3ContainerUrl, GoesToThisHostOrUnderTlsAlone) {
    const auto source = [](const std::string& url) {
        return source_of("s3://bucket", test_environment({{"AWS_CONTAINER_CREDENTIALS_FULL_URI", url}}));
    };
    EXPECT_TRUE(source("http://127.0.0.1:1/x"));
    EXPECT_TRUE(source("http://localhost/x"));
    EXPECT_TRUE(source("http://169.254.170.23/v1/credentials"));
    EXPECT_TRUE(source("https://example.org/x"));
    EXPECT_FALSE(source("http://example.org/x"));
    EXPECT_FALSE(source("http://169.254.example.org/x"));
    EXPECT_FALSE(source("ftp://127.0.0.1/x"));
    EXPECT_FALSE(source("http://127.0.0.1/x y"));
    const auto relative =
        source_of("s3://bucket", test_environment({{"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/x"}}));
    ASSERT_TRUE(relative);
    EXPECT_EQ(relative->address.host, "169.254.170.2");
}

// A metadata service that hands out the n-th keys at the n-th request, in both dialects.
class Metadata {
  public:
    Metadata() : server_([this](http::Exchange& exchange) { return serve(exchange); }) {}
    std::string address() const { return "127.0.0.1:" + server_.address().port; }
    std::atomic<unsigned> served{0};
    std::atomic<bool> broken{false};
    std::atomic<std::int64_t> expires_s{4102444800};  // 2100

  private:
    http::Task<void> serve(http::Exchange& exchange) {
        const std::string target(exchange.request().target), method(exchange.request().method);
        const auto token = exchange.request().find("x-aws-ec2-metadata-token");
        const auto authorization = exchange.request().find("authorization");
        unsigned status = 200;
        std::string body;
        if (broken) {
            status = 500;
        } else if (method == "PUT" && target == "/latest/api/token") {
            body = "tok";
        } else if (target == "/latest/meta-data/iam/security-credentials/" && token == "tok") {
            body = "role\n";
        } else if ((target.ends_with("/role") && token == "tok") ||
                   (target == "/container" && authorization == "secret")) {
            body = document(++served);
        } else {
            status = 401;
        }
        (void)co_await exchange.answer(http::AnswerHead(status), body);
    }
    std::string document(unsigned number) const {
        const auto time = http::iso_date(http::SysMilliseconds(std::chrono::seconds(expires_s)));
        return R"({"Code":"Success","AccessKeyId":"AK)" + std::to_string(number) +
               R"(","SecretAccessKey":"secret","Token":"t","Expiration":")" + time + "\"}";
    }
    http::testing::LocalServer server_;
};

Environment instance(const Metadata& metadata) {
    return test_environment({{"AWS_EC2_METADATA_DISABLED", "false"},
                             {"AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://" + metadata.address()}});
}

TEST(S3TemporaryKeys, ComeFromAnInstanceOrAContainer) {
    FakeS3 s3;
    s3.credentials = {"AK1", "secret", "t"};
    const auto value = filled(10, 1);
    Metadata first;
    const auto store = open_s3(s3.uri(), instance(first));
    const auto outcome = run(*store, put_op("k", value));
    EXPECT_EQ(outcome.status, Status::ok) << outcome.error.message;
    Metadata second;
    const auto other = open_s3(
        s3.uri(), test_environment({{"AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://" + second.address() + "/container"},
                                    {"AWS_CONTAINER_AUTHORIZATION_TOKEN", "secret"}}));
    EXPECT_EQ(run(*other, put_op("k", value)).status, Status::ok);
    EXPECT_EQ(first.served + second.served, 2U);
    expect_in(other->describe(), "the container's endpoint");
    EXPECT_EQ(s3.wrong_signature(), "");
}

TEST(S3TemporaryKeys, AreRenewedBeforeTheirEndWhileRequestsGoOn) {
    FakeS3 s3;
    s3.any_credentials = true;
    Metadata metadata;
    FakeWallClock clock;
    metadata.expires_s = clock.now_ns() / 1'000'000'000 + 3600;
    const auto store = open_s3(s3.uri(), instance(metadata), Clock::steady(), clock);
    const auto stat = plain_op(OpKind::stat, "k");
    EXPECT_EQ(run(*store, stat).status, Status::miss);
    clock.advance(std::chrono::minutes(49));
    EXPECT_EQ(run(*store, stat).status, Status::miss);
    EXPECT_EQ(metadata.served, 1U);
    clock.advance(std::chrono::minutes(2));  // nine before the end
    metadata.broken = true;
    EXPECT_EQ(run(*store, stat).status, Status::miss) << "the old ones are still good";
    metadata.broken = false;
    clock.advance(limits::s3_renew_pause);
    for (int i = 0; i < 500 && metadata.served < 2; ++i) {
        EXPECT_EQ(run(*store, stat).status, Status::miss);
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        clock.advance(std::chrono::seconds(1));
    }
    EXPECT_EQ(metadata.served, 2U);
}

TEST(S3TemporaryKeys, ThatHaveEndedFailUntilOthersCome) {
    FakeS3 s3;
    s3.any_credentials = true;
    Metadata metadata;
    FakeWallClock clock;
    metadata.expires_s = clock.now_ns() / 1'000'000'000 + 3600;
    const auto store = open_s3(s3.uri(), instance(metadata), Clock::steady(), clock);
    const auto stat = plain_op(OpKind::stat, "k");
    EXPECT_EQ(run(*store, stat).status, Status::miss);
    clock.advance(std::chrono::hours(2));
    metadata.broken = true;
    EXPECT_FAILED(run(*store, stat), ErrorCode::permission);
    metadata.broken = false;
    metadata.expires_s = clock.now_ns() / 1'000'000'000 + 7200;
    EXPECT_FAILED(run(*store, stat), ErrorCode::permission);  // a pause after a failure
    clock.advance(limits::s3_renew_pause);
    EXPECT_EQ(run(*store, stat).status, Status::miss);
}

TEST(S3TemporaryKeys, ThatTheServerRefusesAreReplaced) {
    FakeS3 s3;
    s3.credentials = {"AK2", "secret", "t"};
    Metadata metadata;
    const auto store = open_s3(s3.uri(), instance(metadata));
    s3.fault({.method = "PUT", .status = 400, .code = "ExpiredToken"});
    const auto value = filled(10, 1);
    EXPECT_EQ(run(*store, put_op("k", value)).status, Status::ok);
    EXPECT_EQ(metadata.served, 2U);
}

TEST(S3TemporaryKeys, FilesAreReadAgainWhenTheirKeysAreRefused) {
    TempFolder folder;
    const auto path = folder.path() + "/c";
    std::ofstream(path) << "[default]\naws_access_key_id = OLD\naws_secret_access_key = secret\n";
    FakeS3 s3;
    const auto store = open_s3(s3.uri("&credentials=" + path), test_environment());
    s3.fault({.method = "PUT", .status = 403, .code = "InvalidAccessKeyId"});
    std::ofstream(path) << "[default]\naws_access_key_id = AKTEST\naws_secret_access_key = secret\n";
    const auto value = filled(10, 1);
    EXPECT_EQ(run(*store, put_op("k", value)).status, Status::ok);
}

}  // namespace
}  // namespace kvern::testing
