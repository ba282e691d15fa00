#include "http/door.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

constexpr std::string_view kToken = "0123456789abcdef";

Headers with(std::initializer_list<std::string_view> authorizations) {
  Headers headers;
  headers.add("Host", "127.0.0.1:8081");
  for (const std::string_view value : authorizations) headers.add("authorization", value);
  return headers;
}

TEST(Door, TellsNoneRightWrongAndDoubledCredentialsApart) {
  EXPECT_EQ(credential_of(with({}), kToken), Credential::none);
  EXPECT_EQ(credential_of(with({"Bearer 0123456789abcdef"}), kToken), Credential::right);
  EXPECT_EQ(credential_of(with({"bearer 0123456789abcdef"}), kToken), Credential::right);
  for (const char* wrong : {"", "Bearer", "Bearer ", "Bearer 0123456789abcde", "Bearer 0123456789abcdef0",
                            "Basic 0123456789abcdef", "0123456789abcdef"}) {
    EXPECT_EQ(credential_of(with({wrong}), kToken), Credential::wrong) << wrong;
  }
  EXPECT_EQ(credential_of(with({"Bearer 0123456789abcdef", "Bearer 0123456789abcdef"}), kToken), Credential::doubled);
}

TEST(Door, AnEmptyTokenLetsNobodyIn) {
  EXPECT_EQ(credential_of(with({"Bearer "}), ""), Credential::wrong);
  EXPECT_EQ(credential_of(with({}), ""), Credential::none);
}

TEST(Door, WithAToken) {
  EXPECT_FALSE(turned_away(with({"Bearer 0123456789abcdef"}), kToken, "outbox"));
  EXPECT_EQ(turned_away(with({}), kToken, "outbox")->status, 401);
  EXPECT_EQ(turned_away(with({"Bearer wrong"}), kToken, "outbox")->status, 401);
  EXPECT_EQ(turned_away(with({"Bearer wrong", "Bearer 0123456789abcdef"}), kToken, "outbox")->status, 400);
}

TEST(Door, WithoutATokenOnlyLoopbackNamesAreAnswered) {
  EXPECT_FALSE(turned_away(with({}), "", "outbox"));
  Headers foreign;
  foreign.add("Host", "evil.example");
  EXPECT_EQ(turned_away(foreign, "", "outbox")->status, 403);
}

} // namespace
} // namespace oncekey
