#include "store/common/secret_check.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

Secret some_secret() {
  Secret secret{};
  for (std::size_t i = 0; i < secret.size(); ++i) secret[i] = static_cast<std::uint8_t>(i * 7 + 1);
  return secret;
}

TEST(SecretCheck, ASecretComesBackFromWhatIsStored) {
  const std::optional<Secret> back = checked_secret(secret_with_check(some_secret()));
  ASSERT_TRUE(back);
  EXPECT_EQ(*back, some_secret());
}

TEST(SecretCheck, AnyChangedByteIsNoticed) {
  const std::string stored = secret_with_check(some_secret());
  for (std::size_t at = 0; at < stored.size(); ++at) {
    std::string changed = stored;
    changed[at] ^= 1;
    EXPECT_FALSE(checked_secret(changed)) << at;
  }
  EXPECT_FALSE(checked_secret(stored.substr(1)));
  EXPECT_FALSE(checked_secret(""));
}

TEST(SecretCheck, TwoSecretsHaveTwoCheckValues) {
  Secret other = some_secret();
  other[31] ^= 1;
  EXPECT_NE(secret_check(some_secret()), secret_check(other));
}

} // namespace
} // namespace oncekey
