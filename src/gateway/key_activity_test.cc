#include "gateway/key_activity.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

using Kind = KeyActivity::Kind;
constexpr KeyActivity::WallTime kThatDay{std::chrono::hours(500'000)};

// All of one row of the table if `row` is the same.
RecordId id_in_row(std::uint8_t row, std::uint8_t number) {
  RecordId id;
  id.bytes[8] = row;
  id.bytes[0] = number;
  id.bytes[1] = 1;
  return id;
}

TEST(KeyActivity, CountsEachKindWithItsLastTime) {
  KeyActivity activity;
  const RecordId id = id_in_row(1, 1);
  EXPECT_FALSE(activity.find(id));
  activity.saw(id, Kind::replay, kThatDay);
  activity.saw(id, Kind::replay, kThatDay + std::chrono::seconds(2));
  activity.saw(id, Kind::mismatch, kThatDay + std::chrono::seconds(1));
  const auto seen = activity.find(id);
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->count(Kind::replay), 2u);
  EXPECT_EQ(seen->count(Kind::mismatch), 1u);
  EXPECT_EQ(seen->count(Kind::held), 0u);
  EXPECT_EQ(seen->first, kThatDay);
  EXPECT_EQ(seen->last_of(Kind::replay), kThatDay + std::chrono::seconds(2));
  EXPECT_FALSE(activity.find(id_in_row(1, 2)));
}

TEST(KeyActivity, ANewKeyTakesThePlaceOfTheOneThatWasQuietLongest) {
  KeyActivity activity;
  for (std::uint8_t number = 0; number < 4; ++number)
    activity.saw(id_in_row(7, number), Kind::replay, kThatDay + std::chrono::seconds(number));
  activity.saw(id_in_row(7, 0), Kind::replay, kThatDay + std::chrono::seconds(9));
  activity.saw(id_in_row(7, 4), Kind::replay, kThatDay + std::chrono::seconds(10));
  EXPECT_TRUE(activity.find(id_in_row(7, 0)));
  EXPECT_FALSE(activity.find(id_in_row(7, 1)));
  EXPECT_TRUE(activity.find(id_in_row(7, 4)));
}

} // namespace
} // namespace oncekey
