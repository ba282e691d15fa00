#include "config/identity_rules.h"
#include "support/parsed_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace oncekey {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

IdentityRules rules_in(const std::string& routes) {
  const auto config = parse_config("upstream = \"http://127.0.0.1:9090\"\n" + routes, "test.toml");
  EXPECT_TRUE(config.ok()) << (config.ok() ? "" : config.fault().message);
  return config.ok() ? identity_rules_of(*config) : IdentityRules{};
}

std::string route_table(const std::string& path, const std::string& settings = "") {
  return "[[route]]\npath = \"" + path + "\"\n" + settings + "\n";
}

const std::string kByTenant = "scope = \"header:X-Tenant\"";

TEST(IdentityRules, WhatDoesNotChangeTheIdentityLosesNothing) {
  const IdentityRules before = rules_in(route_table("/v1/*"));
  EXPECT_THAT(lost_identities(before, before), IsEmpty());
  EXPECT_THAT(
      lost_identities(before, rules_in(route_table("/v1/*", "lease = \"5s\"\nkey = \"required\"\nkept = \"200\""))),
      IsEmpty());
  EXPECT_THAT(lost_identities(before, rules_in(route_table("/v1/*", "scope = \"header:authorization\""))), IsEmpty())
      << "header names compare without case";
}

TEST(IdentityRules, EachPartOfTheIdentityCounts) {
  const IdentityRules before = rules_in(route_table("/v1/*"));
  for (const char* change :
       {"scope = \"header:X-Tenant\"", "scope = [\"header:Authorization\", \"host\"]", "identity = \"key\"",
        "key_from = \"header:X-Key\"", "key_from = [\"header:Idempotency-Key\", \"form:key\"]", "key_syntax = \"raw\"",
        "ignore_host = true", "path_case = \"ignore\"", "accounts = \"file:accounts.toml\"", "mode = \"observe\"",
        "policy = \"stripe-v1\"", "methods = [\"POST\"]"}) {
    EXPECT_THAT(lost_identities(before, rules_in(route_table("/v1/*", change))), testing::Not(IsEmpty())) << change;
  }
  EXPECT_THAT(lost_identities(before, rules_in(route_table("/v1/*", "methods = [\"POST\"]"))),
              ElementsAre("route /v1/* (PATCH): no route has all of its requests any more"));
  const std::string by_fingerprint = "key_from = \"fingerprint\"\nwindow = \"1h\"\n";
  EXPECT_THAT(lost_identities(rules_in(route_table("/*", by_fingerprint)),
                              rules_in(route_table("/*", by_fingerprint + "fingerprint = \"canonical\""))),
              ElementsAre(HasSubstr("fingerprint was bytes and is canonical")));
}

TEST(IdentityRules, SayWhatWasAndWhatIs) {
  EXPECT_THAT(lost_identities(rules_in(route_table("/v1/*")), rules_in(route_table("/v1/*", kByTenant))),
              ElementsAre("route /v1/* (PATCH,POST): scope was header:authorization and is header:x-tenant"));
  EXPECT_THAT(lost_identities(rules_in(route_table("/v1/*")), rules_in(route_table("/v2/*"))),
              ElementsAre("route /v1/* (PATCH,POST): no route has all of its requests any more"));
  EXPECT_THAT(lost_identities(rules_in(route_table("/v1/*")), rules_in(route_table("/v1/*", "mode = \"observe\""))),
              ElementsAre("route /v1/* (PATCH,POST): mode is \"observe\" now, which keeps nothing"));
}

TEST(IdentityRules, ARouteMayBecomeWiderAndNewOnesMayComeBesideIt) {
  const IdentityRules before = rules_in(route_table("/v1/orders"));
  EXPECT_THAT(lost_identities(before, rules_in(route_table("/v1/*"))), IsEmpty());
  EXPECT_THAT(lost_identities(before, rules_in(route_table("/v2/*", kByTenant) + route_table("/v1/orders"))),
              IsEmpty());
  EXPECT_THAT(lost_identities(before, rules_in(route_table("/v1/orders") + route_table("/*", kByTenant))), IsEmpty());
}

TEST(IdentityRules, ANarrowerRouteInFrontCountsByWhatItTakesAway) {
  const IdentityRules before = rules_in(route_table("/v1/*"));
  EXPECT_THAT(lost_identities(before, rules_in(route_table("/v1/orders", "wait = \"1s\"") + route_table("/v1/*"))),
              IsEmpty());
  EXPECT_THAT(lost_identities(before, rules_in(route_table("/v1/orders", kByTenant) + route_table("/v1/*"))),
              ElementsAre(HasSubstr("route /v1/orders takes requests of it, and there scope was")));
  EXPECT_THAT(lost_identities(before, rules_in(route_table("/*/orders", kByTenant) + route_table("/v1/*"))),
              testing::SizeIs(1))
      << "/v1/orders is matched by both";
  EXPECT_THAT(lost_identities(before, rules_in(route_table("/v1", kByTenant) + route_table("/v1/*"))),
              testing::SizeIs(1))
      << "/v1 is a path of /v1/*";
}

