#include "store/common/marker_keeper.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

Marker marker_of(std::string generation, std::uint64_t tick, std::string replaces = "") {
  return {std::move(generation), std::move(replaces), tick, false};
}

TEST(MemoryWatch, AMarkerThatCountsUpIsAllWell) {
  MemoryWatch watch;
  EXPECT_TRUE(watch.memory());
  EXPECT_TRUE(watch.see(0, marker_of("a", 1)));
  EXPECT_TRUE(watch.see(0, marker_of("a", 1)));
  EXPECT_TRUE(watch.see(0, marker_of("a", 7)));
  EXPECT_EQ(watch.generation(), "a");
}

TEST(MemoryWatch, AMissingMarkerIsALossThatStays) {
  MemoryWatch watch;
  ASSERT_TRUE(watch.see(0, marker_of("a", 1)));
  EXPECT_FALSE(watch.see(0, std::nullopt));
  EXPECT_FALSE(watch.memory());
  EXPECT_FALSE(watch.see(0, marker_of("a", 2))) << "coming back does not undo it";
}

TEST(MemoryWatch, ASmallerTickIsALoss) {
  MemoryWatch watch;
  ASSERT_TRUE(watch.see(0, marker_of("a", 5)));
  EXPECT_FALSE(watch.see(0, marker_of("a", 4)));
}

TEST(MemoryWatch, EachPlaceHasItsOwnTick) {
  MemoryWatch watch;
  ASSERT_TRUE(watch.see(0, marker_of("a", 5)));
  EXPECT_TRUE(watch.see(1, marker_of("a", 2)));
  EXPECT_FALSE(watch.see(1, marker_of("a", 1)));
}

TEST(MemoryWatch, AnotherGenerationIsALossUnlessItReplacesOurs) {
  MemoryWatch watch;
  ASSERT_TRUE(watch.see(0, marker_of("a", 5)));
  EXPECT_FALSE(watch.see(0, marker_of("b", 1)));
  EXPECT_FALSE(watch.see(0, marker_of("c", 1, "x")));
  EXPECT_TRUE(watch.see(0, marker_of("d", 1, "a")));
  EXPECT_TRUE(watch.memory());
  EXPECT_EQ(watch.generation(), "d");
  EXPECT_FALSE(watch.see(0, std::nullopt));
  EXPECT_TRUE(watch.see(0, marker_of("e", 1, "*")));
}

TEST(MemoryWatch, ALossNoticedByOthersIsALossAtTheStart) {
  MemoryWatch watch;
  Marker marker = marker_of("a", 1);
  marker.lost = true;
  EXPECT_FALSE(watch.see(0, marker));
  EXPECT_TRUE(watch.see(0, marker_of("b", 1, "*"))) << "until an operator has accepted it";
}

} // namespace
} // namespace oncekey
