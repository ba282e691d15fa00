#include "store/common/kept_secret.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace oncekey {
namespace {

using testing::HasSubstr;

Secret some_secret() {
  Secret secret{};
  for (std::size_t i = 0; i < secret.size(); ++i) secret[i] = static_cast<std::uint8_t>(i * 7 + 1);
  return secret;
}

Sealer sealer_of(const std::string& lines) { return Sealer(*SealingKeys::parse(lines, "keys")); }
std::string key(int id, char digit) { return std::to_string(id) + " " + std::string(64, digit) + "\n"; }

std::string refusal(const KeptSecret& kept, const Sealer* sealer) {
  const Result<Secret> opened = KeptSecret::parse(kept.bytes())->open(sealer);
  return opened ? "" : opened.fault().message;
}

TEST(KeptSecret, ComesBackFromWhatIsStored) {
  const Sealer sealer = sealer_of(key(3, 'a'));
  for (const Sealer* each : {static_cast<const Sealer*>(nullptr), &sealer}) {
    const Result<KeptSecret> back = KeptSecret::parse(KeptSecret(some_secret(), each).bytes());
    ASSERT_TRUE(back);
    EXPECT_TRUE(back->is_of(some_secret()));
    EXPECT_EQ(*back->open(each), some_secret());
  }
}

TEST(KeptSecret, AnyChangedByteIsNoticed) {
  const Sealer sealer = sealer_of(key(3, 'a'));
  for (const Sealer* each : {static_cast<const Sealer*>(nullptr), &sealer}) {
    const std::string stored = KeptSecret(some_secret(), each).bytes();
    for (std::size_t at = 0; at < stored.size(); ++at) {
      std::string changed = stored;
      changed[at] ^= 1;
      const Result<KeptSecret> parsed = KeptSecret::parse(changed);
      EXPECT_FALSE(parsed && parsed->open(each)) << at;
    }
    EXPECT_FALSE(KeptSecret::parse(stored.substr(1)));
  }
  EXPECT_FALSE(KeptSecret::parse(""));
}

TEST(KeptSecret, IsNotToBeReadWithoutItsKey) {
  const Sealer right = sealer_of(key(3, 'a'));
  const Sealer wrong = sealer_of(key(3, 'b'));
  const Sealer other = sealer_of(key(4, 'a') + key(1, 'c'));
  const KeptSecret kept(some_secret(), &right);
  const Secret secret = some_secret();
  const std::string clear(secret.begin(), secret.end());
  EXPECT_EQ(kept.bytes().find(clear.substr(0, 8)), std::string::npos);
  EXPECT_THAT(refusal(kept, nullptr), HasSubstr("encrypted with key 3: set encryption_key_file"));
  EXPECT_THAT(refusal(kept, &wrong), HasSubstr("is not the key 3 that the store is encrypted with"));
  EXPECT_THAT(refusal(kept, &other), HasSubstr("holds 4, 1: add that key"));
  EXPECT_EQ(refusal(kept, &right), "");
}

TEST(KeptSecret, IsSealedAgainWhenThereIsANewerKey) {
  const Sealer first = sealer_of(key(1, 'a'));
  const Sealer second = sealer_of(key(2, 'b') + key(1, 'a'));
  const KeptSecret clear(some_secret(), nullptr);
  const KeptSecret old(some_secret(), &first);
  const KeptSecret young(some_secret(), &second);
  EXPECT_FALSE(clear.must_be_resealed(nullptr));
  EXPECT_FALSE(old.must_be_resealed(nullptr));
  EXPECT_TRUE(clear.must_be_resealed(&first));
  EXPECT_FALSE(old.must_be_resealed(&first));
  EXPECT_TRUE(old.must_be_resealed(&second));
  EXPECT_FALSE(young.must_be_resealed(&second));
  EXPECT_FALSE(young.must_be_resealed(&first)) << "a gateway that does not have the new key yet";
}

TEST(SecretCheck, TwoSecretsHaveTwoCheckValues) {
  Secret other = some_secret();
  other[31] ^= 1;
  EXPECT_NE(secret_check(some_secret()), secret_check(other));
}

} // namespace
} // namespace oncekey
