#include "base/url.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

TEST(Url, IsTakenApart) {
  const auto url = parse_url("https://api.example.com/v1/charges?expand=x");
  ASSERT_TRUE(url.ok());
  EXPECT_TRUE(url->tls);
  EXPECT_EQ(url->host, "api.example.com");
  EXPECT_EQ(url->port, 443);
  EXPECT_EQ(url->authority, "api.example.com");
  EXPECT_EQ(url->target, "/v1/charges?expand=x");
  EXPECT_EQ(url->shown(), "https://api.example.com/v1/charges");
}

TEST(Url, PortsAndForms) {
  EXPECT_EQ(parse_url("http://h:8080")->authority, "h:8080");
  EXPECT_EQ(parse_url("http://h:8080")->target, "/");
  EXPECT_EQ(parse_url("http://h?q=1")->target, "/?q=1");
  EXPECT_EQ(parse_url("http://h:80/")->authority, "h");
  EXPECT_EQ(parse_url("HTTPS://h:443/")->authority, "h");
  EXPECT_EQ(parse_url("https://h:80/")->authority, "h:80");
  EXPECT_EQ(parse_url("http://[::1]:9090/x")->host, "::1");
  EXPECT_EQ(parse_url("http://[::1]:9090/x")->authority, "[::1]:9090");
  EXPECT_EQ(parse_url("http://127.0.0.1/")->host, "127.0.0.1");
}

TEST(Url, WhatHasTwoMeaningsIsRefused) {
  for (const char* text : {"",
                           "example.com",
                           "ftp://h/",
                           "http://",
                           "http:///x",
                           "http://h:0/",
                           "http://h:65536/",
                           "http://h:/",
                           "http://h:8x/",
                           "http://u@h/",
                           "http://u:p@h/",
                           "http://h/#f",
                           "http://h/a b",
                           "http://h/\xc3\xbc",
                           "http://h/\r\nX: y",
                           "http://[::1/",
                           "http://[::1]x/",
                           "http://[h]/",
                           "http://::1/",
                           "http://a:1:2/",
                           "http://h%41/",
                           "http://h.%2e/",
                           "http://.h/",
                           "http://h\\@evil/",
                           "http://h\x01/",
                           "http://-h/"}) {
    const auto url = parse_url(text);
    EXPECT_FALSE(url.ok()) << text;
  }
}

TEST(Url, ThatHoldsAPasswordIsRefusedWithAdviceAndWithoutIt) {
  const auto url = parse_url("http://me:hush@h/");
  ASSERT_FALSE(url.ok());
  EXPECT_NE(url.fault().message.find("send credentials in a header"), std::string::npos);
  EXPECT_EQ(url.fault().message.find("hush"), std::string::npos);
  // A slash in the password ends the authority: what looks like the port is the password's beginning.
  for (const char* text : {"http://me:hush/hush@h/", "http://me:hush?hush@h/", "http://me:hush@h:0/",
                           "http://h/?hush#x", "http://h/hu sh"}) {
    const auto bad = parse_url(text);
    ASSERT_FALSE(bad.ok()) << text;
    EXPECT_EQ(bad.fault().message.find("hush"), std::string::npos) << bad.fault().message;
  }
}

TEST(Url, HostsAreWrittenInLowerCase) {
  EXPECT_EQ(parse_url("http://API.Example.com:8080/Path")->authority, "api.example.com:8080");
  EXPECT_EQ(parse_url("http://API.Example.com:8080/Path")->origin(), "http://api.example.com:8080");
  EXPECT_EQ(parse_url("http://API.Example.com:8080/Path")->target, "/Path");
}

TEST(UrlParts, OfOtherSchemes) {
  const auto parts = split_url("redis+cluster://me:p@ss@a:1,b:2/3?wait=1");
  ASSERT_TRUE(parts.ok());
  EXPECT_EQ(parts->scheme, "redis+cluster");
  EXPECT_EQ(parts->userinfo, "me:p@ss");
  EXPECT_EQ(parts->hosts, "a:1,b:2");
  EXPECT_EQ(parts->target, "/3?wait=1");
  EXPECT_FALSE(split_url("redis://h")->userinfo);
  EXPECT_EQ(split_url("redis://@h")->userinfo, "");
  EXPECT_FALSE(split_url("redis:h").ok());
}

TEST(HostPort, IsANameOrAnAddressAndAPort) {
  EXPECT_EQ(parse_host_port("h")->port, std::nullopt);
  EXPECT_EQ(parse_host_port("h:0")->port, 0);
  EXPECT_EQ(parse_host_port("[::1]:65535")->host, "::1");
  EXPECT_EQ(parse_host_port("[::1]:65535")->port, 65535);
  EXPECT_TRUE(parse_host_port("[::1]")->ipv6);
  for (const char* text : {"", ":", ":80", "h:", "h:+1", "h:-1", "h:1 ", "h:65536", "[::1", "[::1]80", "[::1]:", "[]",
                           "[h]:1", "::1", "a:1:2", "h/", "a b", "[::1%eth0]:1"})
    EXPECT_FALSE(parse_host_port(text).ok()) << text;
  EXPECT_EQ(host_and_port("::1", 80), "[::1]:80");
  EXPECT_EQ(host_and_port("h", 80), "h:80");
}

TEST(Percent, EncodingIsTakenBackAndNothingElseIsDecoded) {
  const std::string every = [] {
    std::string bytes;
    for (int byte = 0; byte < 256; ++byte) bytes.push_back(static_cast<char>(byte));
    return bytes;
  }();
  EXPECT_EQ(percent_decoded(percent_encoded(every)), every);
  EXPECT_EQ(percent_encoded("a-Z_0.~/ \xc3"), "a-Z_0.~%2F%20%C3");
  EXPECT_EQ(percent_decoded("a+b%2b"), "a+b+");
  for (const char* text : {"%", "%4", "%zz", "a%4", "%4g", "%g4", "%%41"}) EXPECT_FALSE(percent_decoded(text)) << text;
}

} // namespace
} // namespace oncekey
