#include "store/common/replay_cache.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

RecordId cached_id(std::uint8_t number) {
  RecordId id;
  id.bytes[0] = number; // all in one shard, since another byte tells shards apart
  return id;
}

Record completed(std::string body) {
  Record record;
  record.state = RecordState::completed;
  record.response.emplace();
  record.response->body = std::move(body);
  return record;
}

TEST(ReplayCache, GivesBackWhatWasPutIn) {
  ReplayCache cache(1u << 20);
  EXPECT_EQ(cache.find(cached_id(1)), nullptr);
  cache.insert(cached_id(1), completed("answer"));
  ASSERT_NE(cache.find(cached_id(1)), nullptr);
  EXPECT_EQ(cache.find(cached_id(1))->response->body, "answer");
}

TEST(ReplayCache, KeepsNothingThatMayStillChange) {
  ReplayCache cache(1u << 20);
  Record working = completed("answer");
  working.state = RecordState::in_progress;
  cache.insert(cached_id(1), working);
  Record streaming = completed("");
  streaming.response->omitted = OmittedBody{};
  cache.insert(cached_id(2), streaming);
  EXPECT_EQ(cache.find(cached_id(1)), nullptr);
  EXPECT_EQ(cache.find(cached_id(2)), nullptr);
}

TEST(ReplayCache, LetsGoOfWhatWasUsedLongestAgo) {
  ReplayCache cache(16 * 3 * (sizeof(Record) + 512 + 100)); // room for three in a shard
  for (std::uint8_t i = 1; i <= 3; ++i) cache.insert(cached_id(i), completed(std::string(90, 'x')));
  ASSERT_NE(cache.find(cached_id(1)), nullptr);
  cache.insert(cached_id(4), completed(std::string(90, 'x')));
  EXPECT_NE(cache.find(cached_id(1)), nullptr);
  EXPECT_EQ(cache.find(cached_id(2)), nullptr);
  EXPECT_NE(cache.find(cached_id(4)), nullptr);
}

TEST(ReplayCache, PutsANewerRecordInPlaceOfTheOlder) {
  ReplayCache cache(1u << 20);
  cache.insert(cached_id(1), completed("old"));
  cache.insert(cached_id(1), completed("new"));
  EXPECT_EQ(cache.find(cached_id(1))->response->body, "new");
}

} // namespace
} // namespace oncekey
