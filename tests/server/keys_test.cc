// SPDX-License-Identifier: Apache-2.0
// Access keys: what a file of them may say, and what each key may then do.
#include "server/keys.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace kvern::server {
namespace {

class Keys : public ::testing::Test {
  protected:
    Keys() {
        std::string path = "/tmp/kvern-keys-XXXXXX";
        const int fd = mkstemp(path.data());
        EXPECT_GE(fd, 0);
        close(fd);
        path_ = path;
    }
    ~Keys() override { std::filesystem::remove(path_); }

    Result<AccessKeys> load(const std::string& text, mode_t mode = 0600) const {
        std::ofstream(path_) << text;
        chmod(path_.c_str(), mode);
        return AccessKeys::load(path_);
    }
    std::string refusal(const std::string& text, mode_t mode = 0600) const {
        const auto keys = load(text, mode);
        return keys ? "accepted" : keys.error().message;
    }
    std::string path_;
};

constexpr const char* two_keys = R"(
[[key]]
access = "engine"
secret = "one"
[[key]]
access = "guest"
secret = "two"
rights = "read"
buckets = ["cache", "bench-*"]
prefix = "team-a/"
)";

TEST_F(Keys, HaveAllRightsUnlessTheFileSaysLess) {
    const auto keys = load(two_keys);
    ASSERT_TRUE(keys) << keys.error().message;
    EXPECT_EQ(keys->size(), 2U);
    const auto* const engine = keys->find("engine");
    ASSERT_NE(engine, nullptr);
    EXPECT_EQ(engine->credentials.secret_key, "one");
    EXPECT_TRUE(engine->owns_all());
    EXPECT_TRUE(engine->allows(Right::write, "anything", "a/key"));
    EXPECT_EQ(keys->find("Engine"), nullptr);
    EXPECT_EQ(keys->find(""), nullptr);
}

TEST_F(Keys, KeepToTheirBucketsPrefixAndRights) {
    const auto keys = load(two_keys);
    ASSERT_TRUE(keys);
    const auto& guest = *keys->find("guest");
    EXPECT_FALSE(guest.owns_all());
    EXPECT_TRUE(guest.allows(Right::read, "cache", "team-a/x"));
    EXPECT_TRUE(guest.allows(Right::read, "bench-3", "team-a/x"));
    EXPECT_FALSE(guest.allows(Right::write, "cache", "team-a/x"));
    EXPECT_FALSE(guest.allows(Right::read, "cache", "team-b/x"));
    EXPECT_FALSE(guest.allows(Right::read, "cache", "team-a"));
    EXPECT_FALSE(guest.allows(Right::read, "cache2", "team-a/x"));
    EXPECT_FALSE(guest.allows(Right::read, "benchmark", "team-a/x"));
    EXPECT_TRUE(guest.allows_bucket("bench-"));
}

TEST_F(Keys, ThatOwnAllHaveNoLimitAtAll) {
    for (const std::string limit : {"rights = 'read'", "buckets = ['cache']", "prefix = 'a/'"}) {
        const auto keys = load("[[key]]\naccess='a'\nsecret='b'\n" + limit);
        ASSERT_TRUE(keys) << keys.error().message;
        EXPECT_FALSE(keys->find("a")->owns_all()) << limit;
    }
    EXPECT_TRUE(AccessKeys::single({"a", "b", ""}).find("a")->owns_all());
}

TEST_F(Keys, AreNotReadFromAFileThatOthersMayRead) {
    for (const mode_t mode : {0604, 0644, 0602, 0620, 0666}) {
        EXPECT_NE(refusal(two_keys, mode).find("others may read it: chmod 600"), std::string::npos) << std::oct << mode;
    }
    EXPECT_TRUE(load(two_keys, 0400));
    if (geteuid() == 0) {  // root's own file, for root: its group is somebody else
        EXPECT_FALSE(load(two_keys, 0640));
    }
}

TEST_F(Keys, OfAFileThatIsWrongAreRefusedWithThePlace) {
    const std::string key = "[[key]]\naccess='a'\nsecret='b'\n";
    EXPECT_NE(refusal("").find("no [[key]] in it"), std::string::npos);
    EXPECT_NE(refusal(key + "bucket=['x']").find("key 1: unknown 'bucket' (did you mean 'buckets'?)"),
              std::string::npos);
    EXPECT_NE(refusal(key + "[[key]]\naccess='c'").find("key 2: access and secret must be given"), std::string::npos);
    EXPECT_NE(refusal(key + "rights='admin'").find("rights must be"), std::string::npos);
    EXPECT_NE(refusal(key + "buckets='x'").find("buckets must be a list"), std::string::npos);
    EXPECT_NE(refusal(key + "buckets=[1]").find("buckets must be a list"), std::string::npos);
    EXPECT_NE(refusal(key + "buckets=[]").find("leave it out to allow all"), std::string::npos);
    EXPECT_NE(refusal(key + "prefix=3").find("prefix must be a text"), std::string::npos);
    EXPECT_NE(refusal(key + key).find("key 2: its access key stands there twice"), std::string::npos);
    EXPECT_NE(refusal("keys=1").find("expected [[key]] tables, found 'keys'"), std::string::npos);
    EXPECT_NE(refusal("key=['a']").find("expected [[key]] tables"), std::string::npos);
    EXPECT_NE(refusal("[[key]]\naccess=").find("line 2"), std::string::npos);
    const auto missing = AccessKeys::load("/nonexistent/keys");
    ASSERT_FALSE(missing);
    EXPECT_NE(missing.error().message.find("No such file"), std::string::npos);
}

TEST_F(Keys, NeverShowASecretInARefusal) {
    for (const std::string text : {"[[key]]\naccess='a'\nsecret='hushhush'\nrights='x'", "[[key]]\nsecret='hushhush'",
                                   "[[key]]\naccess='a'\nsecret='hushhush'\n[[key]]\naccess='a'\nsecret='hushhush'"}) {
        const auto said = refusal(text);
        EXPECT_NE(said, "accepted");
        EXPECT_EQ(said.find("hushhush"), std::string::npos) << said;
    }
}

}  // namespace
}  // namespace kvern::server
