#include "gateway/live_calls.h"

#include <gtest/gtest.h>

#include <memory>

namespace oncekey {
namespace {

RecordId live_id(std::uint8_t byte) {
  RecordId id;
  id.bytes.fill(byte);
  return id;
}

TEST(LiveCalls, KnowTheFenceOfACallForAsLongAsItLives) {
  LiveCalls live;
  EXPECT_EQ(live.fence_of(live_id(1)), std::nullopt);
  LiveCalls::Call call{{live_id(1), 7}, Millis{60'000}};
  live.add(call);
  EXPECT_EQ(live.fence_of(live_id(1)), 7u);
  EXPECT_EQ(live.fence_of(live_id(2)), std::nullopt);
  live.remove(call);
  EXPECT_EQ(live.fence_of(live_id(1)), std::nullopt);
}

TEST(LiveCalls, TheNewestCallOfAKeyCountsAndTheEndOfAnOlderChangesNothing) {
  LiveCalls live;
  LiveCalls::Call older{{live_id(1), 7}, Millis{60'000}};
  LiveCalls::Call newer{{live_id(1), 9}, Millis{60'000}};
  live.add(older);
  live.add(newer);
  EXPECT_EQ(live.fence_of(live_id(1)), 9u);
  live.remove(older);
  EXPECT_EQ(live.fence_of(live_id(1)), 9u);
  live.remove(newer);
  EXPECT_EQ(live.fence_of(live_id(1)), std::nullopt);
}

} // namespace
} // namespace oncekey
