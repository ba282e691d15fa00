#include "core/rate_keeper.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

using std::chrono::milliseconds;

constexpr Rate kTenASecond{10, 3};
constexpr TokenBucket::Instant kBegin{};

TEST(Rates, AreReadWithTheirUnits) {
  EXPECT_DOUBLE_EQ(*parse_rate("100/s"), 100);
  EXPECT_DOUBLE_EQ(*parse_rate("6000/m"), 100);
  EXPECT_DOUBLE_EQ(*parse_rate("0.5/s"), 0.5);
  EXPECT_DOUBLE_EQ(*parse_rate("36/h"), 0.01);
  for (const char* wrong : {"", "100", "/s", "0/s", "-1/s", "100/d", "100/s ", "1e99/s", "nan/s", "ten/s"}) {
    EXPECT_FALSE(parse_rate(wrong)) << wrong;
  }
}

TEST(TokenBuckets, AllowABurstAndThenTheRate) {
  TokenBucket bucket;
  for (std::uint32_t left : {2u, 1u, 0u}) {
    const Taken taken = bucket.take(kTenASecond, kBegin);
    EXPECT_TRUE(taken.allowed);
    EXPECT_EQ(taken.remaining, left);
  }
  const Taken refused = bucket.take(kTenASecond, kBegin);
  EXPECT_FALSE(refused.allowed);
  EXPECT_EQ(refused.retry_after, milliseconds(100));
  EXPECT_FALSE(bucket.take(kTenASecond, kBegin + milliseconds(99)).allowed);
  EXPECT_TRUE(bucket.take(kTenASecond, kBegin + milliseconds(100)).allowed);
  EXPECT_FALSE(bucket.take(kTenASecond, kBegin + milliseconds(101)).allowed);
}

TEST(TokenBuckets, NeverHoldMoreThanTheirBurst) {
  TokenBucket bucket;
  bucket.take(kTenASecond, kBegin);
  const auto later = kBegin + std::chrono::hours(1);
  int allowed = 0;
  while (bucket.take(kTenASecond, later).allowed) ++allowed;
  EXPECT_EQ(allowed, 3);
}

TEST(TokenBuckets, TakeBackWhatWasNotUsedAndNoMore) {
  TokenBucket bucket;
  while (bucket.take(kTenASecond, kBegin).allowed) continue;
  bucket.give_back(kTenASecond, kBegin);
  EXPECT_TRUE(bucket.take(kTenASecond, kBegin).allowed);
  EXPECT_FALSE(bucket.take(kTenASecond, kBegin).allowed);
  for (int i = 0; i < 10; ++i) bucket.give_back(kTenASecond, kBegin);
  int allowed = 0;
  while (bucket.take(kTenASecond, kBegin).allowed) ++allowed;
  EXPECT_EQ(allowed, 3);
}

TEST(TokenBuckets, KnowWhenTheyCanBeForgotten) {
  TokenBucket bucket;
  const Taken taken = bucket.take(kTenASecond, kBegin);
  EXPECT_FALSE(bucket.full(kTenASecond, kBegin));
  EXPECT_TRUE(bucket.full(kTenASecond, kBegin + taken.full_after));
}

TEST(TokenBuckets, AreNotConfusedByAClockReadInTheOtherOrder) {
  TokenBucket bucket;
  bucket.take(kTenASecond, kBegin + milliseconds(50));
  bucket.take(kTenASecond, kBegin);
  bucket.take(kTenASecond, kBegin + milliseconds(50));
  EXPECT_FALSE(bucket.take(kTenASecond, kBegin + milliseconds(50)).allowed) << "no time was counted twice";
}

} // namespace
} // namespace oncekey
