// SPDX-License-Identifier: Apache-2.0
// s3: URIs, and the files and variables of AWS's tools that add to them.
#include "store/s3/options.h"

#include <fstream>

#include "kvern/limits.h"
#include "store/fake_s3.h"
#include "store/s3/profiles.h"

namespace kvern::testing {
namespace {

Result<S3Options> options_of(const std::string& text, const Environment& environment = test_environment()) {
    return s3_options(*Uri::parse(text), environment);
}
std::string error_of(const std::string& text) {
    const auto options = options_of(text);
    EXPECT_FALSE(options) << text;
    return options ? "" : options.error().message;
}
void expect_in(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
}

TEST(S3Options, DefaultsAreAws) {
    const auto options = options_of("s3://bucket");
    ASSERT_TRUE(options) << options.error().message;
    EXPECT_EQ(options->prefix, "");
    EXPECT_EQ(options->region, "us-east-1");
    ASSERT_EQ(options->places.size(), 1U);
    EXPECT_EQ(options->places[0].host, "bucket.s3.us-east-1.amazonaws.com");
    EXPECT_EQ(options->places[0].address.port, "443");
    EXPECT_EQ(options->places[0].base, "");
    EXPECT_TRUE(options->places[0].tls);
    EXPECT_EQ(options->checksum, http::ChecksumAlgorithm::crc64nvme);
    EXPECT_EQ(options->connections, limits::s3_connections_default);
}

TEST(S3Options, EverythingCanBeGiven) {
    const auto options = options_of(
        "s3://my.bucket/a/b?endpoint=http://host:9000,https://other&region=eu-west-1&connections=4&addressing=path"
        "&checksum=crc32c&multipart=16MiB&connect_timeout=1s&stall_timeout=2s&timeout=30s&threads=1&profile=p"
        "&credentials=/f&ca=/ca.pem");
    ASSERT_TRUE(options) << options.error().message;
    EXPECT_EQ(options->prefix, "a/b/");
    ASSERT_EQ(options->places.size(), 2U);
    EXPECT_EQ(options->places[0].host, "host:9000");
    EXPECT_EQ(options->places[0].base, "/my.bucket");
    EXPECT_EQ(options->places[1].host, "other");
    EXPECT_EQ(options->places[1].address.port, "443");
    EXPECT_EQ(options->checksum, http::ChecksumAlgorithm::crc32c);
    EXPECT_EQ(options->multipart_bytes, std::uint64_t{16} << 20);
    EXPECT_EQ(options->stall_timeout, std::chrono::seconds(2));
    EXPECT_EQ(options_of("s3://b-u?endpoint=http://h&checksum=none")->checksum, std::nullopt);
}

TEST(S3Options, TheNetworkOfTransfersIsOfTheEnvironment) {
    const auto given =
        options_of("s3://bucket?rdma=ofi&dialect=dell",
                   test_environment({{"KVERN_FABRIC_ADDRESS", "192.0.2.7"}, {"KVERN_FABRIC_PROVIDER", "tcp;ofi_rxm"}}));
    ASSERT_TRUE(given) << given.error().message;
    EXPECT_EQ(given->rdma, S3Options::Rdma::ofi);
    EXPECT_EQ(given->dialect, &fabric::dell_dialect);
    EXPECT_EQ(given->fabric_address, "192.0.2.7");
    EXPECT_EQ(given->fabric_provider, "tcp;ofi_rxm");
    EXPECT_EQ(options_of("s3://bucket")->dialect, nullptr);
    const auto wrong = options_of("s3://bucket", test_environment({{"KVERN_FABRIC_PROVIDER", "shm"}}));
    ASSERT_FALSE(wrong);
    expect_in(wrong.error().message, "KVERN_FABRIC_PROVIDER='shm'");
    expect_in(wrong.error().message, "verbs;ofi_rxm");
    for (const auto& [name, rdma] : {std::pair("off", S3Options::Rdma::off),
                                     {"auto", S3Options::Rdma::automatic},
                                     {"local", S3Options::Rdma::local},
                                     {"ofi", S3Options::Rdma::ofi},
                                     {"dc", S3Options::Rdma::dc},
                                     {"cuobject", S3Options::Rdma::cuobject}}) {
        EXPECT_EQ(options_of(std::string("s3://bucket?rdma=") + name)->rdma, rdma) << name;
    }
}

TEST(S3Options, AddressesBucketsAsTheServerNeeds) {
    const auto place = [](const std::string& text) { return options_of(text)->places[0]; };
    EXPECT_EQ(place("s3://bucket?endpoint=http://store:9000").base, "/bucket");
    EXPECT_EQ(place("s3://bucket?endpoint=http://store:9000&addressing=virtual").host, "bucket.store:9000");
    EXPECT_EQ(place("s3://bucket?endpoint=http://store:9000&addressing=virtual").address.host, "bucket.store");
    EXPECT_EQ(place("s3://bucket?endpoint=https://s3.eu-west-1.amazonaws.com").host,
              "bucket.s3.eu-west-1.amazonaws.com");
    EXPECT_EQ(place("s3://with.dot?region=eu-west-1").host, "s3.eu-west-1.amazonaws.com") << "its certificate";
    EXPECT_EQ(place("s3://bucket?region=cn-north-1").host, "bucket.s3.cn-north-1.amazonaws.com.cn");
    EXPECT_EQ(place("s3://bucket?endpoint=http://[::1]:9000").host, "[::1]:9000");
    expect_in(error_of("s3://bucket?endpoint=http://127.0.0.1:9000&addressing=virtual"), "no name");
}

TEST(S3Options, NameWhatIsWrongAndSuggest) {
    expect_in(error_of("s3://bucket?conections=3"), "connections");
    expect_in(error_of("s3://bucket?checksum=crc64"), "crc64nvme");
    expect_in(error_of("s3://bucket?multipart=1MiB"), "8 MiB");
    expect_in(error_of("s3://bucket?timeout=5"), "timeout");
    expect_in(error_of("s3://bucket?threads=100000"), "threads");
    expect_in(error_of("s3://b?endpoint=http://h"), "no name of a bucket");
    expect_in(error_of("s3:bucket"), "s3://BUCKET");
    expect_in(error_of("s3://bucket/a/../b"), "'..'");
    expect_in(error_of("s3://bucket?endpoint=host:9000"), "http://HOST:PORT");
    expect_in(error_of("s3://bucket?endpoint=http://host/path"), "path");
    expect_in(error_of("s3://bucket?endpoint=http://a,,http://b"), "empty");
    expect_in(error_of("s3://bucket?endpoint=http://a,http://a"), "twice");
    expect_in(error_of("s3://bucket?region=a%0d%0ab"), "region");
}

TEST(S3Options, SecretsAreRefusedAndNotRepeated) {
    for (const std::string text :
         {"s3://me:hunter2@bucket", "s3://bucket?endpoint=http://me:hunter2@host", "s3://bucket?access_key=hunter2",
          "s3://bucket?AWS_SECRET_ACCESS_KEY=hunter2", "s3://bucket?session-token=hunter2"}) {
        const auto said = error_of(text);
        expect_in(said, "must not hold credentials");
        EXPECT_EQ(said.find("hunter2"), std::string::npos);
    }
}

TEST(S3Options, TheEnvironmentAndTheSettingsFileAdd) {
    TempFolder folder;
    std::ofstream(folder.path() + "/config") << "[default]\nregion = eu-north-1\n[profile p]\nregion=ap-east-1\n";
    const auto with = [&](std::map<std::string, std::string> more) {
        more["AWS_CONFIG_FILE"] = folder.path() + "/config";
        return test_environment(std::move(more));
    };
    EXPECT_EQ(options_of("s3://bucket", with({}))->region, "eu-north-1");
    EXPECT_EQ(options_of("s3://bucket?profile=p", with({}))->region, "ap-east-1");
    EXPECT_EQ(options_of("s3://bucket", with({{"AWS_PROFILE", "p"}}))->region, "ap-east-1");
    EXPECT_EQ(options_of("s3://bucket", with({{"AWS_DEFAULT_REGION", "r-1"}}))->region, "r-1");
    EXPECT_EQ(options_of("s3://bucket", with({{"AWS_REGION", "r-2"}, {"AWS_DEFAULT_REGION", "r-1"}}))->region, "r-2");
    EXPECT_EQ(options_of("s3://bucket?region=r-3", with({{"AWS_REGION", "r-2"}}))->region, "r-3");
    const auto endpoints = with({{"AWS_ENDPOINT_URL", "http://one:1"}, {"AWS_ENDPOINT_URL_S3", "http://two:2"}});
    EXPECT_EQ(options_of("s3://bucket", endpoints)->places[0].url, "http://two:2");
    EXPECT_EQ(options_of("s3://bucket?endpoint=http://three:3", endpoints)->places[0].url, "http://three:3");
}

TEST(S3Profiles, AreReadAsTheToolsWriteThem) {
    const auto profiles = parse_profiles(
        "# comment\r\n[default]\r\naws_access_key_id = A  # mine\r\nAWS_Secret_Access_Key=s#=+/\r\n"
        "s3 =\n    max_concurrent_requests = 20\n\n[profile \"with space\"]\nregion = r\n[x]\n");
    ASSERT_TRUE(profiles) << profiles.error().message;
    EXPECT_EQ(profiles->at("default").at("aws_access_key_id"), "A");
    EXPECT_EQ(profiles->at("default").at("aws_secret_access_key"), "s#=+/");
    EXPECT_EQ(profiles->at("default").at("s3"), "");
    EXPECT_EQ(profiles->at("default").size(), 3U);
    EXPECT_EQ(profiles->at("with space").at("region"), "r");
    EXPECT_TRUE(profiles->at("x").empty());
}

TEST(S3Profiles, NameTheLineAndNothingOfIt) {
    for (const std::string text : {"[a]\nsecret", "secret = 1\n", "[secret\n", "[a]\n=secret\n"}) {
        const auto profiles = parse_profiles(text);
        ASSERT_FALSE(profiles) << text;
        expect_in(profiles.error().message, "line ");
        EXPECT_EQ(profiles.error().message.find("secret"), std::string::npos);
    }
}

}  // namespace
}  // namespace kvern::testing
