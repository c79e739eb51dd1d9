// SPDX-License-Identifier: Apache-2.0
#include "fabric/networks.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

namespace kvern::fabric {
namespace {

std::string endpoint(const std::string& address) {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(9000);
    if (inet_pton(AF_INET, address.c_str(), &v4.sin_addr) == 1) return {reinterpret_cast<const char*>(&v4), sizeof v4};
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    EXPECT_EQ(inet_pton(AF_INET6, address.c_str(), &v6.sin6_addr), 1) << address;
    return {reinterpret_cast<const char*>(&v6), sizeof v6};
}

TEST(Networks, WithoutAnyOnlyWhereTheRequestCameFrom) {
    const auto none = *Networks::parse("");
    EXPECT_TRUE(none.permit(endpoint("192.0.2.7"), "192.0.2.7"));
    EXPECT_TRUE(none.permit(endpoint("192.0.2.7"), "::ffff:192.0.2.7"));
    EXPECT_TRUE(none.permit(endpoint("fd00::1"), "fd00::1"));
    EXPECT_FALSE(none.permit(endpoint("192.0.2.8"), "192.0.2.7"));
    EXPECT_FALSE(none.permit(endpoint("127.0.0.1"), "192.0.2.7"));
    EXPECT_FALSE(none.permit(endpoint("192.0.2.7"), "no address"));
}

TEST(Networks, AreHeldToEveryBit) {
    const auto networks = *Networks::parse("10.0.0.0/8,192.0.2.64/26,fd00:1::/33,198.51.100.9");
    for (const auto* const in : {"10.255.0.1", "192.0.2.64", "192.0.2.127", "fd00:1:7fff::1", "198.51.100.9"}) {
        EXPECT_TRUE(networks.permit(endpoint(in), "")) << in;
    }
    for (const auto* const out : {"11.0.0.1", "192.0.2.128", "192.0.2.63", "fd00:1:8000::1", "198.51.100.8", "::1"}) {
        EXPECT_FALSE(networks.permit(endpoint(out), "")) << out;
    }
    EXPECT_TRUE(Networks::parse("0.0.0.0/0")->permit(endpoint("8.8.8.8"), ""));
    EXPECT_FALSE(Networks::parse("0.0.0.0/0")->permit(endpoint("fd00::1"), ""));
    EXPECT_TRUE(Networks::parse("::/0")->permit(endpoint("fd00::1"), ""));
}

TEST(Networks, NamesThatAreNoInternetAddressesAreNeverPermitted) {
    const auto all = *Networks::parse("0.0.0.0/0,::/0");
    for (const auto& name : {std::string(), std::string("\x02"), std::string("fi_shm://1"), endpoint("10.0.0.1") + "x",
                             std::string(16, '\1')}) {
        EXPECT_FALSE(all.permit(name, "127.0.0.1")) << name.size();
    }
}

TEST(Networks, WhatIsNoneIsNamed) {
    for (const auto* const wrong :
         {"10.0.0.0/33", "10.0.0/8", "x", "10.0.0.0/", "10.0.0.0/8,,fd00::/8", "fd00::/129", "1.2.3.4/-1"}) {
        const auto parsed = Networks::parse(wrong);
        ASSERT_FALSE(parsed) << wrong;
        EXPECT_NE(parsed.error().message.find("is no network"), std::string::npos) << parsed.error().message;
    }
}

}  // namespace
}  // namespace kvern::fabric
