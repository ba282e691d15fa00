#include "gateway/storms.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

using std::chrono::seconds;

constexpr Storms::Instant kDawn{seconds(1000)};

// Spread over the shards like the output of a hash.
RecordId key_number(std::uint32_t number) {
  RecordId id;
  for (std::size_t i = 0; i < 4; ++i) id.bytes[i] = static_cast<std::uint8_t>(number >> (8 * i));
  id.bytes[31] = static_cast<std::uint8_t>(number);
  return id;
}

TEST(StormWatch, CountsRetriesByKeyHottestFirst) {
  Storms storms;
  for (int i = 0; i < 5; ++i) storms.retried(key_number(1), 0, kDawn);
  for (int i = 0; i < 9; ++i) storms.retried(key_number(2), 1, kDawn);
  const auto hottest = storms.hottest(kDawn);
  ASSERT_EQ(hottest.size(), 2u);
  EXPECT_EQ(hottest[0].id, key_number(2));
  EXPECT_EQ(hottest[0].retries, 9u);
  EXPECT_EQ(hottest[0].route, 1u);
  EXPECT_EQ(hottest[1].retries, 5u);
}

TEST(StormWatch, FindsTheHotKeyAmongAnyNumberOfOthers) {
  Storms storms;
  for (std::uint32_t i = 0; i < 100'000; ++i) {
    storms.retried(key_number(1000 + i), 0, kDawn);
    if (i % 10 == 0) storms.retried(key_number(7), 0, kDawn);
  }
  const auto hottest = storms.hottest(kDawn);
  EXPECT_LE(hottest.size(), Storms::kKeysMax);
  EXPECT_EQ(hottest.front().id, key_number(7));
  EXPECT_GE(hottest.front().retries, 10'000u);
}

TEST(StormWatch, ForgetsAStormThatHasPassed) {
  Storms storms;
  for (int i = 0; i < 20; ++i) storms.retried(key_number(1), 0, kDawn);
  EXPECT_EQ(storms.hottest(kDawn + seconds(11)).front().retries, 20u);
  EXPECT_TRUE(storms.hottest(kDawn + seconds(20)).empty());
  storms.retried(key_number(1), 0, kDawn + seconds(11));
  EXPECT_EQ(storms.hottest(kDawn + seconds(12)).front().retries, 20u) << "of the stretch before";
  EXPECT_EQ(storms.hottest(kDawn + seconds(22)).front().retries, 1u);
}

} // namespace
} // namespace oncekey
