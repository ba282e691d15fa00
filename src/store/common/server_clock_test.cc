#include "store/common/server_clock.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

class ServerClockTest : public ::testing::Test {
 protected:
  // The server's clock is that far ahead; its answer took so long to come.
  void learn(Millis ahead, Millis way_back) { clock_.learn(Time{here_ + ahead - way_back}); }
  Millis ahead() const { return clock_.now().time_since_epoch() - here_; }

  Millis here_{1'000'000};
  ServerClock clock_{[this] { return here_; }};
};

TEST_F(ServerClockTest, RunsOnBetweenAnswers) {
  learn(Millis{500}, Millis{0});
  here_ += Millis{77};
  EXPECT_EQ(ahead(), Millis{500});
}

TEST_F(ServerClockTest, TheQuickestAnswerCounts) {
  learn(Millis{500}, Millis{40});
  learn(Millis{500}, Millis{3});
  learn(Millis{500}, Millis{90});
  EXPECT_EQ(ahead(), Millis{497});
}

TEST_F(ServerClockTest, AClockThatIsSetBackIsBelievedAfterTwoStretches) {
  learn(Millis{500}, Millis{0});
  for (int stretch = 0; stretch < 2; ++stretch) {
    EXPECT_EQ(ahead(), Millis{500}) << stretch;
    here_ += Millis{10'000};
    learn(Millis{-2000}, Millis{0});
  }
  EXPECT_EQ(ahead(), Millis{-2000});
}

} // namespace
} // namespace oncekey
