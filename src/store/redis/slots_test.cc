#include "store/redis/slots.h"

#include <gtest/gtest.h>

#include <set>

namespace oncekey::redis {
namespace {

TEST(RedisSlots, TheChecksumIsTheOneOfTheClusterSpecification) {
  EXPECT_EQ(crc16("123456789"), 0x31C3);
  EXPECT_EQ(crc16(""), 0);
}

TEST(RedisSlots, KnownKeysHaveTheirKnownSlots) {
  // As CLUSTER KEYSLOT answers.
  EXPECT_EQ(slot_of("foo"), 12182);
  EXPECT_EQ(slot_of("somekey"), 11058);
  EXPECT_EQ(slot_of("foo{hash_tag}"), 2515);
}

TEST(RedisSlots, OnlyTheFirstTagThatIsNotEmptyCounts) {
  EXPECT_EQ(slot_of("{user1000}.following"), slot_of("user1000"));
  EXPECT_EQ(slot_of("foo{}{bar}"), crc16("foo{}{bar}") % kSlots);
  EXPECT_EQ(slot_of("foo{{bar}}zap"), slot_of("{bar"));
  EXPECT_EQ(slot_of("foo{bar}{zap}"), slot_of("bar"));
  EXPECT_EQ(slot_of("foo{bar"), crc16("foo{bar") % kSlots);
}

TEST(RedisKeyNames, EachPartitionHasItsOwnStretchOfSlots) {
  const KeyNames names("p", kClusterPartitions);
  for (std::uint32_t partition = 0; partition < kClusterPartitions; ++partition) {
    EXPECT_EQ(names.slot(partition) / 16u, partition);
    EXPECT_EQ(slot_of(names.marker(partition)), names.slot(partition));
  }
  EXPECT_EQ(slot_of(names.meta()), names.slot(0));
}

TEST(RedisKeyNames, ARecordLivesInTheSlotOfItsMarker) {
  const KeyNames names("p", kClusterPartitions);
  std::set<std::uint32_t> used;
  for (int high = 0; high < 256; ++high) {
    for (const int low : {0, 63, 64, 128, 200, 255}) {
      RecordId id;
      id.bytes[0] = static_cast<std::uint8_t>(high);
      id.bytes[1] = static_cast<std::uint8_t>(low);
      EXPECT_EQ(slot_of(names.record(id)), names.slot(names.partition_of(id)));
      used.insert(names.partition_of(id));
    }
  }
  EXPECT_EQ(used.size(), kClusterPartitions);
}

TEST(RedisKeyNames, TheNamesStayAsTheyAre) {
  const KeyNames one("oncekey", 1);
  RecordId id;
  id.bytes.fill(0xab);
  EXPECT_EQ(one.meta(), "oncekey:{0}:meta");
  EXPECT_EQ(one.marker(0), "oncekey:{0}:marker");
  EXPECT_EQ(one.record(id), "oncekey:{0}:" + to_hex(id));
  const KeyNames many("oncekey", kClusterPartitions);
  EXPECT_EQ(many.marker(0), "oncekey:{460}:marker");
  EXPECT_EQ(many.marker(1023), "oncekey:{430}:marker");
}

TEST(RedisKeyNames, ABucketIsNoRecordAndLivesInAPartition) {
  const KeyNames names("p", kClusterPartitions);
  RateBucketId bucket;
  bucket.bytes.fill(0x17);
  EXPECT_EQ(slot_of(names.bucket(bucket)), names.slot(names.partition_of(bucket)));
  EXPECT_FALSE(names.id_of(names.bucket(bucket)));
}

TEST(RedisKeyNames, AKeyIsARecordOnlyUnderItsExactName) {
  const KeyNames names("p", kClusterPartitions);
  RecordId id;
  id.bytes.fill(0x17);
  EXPECT_EQ(names.id_of(names.record(id)), id);
  EXPECT_FALSE(names.id_of(names.marker(3)));
  EXPECT_FALSE(names.id_of("p:{1}:" + to_hex(id)));
  EXPECT_FALSE(names.id_of("q" + names.record(id)));
  EXPECT_FALSE(names.id_of("short"));
}

Result<std::vector<SlotRange>> slots_from(std::string_view bytes) {
  ReplyReader reader;
  reader.feed(bytes);
  Result<std::optional<OwnedReply>> reply = reader.next();
  return parse_slots((*reply)->look(), {"asked", 7000});
}

TEST(RedisSlots, TheAnswerToClusterSlotsIsRead) {
  const auto ranges = slots_from(
      "*2\r\n*4\r\n:0\r\n:8191\r\n*3\r\n$8\r\n10.0.0.1\r\n:7001\r\n$2\r\nid\r\n*3\r\n$8\r\n10.0.0.9\r\n:7009\r\n$"
      "2\r\nid\r\n"
      "*3\r\n:8192\r\n:16383\r\n*3\r\n$0\r\n\r\n:7002\r\n$2\r\nid\r\n");
  ASSERT_TRUE(ranges);
  EXPECT_EQ(*ranges, (std::vector<SlotRange>{{0, 8191, {"10.0.0.1", 7001}}, {8192, 16383, {"asked", 7002}}}));
}

TEST(RedisSlots, NonsenseInPlaceOfSlotsIsAFault) {
  EXPECT_FALSE(slots_from("+OK\r\n"));
  EXPECT_FALSE(slots_from("*1\r\n*1\r\n:0\r\n"));
  EXPECT_FALSE(slots_from("*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n$1\r\na\r\n:7\r\n"));
  EXPECT_FALSE(slots_from("*1\r\n*3\r\n:9\r\n:3\r\n*2\r\n$1\r\na\r\n:7\r\n"));
}

} // namespace
} // namespace oncekey::redis
