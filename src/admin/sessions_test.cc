#include "admin/sessions.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

constexpr OperatorSessions::Moment kNow{std::chrono::hours(5)};
const Login kOperator{AdminRole::operate, Login::Proof::token, "the token"};

TEST(OperatorSessions, ASessionIsFoundByItsSecretAlone) {
  OperatorSessions sessions;
  const std::string secret = sessions.begin(kOperator, kNow);
  EXPECT_EQ(secret.size(), 64u);
  const OperatorSessions::Session* const session = sessions.find(secret, kNow);
  ASSERT_NE(session, nullptr);
  EXPECT_EQ(session->login.role, AdminRole::operate);
  EXPECT_EQ(session->csrf.size(), 64u);
  EXPECT_NE(session->csrf, secret);
  EXPECT_EQ(sessions.find(session->csrf, kNow), nullptr);
  EXPECT_EQ(sessions.find("", kNow), nullptr);
}

TEST(OperatorSessions, TwoSessionsHaveNothingInCommon) {
  OperatorSessions sessions;
  const std::string first = sessions.begin(kOperator, kNow);
  const std::string second = sessions.begin(kOperator, kNow);
  EXPECT_NE(first, second);
  EXPECT_NE(sessions.find(first, kNow)->csrf, sessions.find(second, kNow)->csrf);
  sessions.end(first);
  EXPECT_EQ(sessions.find(first, kNow), nullptr);
  EXPECT_NE(sessions.find(second, kNow), nullptr);
}

TEST(OperatorSessions, OneThatIsNotUsedEnds) {
  OperatorSessions sessions;
  const std::string secret = sessions.begin(kOperator, kNow);
  EXPECT_NE(sessions.find(secret, kNow + OperatorSessions::kIdle - std::chrono::seconds(1)), nullptr);
  EXPECT_EQ(sessions.find(secret, kNow + OperatorSessions::kIdle), nullptr);
  EXPECT_EQ(sessions.size(), 0u);
}

TEST(OperatorSessions, UseKeepsItAliveUpToItsLongestTime) {
  OperatorSessions sessions;
  const std::string secret = sessions.begin(kOperator, kNow);
  OperatorSessions::Moment now = kNow;
  for (; now < kNow + OperatorSessions::kLongest; now += std::chrono::minutes(20)) {
    ASSERT_NE(sessions.find(secret, now), nullptr);
    sessions.touch(secret, now);
  }
  EXPECT_EQ(sessions.find(secret, kNow + OperatorSessions::kLongest), nullptr);
}

TEST(OperatorSessions, BeyondTheLimitTheOneThatWasIdleLongestEnds) {
  OperatorSessions sessions;
  const std::string idle = sessions.begin(kOperator, kNow);
  const std::string used = sessions.begin(kOperator, kNow);
  sessions.touch(used, kNow + std::chrono::seconds(9));
  for (std::size_t i = 2; i <= OperatorSessions::kMost; ++i) sessions.begin(kOperator, kNow + std::chrono::seconds(1));
  EXPECT_EQ(sessions.size(), OperatorSessions::kMost);
  EXPECT_EQ(sessions.find(idle, kNow), nullptr);
  EXPECT_NE(sessions.find(used, kNow), nullptr);
}

TEST(LoginCodes, ACodeLogsInOnce) {
  LoginCodes codes;
  const std::string code = codes.make(kOperator, kNow);
  EXPECT_FALSE(codes.take("00000000000000000000000000000000", kNow));
  const std::optional<Login> login = codes.take(code, kNow);
  ASSERT_TRUE(login);
  EXPECT_EQ(login->basis, "the token");
  EXPECT_FALSE(codes.take(code, kNow));
}

TEST(LoginCodes, ACodeIsGoodForAMinute) {
  LoginCodes codes;
  const std::string early = codes.make(kOperator, kNow);
  const std::string late = codes.make(kOperator, kNow);
  EXPECT_TRUE(codes.take(early, kNow + LoginCodes::kValid - std::chrono::milliseconds(1)));
  EXPECT_FALSE(codes.take(late, kNow + LoginCodes::kValid));
  EXPECT_EQ(codes.size(), 0u);
}

TEST(LoginCodes, BeyondTheLimitTheOldestIsForgotten) {
  LoginCodes codes;
  const std::string oldest = codes.make(kOperator, kNow);
  for (std::size_t i = 1; i <= LoginCodes::kMost; ++i) codes.make(kOperator, kNow + std::chrono::seconds(1));
  EXPECT_EQ(codes.size(), LoginCodes::kMost);
  EXPECT_FALSE(codes.take(oldest, kNow));
}

TEST(Login, SaysWhoActed) {
  EXPECT_EQ(kOperator.name(), "token operator");
  EXPECT_EQ((Login{AdminRole::read, Login::Proof::token, "x"}).name(), "token read");
  EXPECT_EQ((Login{AdminRole::read, Login::Proof::certificate, "CN=alice"}).name(), "certificate CN=alice");
}

} // namespace
} // namespace oncekey
