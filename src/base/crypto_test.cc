#include "base/crypto.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

namespace oncekey {
namespace {

std::string hex(const HashBytes& bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : bytes) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

// The key of RFC 4231, test case 1: HMAC pads keys with zeros, so twenty bytes 0x0b and twelve zeros are the same key.
Secret rfc_4231_key() {
  Secret secret{};
  for (std::size_t i = 0; i < 20; ++i) secret[i] = 0x0b;
  return secret;
}

std::string keyed(const Secret& secret, std::vector<std::string_view> parts) {
  return hex(KeyedHash(secret).of(parts));
}

// Expected values: Python's hmac over each part with its length in front, eight bytes, least significant first.
TEST(KeyedHash, IsHmacSha256OverPartsWithTheirLengths) {
  EXPECT_EQ(keyed(rfc_4231_key(), {"Hi There"}), "7f576cd063ed3e3615e6bf957fc801d0f4d8cf70bc1a604ab2ba1d06c8732e2e");
  EXPECT_EQ(keyed(rfc_4231_key(), {}), "999a901219f032cd497cadb5e6051e97b6a29ab297bd6ae722bd6062a2f59542");
  EXPECT_EQ(keyed(rfc_4231_key(), {"ab", "c"}), "2f673c074ec0aeb311bd6b5d5016c559d0655b606857039f3bd0a1fa42650443");
  Secret counting{};
  for (std::size_t i = 0; i < counting.size(); ++i) counting[i] = static_cast<std::uint8_t>(i);
  EXPECT_EQ(keyed(counting, {std::string(1000, 'x'), ""}),
            "b4df7494e9418ec3f4aed8c20b95d850367b9728041408963aebb4d4a3d5cf55");
}

TEST(KeyedHash, PartsAreNotJoined) {
  std::set<std::string> seen;
  for (const std::vector<std::string_view>& parts : std::vector<std::vector<std::string_view>>{
           {"abc"}, {"ab", "c"}, {"a", "bc"}, {"", "abc"}, {"abc", ""}, {}, {""}}) {
    EXPECT_TRUE(seen.insert(keyed(Secret{}, parts)).second);
  }
}

TEST(KeyedHash, EveryHashStartsAfresh) {
  const KeyedHash hash(rfc_4231_key());
  const std::vector<std::string_view> one = {"one"};
  const std::vector<std::string_view> two = {"two"};
  const std::string first = hex(hash.of(one));
  EXPECT_NE(hex(hash.of(two)), first);
  EXPECT_EQ(hex(hash.of(one)), first);
}

TEST(KeyedHash, MayBeUsedFromManyThreadsAtOnce) {
  const KeyedHash hash(rfc_4231_key());
  const std::vector<std::string_view> parts = {"Hi There"};
  const std::string expected = hex(hash.of(parts));
  std::vector<std::thread> threads;
  std::vector<int> wrong(8, 0);
  for (std::size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) wrong[t] += hex(hash.of(parts)) != expected;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(8, 0));
}

// FIPS 180-4's examples.
TEST(Sha256, OfKnownTexts) {
  const auto sha = [](std::string_view text) {
    Sha256 hash;
    hash.update(text);
    return hex(hash.finish());
  };
  EXPECT_EQ(sha(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha(std::string(1'000'000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesAreOneText) {
  Sha256 hash;
  hash.update("a");
  hash.update("");
  hash.update("bc");
  EXPECT_EQ(hex(hash.finish()), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Random, GivesOtherBytesEachTime) {
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(seen.insert(random_u64()).second);
  std::array<std::uint8_t, 32> bytes{};
  fill_random(bytes);
  EXPECT_NE(bytes, (std::array<std::uint8_t, 32>{}));
}

// RFC 4648, section 10, and the two characters in which the URL alphabet differs.
TEST(Base64Url, Decodes) {
  const auto decoded = [](std::string_view text) {
    std::string out = "left over";
    return base64url_decode(text, out) ? out : "<none>";
  };
  EXPECT_EQ(decoded(""), "");
  EXPECT_EQ(decoded("Zg"), "f");
  EXPECT_EQ(decoded("Zg=="), "f");
  EXPECT_EQ(decoded("Zm8"), "fo");
  EXPECT_EQ(decoded("Zm9v"), "foo");
  EXPECT_EQ(decoded("Zm9vYg"), "foob");
  EXPECT_EQ(decoded("Zm9vYmE"), "fooba");
  EXPECT_EQ(decoded("Zm9vYmFy"), "foobar");
  EXPECT_EQ(decoded("-_-_"), "\xfb\xff\xbf");
  EXPECT_EQ(decoded("AAAA"), std::string(3, '\0'));
  for (const std::string_view text : {"Z", "Zm9vY", "Zm9+", "Zm9/", "Zm 9v", "Zm9v\n", "Z=m9", "Zm9\xc3"}) {
    EXPECT_EQ(decoded(text), "<none>") << text;
  }
}

TEST(ConstantTime, ComparesLikeEquals) {
  EXPECT_TRUE(equal_in_constant_time("", ""));
  EXPECT_TRUE(equal_in_constant_time("secret", "secret"));
  EXPECT_FALSE(equal_in_constant_time("secret", "secreT"));
  EXPECT_FALSE(equal_in_constant_time("secret", "secre"));
  EXPECT_FALSE(equal_in_constant_time("", "s"));
}

} // namespace
} // namespace oncekey
