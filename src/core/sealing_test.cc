#include "core/sealing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace oncekey {
namespace {

using testing::HasSubstr;

constexpr std::string_view kCounting = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

std::string key(int id, char digit) { return std::to_string(id) + " " + std::string(64, digit) + "\n"; }
std::unique_ptr<const SealingKeys> keys(const std::string& lines) { return *SealingKeys::parse(lines, "keys"); }

RecordId id_of(std::uint8_t byte) {
  RecordId id;
  id.bytes.fill(byte);
  return id;
}

std::string refusal(std::string_view text) {
  const auto parsed = SealingKeys::parse(text, "keys");
  return parsed ? "" : parsed.fault().message;
}

TEST(SealingKeys, WhatIsSealedOpens) {
  const auto ours = keys(key(1, 'a'));
  for (const std::string& plain : {std::string(), std::string("x"), std::string(100'000, 'y')}) {
    const Sealed sealed = ours->seal(SealedPart::response, id_of(1), 7, plain);
    EXPECT_EQ(sealed.key_id, 1u);
    EXPECT_EQ(sealed.fence, 7u);
    EXPECT_EQ(sealed.bytes.size(), plain.size() + kSealTagBytes);
    EXPECT_EQ(ours->open(SealedPart::response, id_of(1), sealed).value(), plain);
  }
}

// Expected values: HKDF and AESGCM of Python's `cryptography`.
TEST(SealingKeys, AreHkdfAndAesGcmAsOthersComputeThem) {
  Sealed sealed{5, 77, {}, *hex_decode("860d09965f9b1898d73daf73c1334e71c6780d7d7facff110f40")};
  sealed.nonce.fill(0x22);
  const auto ours = keys("5 " + std::string(kCounting));
  const Result<std::string> opened = ours->open(SealedPart::response, id_of(0x11), sealed);
  ASSERT_TRUE(opened) << opened.fault().message;
  EXPECT_EQ(*opened, "the answer");
}

TEST(SealingKeys, NothingOpensElsewhereOrChanged) {
  const auto ours = keys(key(1, 'a'));
  const Sealed sealed = ours->seal(SealedPart::response, id_of(1), 7, "the answer");
  const auto fault_of = [&](SealedPart part, const RecordId& id, const Sealed& changed) {
    const auto opened = ours->open(part, id, changed);
    return opened ? FaultKind{} : opened.fault().kind;
  };
  EXPECT_EQ(fault_of(SealedPart::message, id_of(1), sealed), FaultKind::corrupt);
  EXPECT_EQ(fault_of(SealedPart::response, id_of(2), sealed), FaultKind::corrupt);
  Sealed changed = sealed;
  changed.fence = 8;
  EXPECT_EQ(fault_of(SealedPart::response, id_of(1), changed), FaultKind::corrupt);
  changed = sealed;
  changed.nonce[11] ^= 1;
  EXPECT_EQ(fault_of(SealedPart::response, id_of(1), changed), FaultKind::corrupt);
  for (std::size_t at = 0; at < sealed.bytes.size(); ++at) {
    changed = sealed;
    changed.bytes[at] ^= 1;
    EXPECT_EQ(fault_of(SealedPart::response, id_of(1), changed), FaultKind::corrupt) << at;
  }
  changed.bytes.resize(kSealTagBytes - 1);
  EXPECT_EQ(fault_of(SealedPart::response, id_of(1), changed), FaultKind::corrupt);
}

TEST(SealingKeys, TheSamePlainTextIsSealedDifferentlyEachTime) {
  const auto ours = keys(key(1, 'a'));
  EXPECT_NE(ours->seal(SealedPart::texts, id_of(1), 0, "4242").bytes,
            ours->seal(SealedPart::texts, id_of(1), 0, "4242").bytes);
}

TEST(SealingKeys, TheFirstSealsAndAllOpen) {
  const auto before = keys(key(1, 'a'));
  const auto after = keys("# since Monday\n" + key(2, 'b') + "\n" + key(1, 'a'));
  const Sealed old = before->seal(SealedPart::texts, id_of(1), 0, "old");
  const Sealed young = after->seal(SealedPart::texts, id_of(1), 0, "young");
  EXPECT_EQ(young.key_id, 2u);
  EXPECT_EQ(after->ids(), "2, 1");
  EXPECT_EQ(after->open(SealedPart::texts, id_of(1), old).value(), "old");
  const auto unknown = before->open(SealedPart::texts, id_of(1), young);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.fault().kind, FaultKind::unavailable);
  EXPECT_THAT(unknown.fault().message, HasSubstr("key 2, which encryption_key_file does not hold"));
}

TEST(SealingKeys, MayBeReplacedWhileTheKeyThatHasSealedStays) {
  const auto running = keys(key(2, 'b') + key(1, 'a'));
  EXPECT_TRUE(keys(key(2, 'b'))->may_follow(*running));
  EXPECT_TRUE(keys(key(3, 'c') + key(2, 'b'))->may_follow(*running));
  EXPECT_THAT(keys(key(3, 'c') + key(1, 'a'))->may_follow(*running).fault().message, HasSubstr("key 2 has sealed"));
  EXPECT_THAT(keys(key(2, 'b') + key(1, 'd'))->may_follow(*running).fault().message, HasSubstr("key 1 is another"));
  EXPECT_THAT(keys(key(1, 'a') + key(2, 'b'))->may_follow(*running).fault().message, HasSubstr("a higher id"));
}

TEST(SealingKeys, AreReadFromHexadecimalAndBase64Alike) {
  const auto hex = keys("1 " + std::string(kCounting) + "\r\n");
  const auto base64 = keys("1 " + base64_encode(*hex_decode(kCounting)));
  const Sealed sealed = hex->seal(SealedPart::texts, id_of(1), 0, "x");
  EXPECT_TRUE(base64->open(SealedPart::texts, id_of(1), sealed));
}

TEST(SealingKeys, AFaultyFileIsRefusedWithoutShowingAKey) {
  const std::string good(64, 'a');
  for (const std::string& line :
       std::vector<std::string>{good, "0 " + good, "one " + good, "1 " + good + "a", "1  " + good, "1", "1 ",
                                "4294967296 " + good, "-1 " + good, "1 " + std::string(63, 'a') + "g"}) {
    const std::string why = refusal("\n" + line);
    EXPECT_THAT(why, HasSubstr("keys:2: expected \"ID KEY\"")) << line;
    EXPECT_THAT(why, testing::Not(HasSubstr("aaaa"))) << line;
  }
  EXPECT_THAT(refusal(key(1, 'a') + key(1, 'b')), HasSubstr("keys:2: key 1 stands twice"));
  EXPECT_THAT(refusal("# nothing\n"), HasSubstr("keys holds no key"));
}

TEST(Sealer, KeepsTheKeysThatACallHasTaken) {
  Sealer sealer(keys(key(1, 'a')));
  const SealingKeys& taken = sealer.keys();
  sealer.use(keys(key(2, 'b') + key(1, 'a')));
  EXPECT_EQ(sealer.keys().sealing_id(), 2u);
  EXPECT_EQ(taken.sealing_id(), 1u);
}

} // namespace
} // namespace oncekey
