#include "store/common/returning.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

constexpr std::chrono::microseconds kRoundTrip{300};
constexpr std::chrono::microseconds kMoment = kRoundTrip / 2;

class ReturningCallers : public ::testing::Test {
 protected:
  void answer(std::size_t calls, Returning::Clock::duration took = kRoundTrip) {
    now_ += took;
    returning_.answered(calls, took, now_);
  }
  void come(int calls) {
    for (int i = 0; i < calls; ++i) returning_.came();
  }
  std::size_t missing() { return returning_.missing(now_); }

  Returning returning_;
  Returning::Clock::time_point now_{std::chrono::hours(1)};
};

TEST_F(ReturningCallers, AreMissedUntilTheyCome) {
  EXPECT_EQ(missing(), 0u);
  answer(8);
  EXPECT_EQ(missing(), 8u);
  come(5);
  EXPECT_EQ(missing(), 3u);
  come(4);
  EXPECT_EQ(missing(), 0u);
}

TEST_F(ReturningCallers, AreMissedForHalfOfWhatTheirGroupTook) {
  answer(8);
  come(6);
  EXPECT_EQ(returning_.until(), now_ + kMoment);
  now_ += kMoment;
  EXPECT_EQ(missing(), 0u);
}

TEST_F(ReturningCallers, AreNotMissedForLongWhereGroupsTakeLong) {
  answer(8, std::chrono::seconds(1));
  EXPECT_EQ(returning_.until(), now_ + Returning::kTimeMax);
}

TEST_F(ReturningCallers, OfTwoGroupsAreMissedTogether) {
  answer(8);
  come(2);
  now_ += kMoment / 2;
  returning_.answered(4, kRoundTrip, now_);
  EXPECT_EQ(missing(), 10u);
}

TEST_F(ReturningCallers, ASingleOneIsNotMissed) {
  answer(1);
  EXPECT_EQ(missing(), 0u);
}

TEST_F(ReturningCallers, WhoDidNotComeAreNotMissedAgainForAWhile) {
  answer(8);
  come(1);
  now_ += kMoment;
  EXPECT_EQ(missing(), 0u);
  for (int i = 0; i < Returning::kGroupsAfterWaitingInVain; ++i) {
    answer(8);
    EXPECT_EQ(missing(), 0u) << "in round " << i;
  }
  answer(8);
  EXPECT_EQ(missing(), 8u);
}

} // namespace
} // namespace oncekey
