#include "gateway/live_calls.h"

#include <gtest/gtest.h>

#include <memory>

namespace oncekey {
namespace {

RecordId id_of(std::uint8_t byte) {
  RecordId id;
  id.bytes.fill(byte);
  return id;
}

TEST(LiveCalls, KnowTheFenceOfACallForAsLongAsItLives) {
  LiveCalls live;
  EXPECT_EQ(live.fence_of(id_of(1)), std::nullopt);
  LiveCalls::Call call{{id_of(1), 7}, Millis{60'000}};
  live.add(call);
  EXPECT_EQ(live.fence_of(id_of(1)), 7u);
  EXPECT_EQ(live.fence_of(id_of(2)), std::nullopt);
  live.remove(call);
  EXPECT_EQ(live.fence_of(id_of(1)), std::nullopt);
}

TEST(LiveCalls, TheNewestCallOfAKeyCountsAndTheEndOfAnOlderChangesNothing) {
  LiveCalls live;
  LiveCalls::Call older{{id_of(1), 7}, Millis{60'000}};
  LiveCalls::Call newer{{id_of(1), 9}, Millis{60'000}};
  live.add(older);
  live.add(newer);
  EXPECT_EQ(live.fence_of(id_of(1)), 9u);
  live.remove(older);
  EXPECT_EQ(live.fence_of(id_of(1)), 9u);
  live.remove(newer);
  EXPECT_EQ(live.fence_of(id_of(1)), std::nullopt);
}

} // namespace
} // namespace oncekey
