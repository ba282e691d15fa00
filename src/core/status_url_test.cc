#include "core/status_url.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

TEST(StatusUrls, NameAnOperationAndNothingElseHasTheSame) {
  const std::string url = status_url("POST", "/orders", "k 1");
  EXPECT_EQ(url, status_url("POST", "/orders", "k 1"));
  for (const std::string& other : {status_url("PATCH", "/orders", "k 1"), status_url("POST", "/orders/k", "1"),
                                   status_url("POST", "/orders", "k 2")}) {
    EXPECT_NE(url, other);
  }
  const auto operation = parse_status_url(url);
  ASSERT_TRUE(operation);
  EXPECT_EQ(operation->method, "POST");
  EXPECT_EQ(operation->path, "/orders");
  EXPECT_EQ(operation->key, "k 1");
}

TEST(StatusUrls, NeedNoEscapingInAUrl) {
  for (int length = 1; length < 20; ++length) {
    const std::string url = status_url("POST", "/>>>???", std::string(static_cast<std::size_t>(length), '~'));
    EXPECT_EQ(url.find_first_of("+=%?#"), std::string::npos) << url;
    EXPECT_EQ(url.find('/', kStatusPrefix.size()), std::string::npos) << url;
    EXPECT_TRUE(parse_status_url(url)) << url;
  }
}

TEST(StatusUrls, ThatWeDidNotMakeAreRefused) {
  const std::string good = status_url("POST", "/orders", "key-1");
  EXPECT_FALSE(parse_status_url("/orders"));
  EXPECT_FALSE(parse_status_url(kStatusPrefix));
  EXPECT_FALSE(parse_status_url(good + "="));
  EXPECT_FALSE(parse_status_url(good + "%20"));
  EXPECT_FALSE(parse_status_url(std::string(kStatusPrefix) + "UE9TVA")) << "only a method";
  EXPECT_FALSE(parse_status_url(status_url("POST", "/orders", ""))) << "no key";
}

TEST(Preferences, ForALaterAnswerAreFoundAmongOthersAndTakenOut) {
  Headers headers;
  headers.add("Prefer", "return=minimal, Respond-Async; x=1");
  headers.add("prefer", "wait=10");
  EXPECT_TRUE(prefers_async(headers));
  EXPECT_EQ(other_preferences(headers), "return=minimal, wait=10");
  Headers none;
  none.add("Prefer", "respond-asynchronously, handling=respond-async");
  EXPECT_FALSE(prefers_async(none));
  EXPECT_FALSE(prefers_async(Headers()));
}

TEST(StatusUrls, WithALineBreakAreRefused) {
  for (const char* key : {"k\r\nSet-Cookie: a=b", "k\n", "\x7f", "a\tb"}) {
    EXPECT_FALSE(parse_status_url(status_url("POST", "/orders", key))) << key;
  }
  EXPECT_TRUE(parse_status_url(status_url("POST", "/orders", "with spaces and \"quotes\"")));
}

} // namespace
} // namespace oncekey
