#include "store/redis/outbox.h"

#include <gtest/gtest.h>

namespace oncekey::redis {
namespace {

class RedisOutbox : public ::testing::Test {
 protected:
  static constexpr std::chrono::microseconds kRoundTrip{300};

  void add(int calls) {
    for (int i = 0; i < calls; ++i) outbox_.add(std::make_unique<Call>());
  }
  Departure departure(bool syncs = true) { return outbox_.departure(syncs, now_); }
  // All that waits leaves and is answered.
  void round_trip() {
    const std::size_t calls = outbox_.take(now_).size();
    now_ += kRoundTrip;
    outbox_.group_done(calls, now_);
  }

  Outbox outbox_;
  Deadline now_ = Deadline{} + std::chrono::hours(1);
};

TEST_F(RedisOutbox, ALonelyCallLeavesAtOnceEveryTime) {
  EXPECT_EQ(departure(), Departure::nothing);
  for (int i = 0; i < 3; ++i) {
    add(1);
    EXPECT_EQ(departure(), Departure::now);
    round_trip();
  }
}

TEST_F(RedisOutbox, OneGroupAtATimeWhereEachCostsASyncAndTwoElsewhere) {
  add(1);
  outbox_.take(now_);
  add(1);
  EXPECT_EQ(departure(true), Departure::nothing);
  EXPECT_EQ(departure(false), Departure::now);
  outbox_.take(now_);
  add(1);
  EXPECT_EQ(departure(false), Departure::nothing);
}

TEST_F(RedisOutbox, ThoseWhoWereJustAnsweredAreWaitedForAMoment) {
  add(8);
  round_trip();
  add(3);
  EXPECT_EQ(departure(), Departure::when_gathered);
  EXPECT_EQ(outbox_.missing(), 5u);
  EXPECT_EQ(outbox_.gather_until(), now_ + kRoundTrip / 2);
  EXPECT_EQ(departure(false), Departure::now) << "a server that does not sync has nothing to save";
  add(5);
  EXPECT_EQ(departure(), Departure::now);
}

TEST_F(RedisOutbox, ThoseWhoCameMeanwhileDoNotStandForThem) {
  add(40);
  const std::size_t calls = outbox_.take(now_).size();
  add(24);
  outbox_.group_done(calls, now_ + kRoundTrip);
  EXPECT_EQ(departure(), Departure::when_gathered);
  EXPECT_EQ(outbox_.missing(), 40u);
}

TEST_F(RedisOutbox, TheMomentIsShort) {
  add(8);
  round_trip();
  add(6);
  now_ += kRoundTrip / 2;
  EXPECT_EQ(departure(), Departure::now);
}

} // namespace
} // namespace oncekey::redis
