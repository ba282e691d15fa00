#include "core/accounts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace oncekey {
namespace {

TEST(Accounts, ACredentialIsFoundPlainAndHashed) {
  Accounts accounts;
  ASSERT_TRUE(accounts.add("sk_live_old", "acme").ok());
  // printf %s sk_live_new | sha256sum
  ASSERT_TRUE(accounts.add("sha256:2377E74420DA8667A5ADFBC2C105BFC3620D01FA44E97D3438AEE84D01FD08E2", "acme").ok());
  ASSERT_NE(accounts.of("sk_live_old"), nullptr);
  EXPECT_EQ(*accounts.of("sk_live_old"), "acme");
  ASSERT_NE(accounts.of("sk_live_new"), nullptr);
  EXPECT_EQ(*accounts.of("sk_live_new"), "acme");
  EXPECT_EQ(accounts.of("sk_live_other"), nullptr);
  EXPECT_EQ(accounts.of("sha256:"), nullptr);
}

TEST(Accounts, AHashIsThatOfTheCredential) {
  Accounts accounts;
  ASSERT_TRUE(accounts.add("sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", "acme").ok());
  ASSERT_NE(accounts.of("test"), nullptr);
  EXPECT_FALSE(accounts.add("test", "other").ok()) << "the same credential, plain";
}

TEST(Accounts, WhatCannotBeMeantIsRefused) {
  Accounts accounts;
  EXPECT_FALSE(accounts.add("", "acme").ok());
  EXPECT_FALSE(accounts.add("key", "").ok());
  EXPECT_FALSE(accounts.add("sha256:abcd", "acme").ok());
  EXPECT_FALSE(accounts.add("sha256:" + std::string(64, 'x'), "acme").ok());
}

TEST(Accounts, ALaterFileKeepsWhatAnEarlierOneHad) {
  Accounts older, newer, moved;
  ASSERT_TRUE(older.add("a", "acme").ok());
  ASSERT_TRUE(newer.add("a", "acme").ok());
  ASSERT_TRUE(newer.add("b", "acme").ok());
  ASSERT_TRUE(moved.add("a", "umbrella").ok());
  EXPECT_TRUE(newer.keeps(older));
  EXPECT_FALSE(older.keeps(newer));
  EXPECT_FALSE(moved.keeps(older));
  ASSERT_EQ(newer.digests().size(), 2u);
  EXPECT_LT(newer.digests()[0], newer.digests()[1]);
  EXPECT_THAT(newer.digests(), testing::Contains(older.digests().front()));
  EXPECT_NE(moved.digests(), older.digests());
}

TEST(Accounts, TheSchemeIsNoPartOfACredential) {
  EXPECT_EQ(credential_in("Authorization", "Bearer  key"), "key");
  EXPECT_EQ(credential_in("authorization", "key"), "key");
  EXPECT_EQ(credential_in("X-Api-Key", "a b"), "a b");
}

} // namespace
} // namespace oncekey
