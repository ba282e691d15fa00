#include "gateway/store_room.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

constexpr std::uint64_t kMib = 1u << 20;
constexpr std::uint64_t kGib = 1u << 30;

TEST(StoreRoomTest, WithoutALookThereIsRoom) {
  const Limits limits;
  const StoreRoom room(limits);
  EXPECT_TRUE(room.for_claim());
  EXPECT_TRUE(room.for_body(kGib));
  EXPECT_EQ(room.shortage(), std::nullopt);
}

TEST(StoreRoomTest, ClaimsStopBeforeTheSizeIsReachedAndBodiesAtIt) {
  Limits limits;
  limits.max_store_bytes = 640 * kMib;
  StoreRoom room(limits);
  room.look({600 * kMib, 0, 0});
  EXPECT_TRUE(room.for_claim());
  room.look({632 * kMib, 0, 0});
  EXPECT_FALSE(room.for_claim());
  EXPECT_TRUE(room.for_body(4 * kMib));
  EXPECT_FALSE(room.for_body(9 * kMib));
  EXPECT_TRUE(room.shortage());
}

TEST(StoreRoomTest, WhatWasWrittenSinceTheLookCounts) {
  Limits limits;
  limits.max_store_bytes = 64 * kMib;
  StoreRoom room(limits);
  room.look({0, 0, 0});
  EXPECT_FALSE(room.half_full());
  room.took(40 * kMib);
  EXPECT_TRUE(room.half_full());
  room.took(24 * kMib);
  EXPECT_FALSE(room.for_claim());
  room.look({10 * kMib, 0, 0});
  EXPECT_TRUE(room.for_claim());
}

TEST(StoreRoomTest, EachClaimSetsItsEndingAside) {
  Limits limits;
  limits.max_store_bytes = 64 * kMib;
  StoreRoom room(limits);
  room.look({63 * kMib - 2 * StoreRoom::kEndingBytes, 0, 0});
  ASSERT_TRUE(room.for_claim(StoreRoom::kEndingBytes));
  {
    const StoreRoom::Ending ending(room);
    EXPECT_FALSE(room.for_claim(StoreRoom::kEndingBytes));
  }
  EXPECT_TRUE(room.for_claim(StoreRoom::kEndingBytes));
}

TEST(StoreRoomTest, TheDisksReserveStaysFree) {
  Limits limits;
  limits.disk_reserve_bytes = 100 * kMib;
  StoreRoom room(limits);
  room.look({0, 101 * kMib, kGib});
  EXPECT_TRUE(room.for_claim());
  EXPECT_EQ(room.capacity(), kMib);
  room.look({0, 99 * kMib, kGib});
  EXPECT_FALSE(room.for_claim());
  EXPECT_TRUE(room.for_body(40 * kMib));
  EXPECT_FALSE(room.for_body(60 * kMib));
}

TEST(StoreRoomTest, TheReserveFollowsTheDiskWithinBounds) {
  Limits limits;
  EXPECT_EQ(disk_reserve(limits, kGib / 2), 64 * kMib);
  EXPECT_EQ(disk_reserve(limits, 10 * kGib), 512 * kMib);
  EXPECT_EQ(disk_reserve(limits, 1000 * kGib), kGib);
  limits.disk_reserve_part = 0.1;
  EXPECT_EQ(disk_reserve(limits, 1000 * kGib), 100 * kGib);
}

} // namespace
} // namespace oncekey