TEST(IdentityRules, AFolderIsAPathOfItsGlob) {
  const IdentityRules before = rules_in(route_table("/v1/*"));
  EXPECT_EQ(rules_in(route_table("/v1/**")), before) << "two stars are one";
  EXPECT_THAT(lost_identities(before, rules_in(route_table("/v1/*/*"))),
              ElementsAre("route /v1/* (PATCH,POST): no route has all of its requests any more"))
      << "/v1 is not among them";
}

TEST(IdentityRules, WhatAnEarlierRouteHadTakenIsNotMissed) {
  const std::string both = route_table("/v1/orders", kByTenant) + route_table("/v1/*");
  EXPECT_THAT(lost_identities(rules_in(both), rules_in(both)), IsEmpty());
  EXPECT_THAT(lost_identities(rules_in(both), rules_in(route_table("/v1/*"))),
              ElementsAre(HasSubstr("route /v1/orders (PATCH,POST): route /v1/* takes requests of it")));
}

TEST(IdentityRules, WhatIsOnlyObservedHasNothingToLose) {
  EXPECT_THAT(
      lost_identities(rules_in(route_table("/*", "mode = \"observe\"")), rules_in(route_table("/*", kByTenant))),
      IsEmpty());
}

TEST(IdentityRules, AreTheSameAfterBeingWrittenDown) {
  IdentityBasis before;
  before.rules = rules_in(route_table("/v1/orders", kByTenant) + route_table("/*", "mode = \"observe\""));
  before.accounts = {{"/a file,\t100%\n", {"00", "01"}}, {"empty", {}}};
  const auto read = decode_identity_basis(encode(before));
  ASSERT_TRUE(read.ok()) << read.fault().message;
  EXPECT_EQ(*read, before);
  EXPECT_FALSE(decode_identity_basis("/v1\tPOST\n").ok());
  EXPECT_FALSE(decode_identity_basis("/v1\tPOST\texact\tscope=x").ok());
  EXPECT_FALSE(decode_identity_basis("accounts\tfile\n").ok());
  EXPECT_FALSE(decode_identity_basis("/v%1\tPOST\texact\tscope=x\n").ok());
}

TEST(IdentityRules, AnotherAccountsFileIsAnotherIdentity) {
  const auto with = [](const std::string& file) {
    return rules_in(route_table("/*", "scope = \"header:X-Api-Key\"\naccounts = \"file:" + file + "\""));
  };
  EXPECT_THAT(lost_identities(with("a.toml"), with("a.toml")), IsEmpty());
  EXPECT_THAT(lost_identities(with("a.toml"), with("b.toml")),
              ElementsAre("route /* (PATCH,POST): accounts was file:a.toml and is file:b.toml"));
}

TEST(IdentityRules, AnAccountsFileMayWinEntriesAndLoseNone) {
  const auto basis = [](std::vector<std::string> entries) {
    return IdentityBasis{{}, {{"a.toml", std::move(entries)}}};
  };
  EXPECT_THAT(lost_identities(basis({"1", "2"}), basis({"0", "1", "2"})), IsEmpty());
  EXPECT_THAT(added_accounts(basis({"1", "2"}).accounts, basis({"0", "1", "2"}).accounts),
              ElementsAre(testing::Pair("a.toml", 1u)));
  EXPECT_THAT(lost_identities(basis({"1", "2"}), basis({"1", "3"})),
              ElementsAre("accounts a.toml: 1 credential missing or with another account than before"));
}

TEST(IdentityRules, ListsThatShowTheSameWhenJoinedAreToldApart) {
  const auto with = [](const std::string& scope) { return rules_in(route_table("/*", "scope = " + scope)); };
  EXPECT_THAT(lost_identities(with("[\"jwt:a\", \"cookie:b\"]\njwt_unverified = true"),
                              with("\"jwt:a,cookie:b\"\njwt_unverified = true")),
              testing::SizeIs(1));
  const std::string by_fingerprint = "key_from = \"fingerprint\"\nwindow = \"1h\"\nfingerprint = \"canonical\"\n";
  EXPECT_THAT(lost_identities(rules_in(route_table("/*", by_fingerprint + "fingerprint_ignore = [\"/a\", \"/b\"]")),
                              rules_in(route_table("/*", by_fingerprint + "fingerprint_ignore = [\"/a,/b\"]"))),
              testing::SizeIs(1));
}

} // namespace
} // namespace oncekey
