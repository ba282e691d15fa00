#include "cli/identity_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace oncekey {
namespace {

using testing::HasSubstr;

IdentityBasis basis_of(const std::string& identity, AccountEntries accounts = {}) {
  return {{{"/*", {"POST"}, PathCase::exact, identity}}, std::move(accounts)};
}
const IdentityBasis kOld = basis_of("scope=a");
const IdentityBasis kNew = basis_of("scope=b");

std::string written(const Result<IdentityVerdict>& verdict) {
  EXPECT_TRUE(verdict.ok()) << (verdict.ok() ? "" : verdict.fault().message);
  EXPECT_TRUE(verdict.ok() && verdict->write.has_value());
  return verdict.ok() && verdict->write ? *verdict->write : std::string();
}

constexpr auto kRefused = IdentityChange::refused;
constexpr auto kAccepted = IdentityChange::accepted;

TEST(IdentityMemory, TheFirstStartWritesTheRulesAndTheNextFindsThem) {
  const std::string note = written(judge_identity("", kOld, kRefused));
  const auto again = judge_identity(note, kOld, kRefused);
  ASSERT_TRUE(again.ok());
  EXPECT_FALSE(again->write.has_value());
}

TEST(IdentityMemory, OtherRulesNeedToBeAcceptedAndSoDoesTheWayBack) {
  const std::string note = written(judge_identity("", kOld, kRefused));
  const auto refused = judge_identity(note, kNew, kRefused);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.fault().message, HasSubstr("scope was a and is b"));
  EXPECT_THAT(refused.fault().message, HasSubstr("--accept-identity-change"));
  const std::string accepted = written(judge_identity(note, kNew, kAccepted));
  EXPECT_TRUE(judge_identity(accepted, kNew, kRefused).ok());
  EXPECT_FALSE(judge_identity(accepted, kOld, kRefused).ok()) << "back again forgets as much";
  EXPECT_EQ(written(judge_identity(accepted, kOld, kAccepted)), note);
}

TEST(IdentityMemory, AGatewayWithoutTheNewRouteOfTheOthersIsRefused) {
  IdentityBasis more = kOld;
  more.rules.push_back({"/*", {"PUT"}, PathCase::exact, "scope=a"});
  const std::string note = written(judge_identity("", kOld, kRefused));
  const std::string added = written(judge_identity(note, more, kRefused));
  const auto refused = judge_identity(added, kOld, kRefused);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.fault().message, HasSubstr("route /* (PUT): no route has all of its requests any more"));
  EXPECT_THAT(refused.fault().message, HasSubstr("the configuration of the others"));
}

TEST(IdentityMemory, AnAccountsFileThatHasLostAnEntryNeedsToBeAccepted) {
  const IdentityBasis before = basis_of("accounts=file:a", {{"a", {"1", "2"}}});
  const IdentityBasis more = basis_of("accounts=file:a", {{"a", {"1", "2", "3"}}});
  const std::string note = written(judge_identity("", before, kRefused));
  const auto added = judge_identity(note, more, kRefused);
  const std::string next = written(added);
  EXPECT_THAT(added->added, testing::ElementsAre(testing::Pair("a", 1u)));
  const auto refused = judge_identity(next, before, kRefused);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.fault().message, HasSubstr("accounts a: 1 credential missing"));
  EXPECT_EQ(written(judge_identity(next, before, kAccepted)), note);
}

TEST(IdentityMemory, WhatCannotBeReadIsNotOverwrittenUnasked) {
  EXPECT_FALSE(judge_identity("nonsense", kOld, kRefused).ok());
  EXPECT_THAT(written(judge_identity("nonsense", kOld, kAccepted)), HasSubstr("scope=a"));
}

} // namespace
} // namespace oncekey
