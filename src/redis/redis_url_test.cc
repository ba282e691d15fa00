#include "redis/redis_url.h"

#include <gtest/gtest.h>

namespace oncekey::redis {
namespace {

std::string refused(std::string_view text) {
  const Result<RedisUrl> url = parse_url(text);
  return url ? "accepted" : url.fault().message;
}

TEST(RedisUrl, AHostIsEnough) {
  const RedisUrl url = *parse_url("redis://cache");
  EXPECT_EQ(url.hosts, (std::vector<Host>{{"cache", 6379}}));
  EXPECT_EQ(url.prefix, "oncekey");
  EXPECT_EQ(url.database, 0);
  EXPECT_FALSE(url.tls);
  EXPECT_FALSE(url.cluster);
}

TEST(RedisUrl, EverythingAtOnce) {
  const RedisUrl url = *parse_url(
      "rediss://app%40eu:s%25%2Fe:cret@[::1]:7000/3?call_timeout=750ms&prefix=pay:eu&wait=2&tls_ca=%2Fca.pem");
  EXPECT_EQ(url.user, "app@eu");
  EXPECT_EQ(url.password, "s%/e:cret");
  EXPECT_EQ(url.hosts, (std::vector<Host>{{"::1", 7000}}));
  EXPECT_EQ(url.database, 3);
  EXPECT_EQ(url.call_timeout, Millis{750});
  EXPECT_EQ(url.prefix, "pay:eu");
  EXPECT_EQ(url.wait, 2);
  EXPECT_EQ(url.tls_ca, "/ca.pem");
  EXPECT_TRUE(url.tls);
}

TEST(RedisUrl, APasswordNeedsNoUser) {
  const RedisUrl url = *parse_url("redis://:secret@h/");
  EXPECT_EQ(url.user, "");
  EXPECT_EQ(url.password, "secret");
}

TEST(RedisUrl, AClusterHasSeveralHosts) {
  const RedisUrl url = *parse_url("redis+cluster://u:p@a:1,b:2,c/");
  EXPECT_TRUE(url.cluster);
  EXPECT_EQ(url.hosts, (std::vector<Host>{{"a", 1}, {"b", 2}, {"c", 6379}}));
  EXPECT_TRUE(parse_url("rediss+cluster://a:1")->tls);
}

TEST(RedisUrl, WhatIsWrongIsSaid) {
  EXPECT_NE(refused("http://a").find("expected redis://"), std::string::npos);
  EXPECT_NE(refused("redis://").find("expected HOST:PORT"), std::string::npos);
  EXPECT_NE(refused("redis://a,b").find("redis+cluster://"), std::string::npos);
  EXPECT_NE(refused("redis://a:0").find("from 1 to 65535"), std::string::npos);
  EXPECT_NE(refused("redis://a:70000").find("up to 65535"), std::string::npos);
  EXPECT_NE(refused("redis://a:").find("expected HOST:PORT"), std::string::npos);
  EXPECT_NE(refused("redis://[::1").find("[IPV6]:PORT"), std::string::npos);
  EXPECT_NE(refused("redis://a/x").find("database: expected a number"), std::string::npos);
  EXPECT_NE(refused("redis+cluster://a:1/2").find("no numbered databases"), std::string::npos);
  EXPECT_NE(refused("redis://a?timeout=1s").find("there is no setting \"timeout\""), std::string::npos);
  EXPECT_NE(refused("redis://a?wait=many").find("number of replicas"), std::string::npos);
  EXPECT_NE(refused("redis://a?prefix={x}").find("prefix may have"), std::string::npos);
  EXPECT_NE(refused("redis://a?call_timeout=2").find("not a duration"), std::string::npos);
  EXPECT_NE(refused("redis://a?tls_ca=x").find("rediss"), std::string::npos);
  EXPECT_NE(refused("rediss://a?tls_cert=x").find("belong together"), std::string::npos);
  EXPECT_NE(refused("redis://u:%zz@a").find("two hex digits"), std::string::npos);
  EXPECT_NE(refused("redis://u:p@a?password_file=x").find("both"), std::string::npos);
}

TEST(RedisUrl, NoMessageShowsAPassword) {
  EXPECT_EQ(refused("redis://u:hidden@a:0").find("hidden"), std::string::npos);
  EXPECT_EQ(refused("redis://:hidden@a?x=1").find("hidden"), std::string::npos);
  EXPECT_EQ(refused("redis://u:hidden/hidden@a").find("hidden"), std::string::npos);
  EXPECT_NE(refused("redis://u:hidden/hidden@a").find("%2F"), std::string::npos);
}

TEST(RedisEndpoint, HostAndPortOrNothing) {
  EXPECT_EQ(parse_endpoint("10.0.0.1:7001"), (Host{"10.0.0.1", 7001}));
  EXPECT_EQ(parse_endpoint("[fe80::1]:7001"), (Host{"fe80::1", 7001}));
  EXPECT_EQ(parse_endpoint("fe80::1:7001"), (Host{"fe80::1", 7001})) << "as a server writes it";
  EXPECT_EQ(parse_endpoint(":7001"), (Host{"", 7001}));
  EXPECT_FALSE(parse_endpoint("a"));
  EXPECT_FALSE(parse_endpoint("a:0"));
  EXPECT_FALSE(parse_endpoint("a:b"));
}

} // namespace
} // namespace oncekey::redis
