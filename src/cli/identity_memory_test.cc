#include "cli/identity_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace oncekey {
namespace {

using testing::HasSubstr;

IdentityRules rules_of(const std::string& identity) { return {{"/*", {"POST"}, PathCase::exact, identity}}; }
const IdentityRules kOld = rules_of("scope=a");
const IdentityRules kNew = rules_of("scope=b");

Time at(int minutes) { return Time(std::chrono::minutes(minutes)); }

std::string written(const Result<IdentityVerdict>& verdict) {
  EXPECT_TRUE(verdict.ok()) << (verdict.ok() ? "" : verdict.fault().message);
  EXPECT_TRUE(verdict.ok() && verdict->write.has_value());
  return verdict.ok() && verdict->write ? *verdict->write : std::string();
}

constexpr auto kRefused = IdentityChange::refused;
constexpr auto kAccepted = IdentityChange::accepted;
constexpr auto kAlone = Sharing::one_gateway;
constexpr auto kShared = Sharing::many_gateways;

TEST(IdentityMemory, TheFirstStartWritesTheRulesAndTheNextFindsThem) {
  const std::string note = written(judge_identity("", kOld, kRefused, kAlone, at(0)));
  const auto again = judge_identity(note, kOld, kRefused, kAlone, at(1));
  ASSERT_TRUE(again.ok());
  EXPECT_FALSE(again->write.has_value());
}

TEST(IdentityMemory, OtherRulesNeedToBeAccepted) {
  const std::string note = written(judge_identity("", kOld, kRefused, kAlone, at(0)));
  const auto refused = judge_identity(note, kNew, kRefused, kAlone, at(1));
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.fault().message, HasSubstr("scope was a and is b"));
  EXPECT_THAT(refused.fault().message, HasSubstr("--accept-identity-change"));
  const std::string accepted = written(judge_identity(note, kNew, kAccepted, kAlone, at(1)));
  EXPECT_TRUE(judge_identity(accepted, kNew, kRefused, kAlone, at(2)).ok());
  EXPECT_FALSE(judge_identity(accepted, kOld, kRefused, kAlone, at(2)).ok()) << "back again forgets as much";
}

TEST(IdentityMemory, GatewaysThatAreBeingReplacedMayStartAgainForAnHour) {
  const std::string old_note = written(judge_identity("", kOld, kRefused, kShared, at(0)));
  const std::string note = written(judge_identity(old_note, kNew, kAccepted, kShared, at(100)));
  const auto old_again = judge_identity(note, kOld, kRefused, kShared, at(159));
  ASSERT_TRUE(old_again.ok()) << old_again.fault().message;
  EXPECT_TRUE(old_again->older);
  EXPECT_FALSE(old_again->write.has_value()) << "or the gateways would fight over it";
  EXPECT_FALSE(judge_identity(note, kOld, kRefused, kShared, at(161)).ok());
  EXPECT_FALSE(judge_identity(note, rules_of("scope=c"), kRefused, kShared, at(101)).ok());
}

TEST(IdentityMemory, WhatCannotBeReadIsNotOverwrittenUnasked) {
  EXPECT_FALSE(judge_identity("nonsense", kOld, kRefused, kAlone, at(0)).ok());
  EXPECT_THAT(written(judge_identity("nonsense", kOld, kAccepted, kAlone, at(0))), HasSubstr("scope=a"));
}

TEST(IdentityMemory, ManyChangesDoNotMakeItGrow) {
  std::string note;
  std::size_t longest = 0;
  for (int i = 0; i < 20; ++i) {
    note = written(judge_identity(note, rules_of("scope=" + std::to_string(i % 10)), kAccepted, kShared, at(i)));
    longest = std::max(longest, note.size());
  }
  EXPECT_LT(longest, 400u);
}

} // namespace
} // namespace oncekey
