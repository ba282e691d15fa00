#include "base/crypto.h"

#include "base/verification_key.h"

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

TEST(KeyedHash, PartsOfAnyLengthAreHashedWhole) {
  const Secret secret = rfc_4231_key();
  const std::string key(secret.begin(), secret.end());
  const std::string text(2000, 'x');
  const auto length = [](std::uint64_t bytes) {
    return std::string(reinterpret_cast<const char*>(&bytes), sizeof bytes);
  };
  for (const std::size_t first : {0, 1, 495, 496, 497, 503, 504, 505, 511, 512, 513, 2000}) {
    for (const std::size_t second : {0, 1, 496, 504, 505, 512, 513, 2000}) {
      const std::string_view one = std::string_view(text).substr(0, first);
      const std::string_view two = std::string_view(text).substr(0, second);
      const std::string joined = length(first).append(one).append(length(second)).append(two);
      const std::vector<std::string_view> pieces = {joined};
      EXPECT_EQ(keyed(secret, {one, two}), hex_encode(Hmac(HashAlgorithm::sha256, key).of(pieces)))
          << first << " " << second;
    }
  }
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
TEST(Gcm, OpensWhatItSealedAndNothingElse) {
  const Secret key = rfc_4231_key();
  const GcmNonce nonce{1, 2, 3};
  for (const std::string& plain : {std::string(), std::string("x"), std::string(70'000, 'y')}) {
    std::string sealed = plain;
    gcm_seal(key, nonce, sealed);
    EXPECT_EQ(sealed.size(), plain.size() + kGcmTagBytes);
    EXPECT_EQ(gcm_open(key, nonce, sealed), plain);
    EXPECT_FALSE(gcm_open(key, GcmNonce{1, 2, 4}, sealed));
    EXPECT_FALSE(gcm_open(Secret{}, nonce, sealed));
    sealed.back() = static_cast<char>(sealed.back() ^ 1);
    EXPECT_FALSE(gcm_open(key, nonce, sealed));
  }
  EXPECT_FALSE(gcm_open(key, nonce, "short"));
}

TEST(Gcm, NoncesDifferAcrossDrawsAndThreads) {
  std::set<GcmNonce> seen;
  const auto draw = [&] {
    for (int i = 0; i < 1000; ++i) seen.insert(random_nonce());
  };
  draw();
  std::thread(draw).join();
  EXPECT_EQ(seen.size(), 2000u);
}

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

TEST(Base64, EncodesAndDecodesStrictly) {
  for (const auto& [bytes, text] : std::vector<std::pair<std::string, std::string>>{
           {"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"foob", "Zm9vYg=="}, {"\xfb\xff\xbf", "+/+/"}}) {
    EXPECT_EQ(base64_encode(bytes), text);
    EXPECT_EQ(base64_decode(text), bytes);
  }
  for (const std::string_view text :
       {"Z", "Zg", "Zg=", "Zm8", "Zh==", "Zm9=", "====", "Zg==Zg==", "Zm9v\n", "-_-_", "Zg= ="}) {
    EXPECT_EQ(base64_decode(text), std::nullopt) << text;
  }
}

TEST(Hex, EncodesInLowerCaseAndDecodesBoth) {
  EXPECT_EQ(hex_encode(std::string_view("\x00\x7f\xff", 3)), "007fff");
  EXPECT_EQ(hex_decode("007fFF"), std::string("\x00\x7f\xff", 3));
  EXPECT_EQ(hex_decode(""), "");
  for (const std::string_view text : {"0", "000", "0g", "g0", " 00", "0x"})
    EXPECT_EQ(hex_decode(text), std::nullopt) << text;
}

// RFC 2202 and RFC 4231, test case 1; the others by Python's hmac.
TEST(Hmac, OfKnownTexts) {
  const std::string key(20, '\x0b');
  const auto mac = [](HashAlgorithm algorithm, std::string_view secret, std::vector<std::string_view> pieces) {
    return hex_encode(Hmac(algorithm, secret).of(pieces));
  };
  EXPECT_EQ(mac(HashAlgorithm::sha1, key, {"Hi There"}), "b617318655057264e28bc0b6fb378c8ef146be00");
  EXPECT_EQ(mac(HashAlgorithm::sha256, key, {"Hi There"}),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(mac(HashAlgorithm::sha512, key, {"Hi There"}),
            "87aa7cdea5ef619d4ff0b4241a1d6cb02379f4e2ce4ec2787ad0b30545e17cde"
            "daa833b7d6b8a702038b274eaea3f4e4be9d914eeb61f1702e696c203a126854");
  EXPECT_EQ(mac(HashAlgorithm::sha256, std::string(200, 'k'), {"abc"}),
            "ce632aa86d6a3fd3c79f06217c0a506599d055cd38eb385b16a2939f2488f686");
  EXPECT_EQ(mac(HashAlgorithm::sha256, "", {}).substr(0, 20), "b613679a0814d9ec772f");
}

// By Python's hmac: a secret longer than the hash's block is hashed first.
TEST(Hmac, SecretsAroundTheLengthOfABlock) {
  const std::array<std::string_view, 1> text{"abc"};
  const auto beginning = [&](HashAlgorithm algorithm, std::size_t length) {
    return hex_encode(Hmac(algorithm, std::string(length, 'k')).of(text)).substr(0, 20);
  };
  EXPECT_EQ(beginning(HashAlgorithm::sha1, 64), "7c44f6972fe89fcc6df4");
  EXPECT_EQ(beginning(HashAlgorithm::sha1, 65), "5a862526949f6b70acd6");
  EXPECT_EQ(beginning(HashAlgorithm::sha256, 64), "ae0c0e4a2340cf50185e");
  EXPECT_EQ(beginning(HashAlgorithm::sha256, 65), "ed378e5dfa30dc98814b");
  EXPECT_EQ(beginning(HashAlgorithm::sha512, 128), "b3327a783059e7fa5af7");
  EXPECT_EQ(beginning(HashAlgorithm::sha512, 129), "a1486b47baffa36173ff");
}

TEST(Hmac, OneMacLeavesNothingBehindForTheNext) {
  const Hmac mac(HashAlgorithm::sha256, "k");
  const std::array<std::string_view, 1> text{"abc"};
  const std::array<std::string_view, 1> other{"another"};
  const std::string first = mac.of(text);
  EXPECT_NE(mac.of(other), first);
  EXPECT_EQ(mac.of(text), first);
}

TEST(Hmac, PiecesAreOneText) {
  const std::vector<std::string_view> pieces = {"Hi", "", " There"};
  const std::vector<std::string_view> whole = {"Hi There"};
  const Hmac mac(HashAlgorithm::sha1, "k");
  EXPECT_EQ(mac.of(pieces), mac.of(whole));
}

bool ed25519_verify(std::string_view public_key, std::string_view message, std::string_view signature) {
  const auto key = VerificationKey::ed25519(public_key);
  return key && key->verify(SignatureScheme::eddsa, message, signature);
}

// RFC 8032, section 7.1, tests 1 and 2.
TEST(Ed25519, VerifiesKnownSignatures) {
  const std::string key = *hex_decode("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
  const std::string signature = *hex_decode(
      "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24"
      "655141438e7a100b");
  EXPECT_TRUE(ed25519_verify(key, "", signature));
  EXPECT_FALSE(ed25519_verify(key, "x", signature));
  const std::string other = *hex_decode("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c");
  EXPECT_FALSE(ed25519_verify(other, "", signature));
  EXPECT_TRUE(
      ed25519_verify(other, "\x72",
                     *hex_decode("92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e1599"
                                 "6e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00")));
}

TEST(Ed25519, RefusesWhatIsNoKeyOrNoSignature) {
  const std::string key = *hex_decode("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
  EXPECT_FALSE(ed25519_verify("", "", std::string(64, '\0')));
  EXPECT_FALSE(ed25519_verify(key.substr(1), "", std::string(64, '\0')));
  EXPECT_FALSE(ed25519_verify(key, "", ""));
  EXPECT_FALSE(ed25519_verify(key, "", std::string(63, '\0')));
  EXPECT_FALSE(ed25519_verify(key, "", std::string(64, '\0')));
  EXPECT_FALSE(ed25519_verify(std::string(32, '\xff'), "", std::string(64, '\xff')));
}

TEST(Uuid, CarriesItsVersionAndVariant) {
  std::array<std::uint8_t, 16> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(0xf0 + i);
  EXPECT_EQ(uuid_text(bytes, UuidVersion::custom_hash), "f0f1f2f3-f4f5-86f7-b8f9-fafbfcfdfeff");
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i) {
    const std::string uuid = random_uuid();
    ASSERT_EQ(uuid.size(), 36u);
    EXPECT_EQ(uuid[14], '4');
    EXPECT_NE(std::string_view("89ab").find(uuid[19]), std::string_view::npos);
    EXPECT_TRUE(seen.insert(uuid).second);
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
