#include "base/backoff.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

constexpr double kMost = 0.9999;
constexpr Millis kInitial{500};
constexpr Millis kLongest{8000};

Millis pause(std::uint32_t failures, double chance, Millis longest = kLongest) {
  return pause_after(failures, kInitial, longest, chance);
}

TEST(Backoff, DoublesUpToTheLongestAndTakesHalfToAllOfIt) {
  EXPECT_EQ(pause(1, 0), Millis(500));
  EXPECT_EQ(pause(1, kMost), Millis(999));
  EXPECT_EQ(pause(2, 0), Millis(1000));
  EXPECT_EQ(pause(2, 0.5), Millis(1500));
  EXPECT_EQ(pause(4, 0), Millis(4000));
  EXPECT_EQ(pause(5, 0), Millis(4000));
  EXPECT_EQ(pause(999, kMost), Millis(7999));
  EXPECT_EQ(pause(4'000'000'000u, kMost), Millis(7999));
}

TEST(Backoff, IsNeverBelowTheInitialPause) {
  EXPECT_EQ(pause(1, 0, Millis(600)), Millis(500));
  EXPECT_EQ(pause(8, kMost, Millis(600)), Millis(599));
  EXPECT_EQ(pause(8, 0.5, Millis(1)), Millis(500));
}

TEST(Backoff, OfNothingIsNothing) { EXPECT_EQ(pause_after(3, Millis(0), Millis(0), kMost), Millis(0)); }

TEST(Backoff, KnowsOtherUnits) {
  using std::chrono::microseconds;
  EXPECT_EQ(pause_after(2, microseconds(250), microseconds(100'000), 0), microseconds(500));
}

TEST(Backoff, IsLengthenedByRetryAfterAndKeepsItsSpread) {
  const auto asked = [](std::uint32_t failures, double chance, std::optional<Millis> retry_after) {
    return lengthened(pause(failures, chance), kInitial, retry_after, Millis(60'000));
  };
  EXPECT_EQ(asked(1, 0, Millis(3000)), Millis(3000));
  EXPECT_EQ(asked(1, 0.5, Millis(3000)), Millis(3250));
  EXPECT_EQ(asked(1, 0, Millis(0)), Millis(500));
  EXPECT_EQ(asked(4, 0, Millis(1000)), Millis(4500)); // 1 s asked for and 3.5 s of its own spread
  EXPECT_EQ(asked(1, 0, std::chrono::hours(5)), Millis(60'000));
  EXPECT_EQ(asked(1, 0, std::nullopt), Millis(500));
}

TEST(Backoff, OfOneServerGrowsUntilASuccess) {
  Backoff pauses(Millis(10), Millis(1000));
  for (const int least : {10, 20, 40, 80}) {
    const Millis next = pauses.next();
    EXPECT_GE(next, Millis(least));
    EXPECT_LE(next, Millis(2 * least));
  }
  pauses.reset();
  EXPECT_LE(pauses.next(), Millis(20));
}

} // namespace
} // namespace oncekey
