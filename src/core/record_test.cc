#include "core/store.h"

#include <oncekey/record.h>

#include <gtest/gtest.h>

namespace oncekey {
namespace {

TEST(RecordIds, AreReadAsTheyAreWritten) {
  RecordId id;
  for (std::size_t i = 0; i < id.bytes.size(); ++i) id.bytes[i] = static_cast<std::uint8_t>(i * 37);
  const std::string hex = to_hex(id);
  EXPECT_EQ(hex.size(), 64u);
  EXPECT_EQ(record_id_from_hex(hex), id);
  std::string upper = hex;
  for (char& c : upper) c = static_cast<char>(std::toupper(c));
  EXPECT_EQ(record_id_from_hex(upper), id);
  EXPECT_EQ(short_hash(id), hex.substr(0, 12));
}

TEST(RecordIds, AnythingElseIsNone) {
  const std::string good(64, 'a');
  EXPECT_TRUE(record_id_from_hex(good));
  EXPECT_FALSE(record_id_from_hex(""));
  EXPECT_FALSE(record_id_from_hex(good.substr(1)));
  EXPECT_FALSE(record_id_from_hex(good + "a"));
  EXPECT_FALSE(record_id_from_hex(std::string(63, 'a') + "g"));
  EXPECT_FALSE(record_id_from_hex(" " + std::string(63, 'a')));
}

TEST(Records, AreSpelledLikeTheirEnumerators) {
  EXPECT_EQ(to_string(RecordState::in_progress), "in_progress");
  EXPECT_EQ(to_string(RecordState::completed), "completed");
  EXPECT_EQ(to_string(RecordState::indeterminate), "indeterminate");
  EXPECT_EQ(to_string(OperatorAction::rerun), "rerun");
  EXPECT_EQ(to_string(OperatorAction::release), "release");
  EXPECT_EQ(to_string(OperatorAction::complete), "complete");
  EXPECT_EQ(to_string(Durability::none), "none");
  EXPECT_EQ(to_string(Durability::process), "process");
  EXPECT_EQ(to_string(Durability::power), "power");
}

TEST(Records, AreAbandonedAndExpiredFromTheirInstantsOn) {
  Record record;
  record.lease_until = Time(Millis(100));
  record.expires_at = Time(Millis(200));
  EXPECT_FALSE(record.abandoned(Time(Millis(99))));
  EXPECT_TRUE(record.abandoned(Time(Millis(100))));
  EXPECT_FALSE(record.expired(Time(Millis(199))));
  EXPECT_TRUE(record.expired(Time(Millis(200))));
  record.state = RecordState::completed;
  EXPECT_FALSE(record.abandoned(Time(Millis(100))));
}

} // namespace
} // namespace oncekey
