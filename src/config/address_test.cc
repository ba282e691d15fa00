#include "config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace oncekey {
namespace {

using testing::HasSubstr;

TEST(Address, IsAHostAndAPort) {
  const auto address = parse_address("127.0.0.1:8080");
  ASSERT_TRUE(address.ok());
  EXPECT_EQ(address->host, "127.0.0.1");
  EXPECT_EQ(address->port, 8080);
}

TEST(Address, OfVersionSixStandsInBrackets) {
  const auto address = parse_address("[::1]:8080");
  ASSERT_TRUE(address.ok());
  EXPECT_EQ(address->host, "::1");
  EXPECT_EQ(address->port, 8080);
}

TEST(Address, LocalhostIsTheLoopbackAddress) {
  const auto address = parse_address("LocalHost:0");
  ASSERT_TRUE(address.ok());
  EXPECT_EQ(address->host, "127.0.0.1");
  EXPECT_EQ(address->port, 0);
}

TEST(Address, RefusesWhatIsNotOneAndSaysWhy) {
  const struct {
    const char* text;
    const char* why;
  } cases[] = {
      {"", "name the address"},
      {":8080", "0.0.0.0 or [::] stands for every interface"},
      {"*:8080", "0.0.0.0 or [::] stands for every interface"},
      {"127.0.0.1", "the port is missing"},
      {"127.0.0.1:", "expected HOST:PORT"},
      {"127.0.0.1:65536", "up to 65535"},
      {"127.0.0.1:-1", "up to 65535"},
      {"127.0.0.1:80x", "up to 65535"},
      {"127.0.0.1:+80", "up to 65535"},
      {"::1:8080", "expected HOST:PORT"},
      {"[::1]", "the port is missing"},
      {"[::1", "expected HOST:PORT"},
      {"[::1]8080", "expected HOST:PORT"},
      {"[127.0.0.1]:80", "an IPv6 address in brackets"},
      {"256.0.0.1:80", "must be an IP address or localhost"},
      {"example.com:80", "must be an IP address or localhost"},
  };
  for (const auto& c : cases) {
    const auto address = parse_address(c.text);
    ASSERT_FALSE(address.ok()) << c.text;
    EXPECT_THAT(address.fault().message, HasSubstr(c.why)) << c.text;
  }
}

TEST(Loopback, IsTheWholeOfItsNetworkAndNothingElse) {
  for (const char* host : {"127.0.0.1", "127.9.8.7", "::1", "localhost", "::ffff:127.0.0.1"})
    EXPECT_TRUE(is_loopback({host, 1})) << host;
  for (const char* host : {"0.0.0.0", "::", "128.0.0.1", "10.0.0.1", "::2", "::ffff:10.0.0.1", "127.example.com"})
    EXPECT_FALSE(is_loopback({host, 1})) << host;
}

TEST(Addresses, CollideWhereOneListenerTakesTheOthersConnections) {
  const struct {
    const char* one;
    const char* other;
    bool collide;
  } cases[] = {
      {"127.0.0.1:80", "127.0.0.1:80", true},     {"127.0.0.1:80", "127.0.0.1:81", false},
      {"127.0.0.1:80", "localhost:80", true},     {"127.0.0.1:80", "127.0.0.2:80", false},
      {"127.0.0.1:80", "[::1]:80", false},        {"127.0.0.1:80", "0.0.0.0:80", true},
      {"[::1]:80", "0.0.0.0:80", false},          {"[::1]:80", "[::]:80", true},
      {"127.0.0.1:80", "[::]:80", true},          {"0.0.0.0:80", "[::]:80", true},
      {"10.0.0.1:80", "0.0.0.0:80", true},        {"10.0.0.1:80", "10.0.0.2:80", false},
      {"127.0.0.1:0", "127.0.0.1:0", false},      {"[::ffff:127.0.0.1]:80", "127.0.0.1:80", true},
      {"[0:0:0:0:0:0:0:1]:80", "[::1]:80", true},
  };
  for (const auto& c : cases) {
    const auto one = parse_address(c.one);
    const auto other = parse_address(c.other);
    ASSERT_TRUE(one.ok() && other.ok()) << c.one << " and " << c.other;
    EXPECT_EQ(collide(*one, *other), c.collide) << c.one << " and " << c.other;
    EXPECT_EQ(collide(*other, *one), c.collide) << c.other << " and " << c.one;
  }
}

TEST(Reaches, TellsWhetherAConnectionMayEndAtTheListener) {
  const struct {
    const char* host;
    const char* listener;
    bool reaches;
  } cases[] = {
      {"127.0.0.1", "127.0.0.1", true}, {"127.0.0.1", "127.0.0.2", false}, {"127.0.0.1", "::1", false},
      {"localhost", "127.0.0.1", true}, {"localhost", "::1", true},        {"127.0.0.1", "0.0.0.0", true},
      {"127.0.0.1", "::", true},        {"::1", "0.0.0.0", false},         {"0.0.0.0", "127.0.0.1", true},
      {"10.0.0.1", "10.0.0.1", true},   {"10.0.0.1", "0.0.0.0", false},    {"api.example", "127.0.0.1", false},
  };
  for (const auto& c : cases) EXPECT_EQ(reaches(c.host, {c.listener, 80}), c.reaches) << c.host << " to " << c.listener;
}

TEST(Upstream, HasTheDefaultPortOfItsScheme) {
  const auto plain = parse_upstream("http://api.internal");
  ASSERT_TRUE(plain.ok());
  EXPECT_FALSE(plain->tls);
  EXPECT_EQ(plain->host, "api.internal");
  EXPECT_EQ(plain->port, 80);
  EXPECT_EQ(plain->authority, "api.internal");

  const auto secure = parse_upstream("HTTPS://api.internal/");
  ASSERT_TRUE(secure.ok());
  EXPECT_TRUE(secure->tls);
  EXPECT_EQ(secure->port, 443);
  EXPECT_EQ(secure->authority, "api.internal");
}

TEST(Upstream, NamesAnotherPortInItsAuthority) {
  EXPECT_EQ(parse_upstream("http://127.0.0.1:9090")->authority, "127.0.0.1:9090");
  EXPECT_EQ(parse_upstream("https://[::1]:8443")->authority, "[::1]:8443");
  EXPECT_EQ(parse_upstream("https://[::1]:8443")->host, "::1");
  EXPECT_EQ(parse_upstream("https://a:443")->authority, "a");
  EXPECT_EQ(parse_upstream("http://a:443")->authority, "a:443");
}

TEST(Upstream, RefusesWhatIsNotOneAndSaysWhy) {
  const struct {
    const char* text;
    const char* why;
  } cases[] = {
      {"127.0.0.1:9090", "begins with http:// or https://"},
      {"ftp://a", "begins with http:// or https://"},
      {"http://", "expected HOST:PORT"},
      {"http://:80", "expected HOST:PORT"},
      {"http://a:0", "from 1 to 65535"},
      {"http://a:99999", "up to 65535"},
      {"http://a/v1", "expected no path and no query"},
      {"http://a?x=1", "expected no path and no query"},
      {"http://a#x", "expected no fragment"},
      {"http://user:pw@a", "expected no user and no password"},
      {"http://a b", "visible ASCII"},
      {"http://a\r\nX: y", "visible ASCII"},
      {"http://[::1", "expected HOST:PORT or [IPV6]:PORT"},
      {"http://[xyz]", "expected a name, an IPv4 address or an IPv6 address"},
  };
  for (const auto& c : cases) {
    const auto url = parse_upstream(c.text);
    ASSERT_FALSE(url.ok()) << c.text;
    EXPECT_THAT(url.fault().message, HasSubstr(c.why)) << c.text;
  }
}

} // namespace
} // namespace oncekey
