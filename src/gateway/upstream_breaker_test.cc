#include "gateway/upstreams.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr UpstreamBreaker::Instant kStart{seconds(100)};

class Breakers : public testing::Test {
 protected:
  UpstreamBreaker breaker_{BreakerOptions{3, seconds(10), seconds(1)}};

  void fail(UpstreamBreaker::Instant now) {
    auto pass = breaker_.ask(now);
    ASSERT_TRUE(pass);
    pass->not_reached(now);
  }
  void open() {
    for (int i = 0; i < 3; ++i) fail(kStart);
    ASSERT_TRUE(breaker_.is_open());
  }
};

TEST_F(Breakers, OpenAfterSoManyFailuresInARow) {
  fail(kStart);
  fail(kStart);
  EXPECT_FALSE(breaker_.is_open());
  auto last = breaker_.ask(kStart);
  EXPECT_TRUE(last->not_reached(kStart)) << "the call that opens it hears so";
  EXPECT_FALSE(breaker_.ask(kStart));
  EXPECT_EQ(breaker_.retry_after(kStart), seconds(1));
}

TEST_F(Breakers, StartCountingAnewAfterASuccess) {
  fail(kStart);
  fail(kStart);
  EXPECT_FALSE(breaker_.ask(kStart)->reached());
  fail(kStart);
  fail(kStart);
  EXPECT_FALSE(breaker_.is_open());
}

TEST_F(Breakers, DoNotCallFailuresFarApartARow) {
  fail(kStart);
  fail(kStart);
  fail(kStart + seconds(11));
  EXPECT_FALSE(breaker_.is_open());
  fail(kStart + seconds(12));
  fail(kStart + seconds(13));
  EXPECT_TRUE(breaker_.is_open());
}

TEST_F(Breakers, LetOneAtATimeTryAfterThePause) {
  open();
  EXPECT_FALSE(breaker_.ask(kStart + milliseconds(999)));
  auto trial = breaker_.ask(kStart + seconds(1));
  ASSERT_TRUE(trial);
  EXPECT_FALSE(breaker_.ask(kStart + seconds(1)));
  EXPECT_TRUE(trial->reached()) << "the call that closes it hears so";
  EXPECT_FALSE(breaker_.is_open());
  EXPECT_TRUE(breaker_.ask(kStart + seconds(1)));
}

TEST_F(Breakers, StayOpenForAnotherPauseWhenTheTrialFails) {
  open();
  auto trial = breaker_.ask(kStart + seconds(1));
  EXPECT_FALSE(trial->not_reached(kStart + seconds(3)));
  EXPECT_FALSE(breaker_.ask(kStart + milliseconds(3999)));
  EXPECT_TRUE(breaker_.ask(kStart + seconds(4)));
}

TEST_F(Breakers, LetTheNextTryWhenATrialNeverCalled) {
  open();
  { const auto unused = breaker_.ask(kStart + seconds(1)); }
  EXPECT_TRUE(breaker_.is_open());
  EXPECT_TRUE(breaker_.ask(kStart + seconds(1)));
}

TEST_F(Breakers, CloseWhenACallFromBeforeGetsThroughAfterAll) {
  auto early = breaker_.ask(kStart);
  open();
  EXPECT_TRUE(early->reached());
  EXPECT_FALSE(breaker_.is_open());
}

TEST_F(Breakers, OfNoFailuresNeverOpen) {
  UpstreamBreaker none(BreakerOptions{0, seconds(10), seconds(1)});
  for (int i = 0; i < 100; ++i) none.ask(kStart)->not_reached(kStart);
  EXPECT_FALSE(none.is_open());
}

} // namespace
} // namespace oncekey
