#include "gateway/account_limits.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

constexpr Rate kTwoAnHour{2.0 / 3600, 2};

RateBucketId bucket_number(std::uint32_t number) {
  RateBucketId id;
  for (std::size_t i = 0; i < 4; ++i) id.bytes[i] = static_cast<std::uint8_t>(number >> (8 * i));
  id.bytes[31] = static_cast<std::uint8_t>(number);
  return id;
}

bool take(LocalRates& rates, const RateBucketId& bucket) {
  bool allowed = false;
  rates.take(bucket, kTwoAnHour, [&](const Result<Taken>& taken) { allowed = taken->allowed; });
  return allowed;
}

TEST(LocalRateKeeper, CountsEachAccountByItself) {
  LocalRates rates;
  EXPECT_TRUE(take(rates, bucket_number(1)));
  EXPECT_TRUE(take(rates, bucket_number(1)));
  EXPECT_FALSE(take(rates, bucket_number(1)));
  EXPECT_TRUE(take(rates, bucket_number(2)));
}

TEST(LocalRateKeeper, TakesATokenBack) {
  LocalRates rates;
  while (take(rates, bucket_number(1))) continue;
  rates.give_back(bucket_number(1), kTwoAnHour);
  EXPECT_TRUE(take(rates, bucket_number(1)));
  EXPECT_FALSE(take(rates, bucket_number(1)));
  rates.give_back(bucket_number(9), kTwoAnHour); // unknown: nothing happens
  EXPECT_EQ(rates.size(), 1u);
}

TEST(LocalRateKeeper, ForgetsSomeRatherThanGrow) {
  LocalRates rates(160);
  for (std::uint32_t i = 0; i < 100'000; ++i) EXPECT_TRUE(take(rates, bucket_number(i)));
  EXPECT_LE(rates.size(), 160u);
}

TEST(LocalRateKeeper, DoesNotForgetADrainedAccountForTheSakeOfNewNames) {
  LocalRates rates(160);
  while (take(rates, bucket_number(1))) continue;
  for (std::uint32_t i = 2; i < 100'000; ++i) take(rates, bucket_number(i));
  EXPECT_FALSE(take(rates, bucket_number(1)));
}

TEST(PlacesOfAccounts, AreTakenUpToTheLimitAndGivenBack) {
  AccountPlaces places;
  auto first = places.enter(bucket_number(1), 2);
  {
    auto second = places.enter(bucket_number(1), 2);
    ASSERT_TRUE(first && second);
    EXPECT_FALSE(places.enter(bucket_number(1), 2));
    EXPECT_TRUE(places.enter(bucket_number(2), 2)) << "another account";
    const AccountPlaces::Place moved = *std::move(second);
    second.reset();
    EXPECT_FALSE(places.enter(bucket_number(1), 2)) << "moved, not left";
  }
  EXPECT_TRUE(places.enter(bucket_number(1), 2));
}

TEST(PlacesOfAll, AreTakenUpToTheLimitAndGivenBack) {
  Places places;
  {
    const auto only = places.enter(1);
    EXPECT_TRUE(only);
    EXPECT_FALSE(places.enter(1));
    EXPECT_EQ(places.taken(), 1u);
  }
  EXPECT_EQ(places.taken(), 0u);
}

} // namespace
} // namespace oncekey
