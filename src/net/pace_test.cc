#include "net/transport.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A thousand bytes a second, ten seconds of patience: ten thousand bytes within each ten seconds of waiting.
Pace thousand() { return {seconds(10), 1000}; }

TEST(PaceTest, ASteadyPeerHasAllTheTimeItNeeds) {
  Pace pace = thousand();
  for (int i = 0; i < 1000; ++i) {
    pace.moved(2000, seconds(1));
    EXPECT_GT(pace.left(), seconds(0));
  }
}

TEST(PaceTest, AByteNowAndThenRunsOutOfTime) {
  Pace pace = thousand();
  for (int i = 0; i < 10; ++i) pace.moved(1, seconds(1));
  EXPECT_LE(pace.left(), seconds(0));
}

TEST(PaceTest, WhatCameEarlyIsNotSavedUp) {
  Pace pace = thousand();
  pace.moved(8'000'000, milliseconds(1));
  EXPECT_EQ(pace.left(), seconds(10));
  pace.moved(1, seconds(9));
  EXPECT_EQ(pace.left(), seconds(1));
}

TEST(PaceTest, TimeInWhichNothingWaitsForThePeerDoesNotCount) {
  Pace pace = thousand();
  pace.moved(1, seconds(0));
  EXPECT_EQ(pace.left(), seconds(10));
}

} // namespace
} // namespace oncekey
