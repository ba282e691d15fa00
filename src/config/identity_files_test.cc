#include "config/identity_files.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

TEST(AccountsFile, MapsCredentialsToAccounts) {
  const auto accounts = parse_accounts(
      "# two keys\n\"sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\" = \"acme\"\n"
      "sk_live_new = \"acme\"\n",
      "a.toml");
  ASSERT_TRUE(accounts.ok()) << accounts.fault().message;
  EXPECT_EQ(accounts->size(), 2u);
  ASSERT_NE(accounts->of("test"), nullptr);
  EXPECT_EQ(*accounts->of("sk_live_new"), "acme");
}

TEST(AccountsFile, AMistakeIsNamedByItsLineAndNeverByTheCredential) {
  for (const char* text : {"\"fine\" = \"a\"\n\"secret\" = 7", "\"fine\" = \"a\"\nsecret.x = \"a\"",
                           "\"fine\" = \"a\"\n\"secret\" = \"\"", "\"fine\" = \"a\"\n\"sha256:5ec3e7\" = \"a\""}) {
    const auto accounts = parse_accounts(text, "a.toml");
    ASSERT_FALSE(accounts.ok()) << text;
    EXPECT_EQ(accounts.fault().message.find("a.toml:2: "), 0u) << accounts.fault().message;
    EXPECT_EQ(accounts.fault().message.find("secret"), std::string::npos) << accounts.fault().message;
  }
  EXPECT_FALSE(parse_accounts("\"a\" = \"b\"\n\"a\" = \"c\"", "a.toml").ok());
}

} // namespace
} // namespace oncekey
