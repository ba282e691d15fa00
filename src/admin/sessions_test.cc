#include "admin/sessions.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

constexpr OperatorSessions::Moment kLogin{std::chrono::hours(5)};
const Login kAnOperator{AdminRole::operate, Login::Proof::token, "the token"};

TEST(OperatorSessions, ASessionIsFoundByItsSecretAlone) {
  OperatorSessions sessions;
  const std::string secret = sessions.begin(kAnOperator, kLogin);
  EXPECT_EQ(secret.size(), 64u);
  const OperatorSessions::Session* const session = sessions.find(secret, kLogin);
  ASSERT_NE(session, nullptr);
  EXPECT_EQ(session->login.role, AdminRole::operate);
  EXPECT_EQ(session->csrf.size(), 64u);
  EXPECT_NE(session->csrf, secret);
  EXPECT_EQ(sessions.find(session->csrf, kLogin), nullptr);
  EXPECT_EQ(sessions.find("", kLogin), nullptr);
}

TEST(OperatorSessions, TwoSessionsHaveNothingInCommon) {
  OperatorSessions sessions;
  const std::string first = sessions.begin(kAnOperator, kLogin);
  const std::string second = sessions.begin(kAnOperator, kLogin);
  EXPECT_NE(first, second);
  EXPECT_NE(sessions.find(first, kLogin)->csrf, sessions.find(second, kLogin)->csrf);
  sessions.end(first);
  EXPECT_EQ(sessions.find(first, kLogin), nullptr);
  EXPECT_NE(sessions.find(second, kLogin), nullptr);
}

TEST(OperatorSessions, OneThatIsNotUsedEnds) {
  OperatorSessions sessions;
  const std::string secret = sessions.begin(kAnOperator, kLogin);
  EXPECT_NE(sessions.find(secret, kLogin + OperatorSessions::kIdle - std::chrono::seconds(1)), nullptr);
  EXPECT_EQ(sessions.find(secret, kLogin + OperatorSessions::kIdle), nullptr);
  EXPECT_EQ(sessions.size(), 0u);
}

TEST(OperatorSessions, UseKeepsItAliveUpToItsLongestTime) {
  OperatorSessions sessions;
  const std::string secret = sessions.begin(kAnOperator, kLogin);
  OperatorSessions::Moment now = kLogin;
  for (; now < kLogin + OperatorSessions::kLongest; now += std::chrono::minutes(20)) {
    ASSERT_NE(sessions.find(secret, now), nullptr);
    sessions.touch(secret, now);
  }
  EXPECT_EQ(sessions.find(secret, kLogin + OperatorSessions::kLongest), nullptr);
}

TEST(OperatorSessions, BeyondTheLimitTheOneThatWasIdleLongestEnds) {
  OperatorSessions sessions;
  const std::string idle = sessions.begin(kAnOperator, kLogin);
  const std::string used = sessions.begin(kAnOperator, kLogin);
  sessions.touch(used, kLogin + std::chrono::seconds(9));
  for (std::size_t i = 2; i <= OperatorSessions::kMost; ++i)
    sessions.begin(kAnOperator, kLogin + std::chrono::seconds(1));
  EXPECT_EQ(sessions.size(), OperatorSessions::kMost);
  EXPECT_EQ(sessions.find(idle, kLogin), nullptr);
  EXPECT_NE(sessions.find(used, kLogin), nullptr);
}

TEST(LoginCodes, ACodeLogsInOnce) {
  LoginCodes codes;
  const std::string code = codes.make(kAnOperator, kLogin);
  EXPECT_FALSE(codes.take("00000000000000000000000000000000", kLogin));
  const std::optional<Login> login = codes.take(code, kLogin);
  ASSERT_TRUE(login);
  EXPECT_EQ(login->basis, "the token");
  EXPECT_FALSE(codes.take(code, kLogin));
}

TEST(LoginCodes, ACodeIsGoodForAMinute) {
  LoginCodes codes;
  const std::string early = codes.make(kAnOperator, kLogin);
  const std::string late = codes.make(kAnOperator, kLogin);
  EXPECT_TRUE(codes.take(early, kLogin + LoginCodes::kValid - std::chrono::milliseconds(1)));
  EXPECT_FALSE(codes.take(late, kLogin + LoginCodes::kValid));
  EXPECT_EQ(codes.size(), 0u);
}

TEST(LoginCodes, BeyondTheLimitTheOldestIsForgotten) {
  LoginCodes codes;
  const std::string oldest = codes.make(kAnOperator, kLogin);
  for (std::size_t i = 1; i <= LoginCodes::kMost; ++i) codes.make(kAnOperator, kLogin + std::chrono::seconds(1));
  EXPECT_EQ(codes.size(), LoginCodes::kMost);
  EXPECT_FALSE(codes.take(oldest, kLogin));
}

TEST(Login, SaysWhoActed) {
  EXPECT_EQ(kAnOperator.name(), "token operator");
  EXPECT_EQ((Login{AdminRole::read, Login::Proof::token, "x"}).name(), "token read");
  EXPECT_EQ((Login{AdminRole::read, Login::Proof::certificate, "CN=alice"}).name(), "certificate CN=alice");
}

} // namespace
} // namespace oncekey
