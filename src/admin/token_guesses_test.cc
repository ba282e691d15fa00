#include "admin/token_guesses.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

using std::chrono::milliseconds;
constexpr TokenGuesses::Moment kNow{std::chrono::hours(5)};

TEST(TokenGuesses, EachWrongTokenWaitsTwiceAsLongUpToALimit) {
  TokenGuesses guesses;
  for (const int expected : {100, 200, 400, 800, 1600, 3200, 5000, 5000}) {
    EXPECT_EQ(guesses.wrong("127.0.0.2", kNow), milliseconds(expected));
  }
}

TEST(TokenGuesses, OtherAddressesAreNotSlowed) {
  TokenGuesses guesses;
  for (int i = 0; i < 20; ++i) guesses.wrong("127.0.0.2", kNow);
  EXPECT_EQ(guesses.wrong("127.0.0.3", kNow), TokenGuesses::kFirstDelay);
}

TEST(TokenGuesses, AddressesOfOneIpv6NetworkAreOneGuesser) {
  TokenGuesses guesses;
  guesses.wrong("2001:db8:1:2::1", kNow);
  EXPECT_EQ(guesses.wrong("2001:db8:1:2:ffff::9", kNow), milliseconds(200));
  EXPECT_EQ(guesses.wrong("2001:db8:1:3::1", kNow), milliseconds(100));
}

TEST(TokenGuesses, AfterAWhileAnAddressBeginsAnew) {
  TokenGuesses guesses;
  guesses.wrong("127.0.0.2", kNow);
  EXPECT_EQ(guesses.wrong("127.0.0.2", kNow + TokenGuesses::kForgottenAfter), TokenGuesses::kFirstDelay);
}

TEST(TokenGuesses, TheTableHasALimitAndTheQuietestAddressGoesFirst) {
  TokenGuesses guesses;
  guesses.wrong("quiet", kNow);
  for (std::size_t i = 1; i < TokenGuesses::kAddressesMax; ++i)
    guesses.wrong(std::to_string(i), kNow + milliseconds(i));
  guesses.wrong("one more", kNow + milliseconds(5000));
  EXPECT_EQ(guesses.addresses(), TokenGuesses::kAddressesMax);
  EXPECT_EQ(guesses.wrong("quiet", kNow + milliseconds(5001)), TokenGuesses::kFirstDelay) << "it was forgotten";
  EXPECT_EQ(guesses.wrong("one more", kNow + milliseconds(5002)), milliseconds(200));
}

} // namespace
} // namespace oncekey
