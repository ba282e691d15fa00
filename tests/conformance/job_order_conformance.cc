// The part of the suite that is about jobs of one order, which go one after another.
#include "store_conformance.h"

#include <algorithm>

namespace oncekey {
namespace {

TEST_P(JobsConformance, JobsOfOneOrderGoOneAfterAnother) {
  for (const std::uint64_t number : {100, 101, 102}) stage(number);
  stage(1);
  std::vector<TakenJob> taken = take();
  ASSERT_EQ(taken.size(), 2U); // the first of the order, and the one without
  Keys seen;
  for (int round = 0; round < 3; ++round) {
    const auto ordered = std::find_if(taken.begin(), taken.end(), [](const auto& job) { return job.job.ordered; });
    ASSERT_NE(ordered, taken.end()) << round;
    seen.push_back(ordered->job.key);
    EXPECT_EQ(end(*ordered, Kind::delivered), FenceAnswer::done);
    taken = take();
  }
  EXPECT_EQ(seen, (Keys{"evt_100", "evt_101", "evt_102"}));
}

TEST_P(JobsConformance, AnOrderWaitsForAJobThatIsTriedAgainAndNotForADeadOne) {
  for (const std::uint64_t number : {100, 101}) stage(number);
  const TakenJob first = take().at(0);
  EXPECT_EQ(end(first, Kind::again, Millis{50'000}), FenceAnswer::done);
  EXPECT_TRUE(take().empty());
  advance(Millis{50'000} + blink());
  const std::vector<TakenJob> again = take();
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].job.id, first.job.id);
  EXPECT_EQ(end(again[0], Kind::dead), FenceAnswer::done);
  const std::vector<TakenJob> next = take();
  ASSERT_EQ(next.size(), 1U);
  EXPECT_EQ(next[0].job.key, "evt_101");
}

TEST_P(JobsConformance, ADeadLetterThatIsTriedAgainGoesToTheEndOfItsOrder) {
  for (const std::uint64_t number : {100, 101}) stage(number);
  EXPECT_EQ(end(take().at(0), Kind::dead), FenceAnswer::done);
  const TakenJob second = take().at(0);
  EXPECT_EQ(operate(100, JobAction::retry), JobAnswer::done);
  EXPECT_TRUE(take().empty()) << "while the other one of its order is at work";
  EXPECT_EQ(end(second, Kind::delivered), FenceAnswer::done);
  EXPECT_EQ(take().at(0).job.key, "evt_100");
}

TEST_P(JobsConformance, AnOrderGoesOnWhenItsFirstJobExpiresAndComesAgain) {
  stage(100);
  advance(kRetention / 2);
  stage(101);
  advance(kRetention / 2 + blink());
  EXPECT_TRUE(stage(100)) << "it has expired";
  Keys seen;
  for (int round = 0; round < 20 && seen.size() < 2; ++round) {
    for (const TakenJob& taken : take()) {
      seen.push_back(taken.job.key);
      end(taken, Kind::delivered);
    }
  }
  EXPECT_EQ(seen.size(), 2U);
}

TEST_P(JobsConformance, AnOrderDoesNotWaitForAJobThatWasDropped) {
  for (const std::uint64_t number : {100, 101}) stage(number);
  EXPECT_EQ(operate(100, JobAction::drop), JobAnswer::done);
  const std::vector<TakenJob> taken = take();
  ASSERT_EQ(taken.size(), 1U);
  EXPECT_EQ(taken[0].job.key, "evt_101");
}

} // namespace
} // namespace oncekey
