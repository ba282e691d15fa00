#include "workers/http_post.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

TEST(PostUrl, HasItsParts) {
  const auto plain = parse_post_url("http://mailer.internal/jobs?a=b#c");
  ASSERT_TRUE(plain.ok());
  EXPECT_FALSE(plain->tls);
  EXPECT_EQ(plain->host, "mailer.internal");
  EXPECT_EQ(plain->port, "80");
  EXPECT_EQ(plain->target, "/jobs?a=b");
  const auto tls = parse_post_url("https://[::1]:8443?x");
  ASSERT_TRUE(tls.ok());
  EXPECT_TRUE(tls->tls);
  EXPECT_EQ(tls->host, "::1");
  EXPECT_EQ(tls->port, "8443");
  EXPECT_EQ(tls->target, "/?x");
}

TEST(PostUrl, IsRefusedWithAReason) {
  for (const char* const url : {"", "mailer", "ftp://a/", "http://", "http://:80/", "http://a:/", "http://u:p@a/",
                                "http://a/b c", "http://a/\r\nX: 1"}) {
    EXPECT_FALSE(parse_post_url(url).ok()) << url;
  }
}

} // namespace
} // namespace oncekey
