#include "store/common/call_queue.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

constexpr std::chrono::microseconds kRoundTrip{300};
constexpr std::chrono::microseconds kMoment = kRoundTrip / 2;

class JustAnsweredCallers : public ::testing::Test {
 protected:
  void answer(std::size_t calls, BatchDelay::Clock::duration took = kRoundTrip) {
    now_ += took;
    delay_.answered(calls, took, now_);
  }
  void come(int calls) {
    for (int i = 0; i < calls; ++i) delay_.came();
  }
  std::size_t missing() { return delay_.missing(now_); }

  BatchDelay delay_;
  BatchDelay::Clock::time_point now_{std::chrono::hours(1)};
};

TEST_F(JustAnsweredCallers, AreMissedUntilTheyCome) {
  EXPECT_EQ(missing(), 0u);
  answer(8);
  EXPECT_EQ(missing(), 8u);
  come(5);
  EXPECT_EQ(missing(), 3u);
  come(4);
  EXPECT_EQ(missing(), 0u);
}

TEST_F(JustAnsweredCallers, AreMissedForHalfOfWhatTheirBatchTook) {
  answer(8);
  come(6);
  EXPECT_EQ(delay_.until(), now_ + kMoment);
  now_ += kMoment;
  EXPECT_EQ(missing(), 0u);
}

TEST_F(JustAnsweredCallers, AreNotMissedForLongWhereBatchesTakeLong) {
  answer(8, std::chrono::seconds(1));
  EXPECT_EQ(delay_.until(), now_ + BatchDelay::kDelayMax);
}

TEST_F(JustAnsweredCallers, OfTwoBatchesAreMissedTogether) {
  answer(8);
  come(2);
  now_ += kMoment / 2;
  delay_.answered(4, kRoundTrip, now_);
  EXPECT_EQ(missing(), 10u);
}

TEST_F(JustAnsweredCallers, ASingleOneIsNotMissed) {
  answer(1);
  EXPECT_EQ(missing(), 0u);
}

TEST_F(JustAnsweredCallers, WhoDidNotComeAreNotMissedAgainForAWhile) {
  answer(8);
  come(1);
  now_ += kMoment;
  EXPECT_EQ(missing(), 0u);
  for (int i = 0; i < BatchDelay::kBatchesWithoutDelay; ++i) {
    answer(8);
    EXPECT_EQ(missing(), 0u) << "in round " << i;
  }
  answer(8);
  EXPECT_EQ(missing(), 8u);
}

} // namespace
} // namespace oncekey
