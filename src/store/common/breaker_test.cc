#include "store/common/breaker.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

int opened_by(Breaker& breaker, int failures) {
  int opened = 0;
  for (int i = 0; i < failures; ++i) opened += breaker.failed(unavailable("down")) ? 1 : 0;
  return opened;
}

TEST(Breaker, AFewFailuresInARowOpenItOnce) {
  Breaker breaker;
  EXPECT_EQ(opened_by(breaker, kFailuresToOpen - 1), 0);
  EXPECT_FALSE(breaker.is_open());
  breaker.succeeded();
  EXPECT_EQ(opened_by(breaker, kFailuresToOpen - 1), 0) << "not in a row";
  EXPECT_EQ(opened_by(breaker, 3), 1);
  EXPECT_TRUE(breaker.is_open());
  EXPECT_EQ(breaker.open_because()->message, "down");
}

TEST(Breaker, ASuccessClosesItAndItMayOpenAgain) {
  Breaker breaker;
  EXPECT_EQ(opened_by(breaker, kFailuresToOpen), 1);
  breaker.succeeded();
  EXPECT_FALSE(breaker.is_open());
  EXPECT_FALSE(breaker.open_because());
  EXPECT_EQ(opened_by(breaker, kFailuresToOpen), 1);
}

} // namespace
} // namespace oncekey
