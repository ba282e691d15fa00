#include "gateway/live_calls.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

using namespace std::chrono_literals;

const MonotonicTime kNow{1h};

RecordId id(std::size_t number) {
  RecordId id;
  std::memcpy(id.bytes.data(), &number, sizeof number);
  return id;
}

TEST(GivenUp, RemembersAnOwnerUntilItsLeaseIsOver) {
  GivenUp given_up;
  given_up.add({id(1), 7}, 60s, kNow);
  EXPECT_TRUE(given_up.has({id(1), 7}, kNow + 59s));
  EXPECT_FALSE(given_up.has({id(1), 7}, kNow + 60s));
}

TEST(GivenUp, ALaterOwnerOfTheSameKeyIsAtWork) {
  GivenUp given_up;
  given_up.add({id(1), 7}, 60s, kNow);
  EXPECT_FALSE(given_up.has({id(1), 8}, kNow));
  EXPECT_FALSE(given_up.has({id(2), 7}, kNow));
}

TEST(GivenUp, IsBoundedAndMakesRoomAsLeasesEnd) {
  GivenUp given_up;
  for (std::size_t i = 0; i < GivenUp::kMost; ++i) given_up.add({id(i), 1}, 10s, kNow);
  given_up.add({id(GivenUp::kMost), 1}, 10s, kNow);
  EXPECT_FALSE(given_up.has({id(GivenUp::kMost), 1}, kNow));
  given_up.add({id(GivenUp::kMost), 1}, 10s, kNow + 11s);
  EXPECT_TRUE(given_up.has({id(GivenUp::kMost), 1}, kNow + 11s));
}

} // namespace
} // namespace oncekey
