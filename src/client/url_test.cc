#include "client/url.h"

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
}

} // namespace
} // namespace oncekey
