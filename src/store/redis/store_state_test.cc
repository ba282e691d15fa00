#include "store/redis/store_state.h"

#include <gtest/gtest.h>

namespace oncekey::redis {
namespace {

const Host kHere{"h", 7000};

InfoFields usual_info() {
  return parse_info(
      "# Server\r\nredis_version:7.0.15\r\n# Memory\r\nused_memory:1000\r\nmaxmemory_policy:noeviction\r\n"
      "aof_enabled:1\r\naof_current_size:77\r\nrole:master\r\ncluster_enabled:0\r\ndb0:keys=12,expires=3,avg_ttl="
      "0\r\n");
}

Durability level(const char* appendfsync, const char* not_on_rewrite, const char* aof = "1") {
  InfoFields info = usual_info();
  info["aof_enabled"] = aof;
  return examine(info, {appendfsync, not_on_rewrite, "noeviction"}, *parse_url("redis://h"), kHere)->durability;
}

TEST(RedisExamination, TheLevelFollowsFromTheSettings) {
  EXPECT_EQ(level("always", "no"), Durability::power);
  EXPECT_EQ(level("always", "yes"), Durability::process);
  EXPECT_EQ(level("no", "no"), Durability::process);
  EXPECT_EQ(level("everysec", "no"), Durability::none);
  EXPECT_EQ(level("something", "no"), Durability::none);
  EXPECT_EQ(level("always", "no", "0"), Durability::none);
}

TEST(RedisExamination, WhatCannotBeKnownCountsAsTheLowerLevel) {
  const Examination found = *examine(usual_info(), {}, *parse_url("redis://h"), kHere);
  EXPECT_EQ(found.durability, Durability::none);
  EXPECT_NE(found.why.find("CONFIG is forbidden"), std::string::npos);
  EXPECT_FALSE(found.evicting) << "INFO tells the policy too";
  const Examination half = *examine(usual_info(), {"always", {}, {}}, *parse_url("redis://h"), kHere);
  EXPECT_EQ(half.durability, Durability::process);
}

TEST(RedisExamination, AServerThatMayDropRecordsIsNamed) {
  for (const char* const policy : {"allkeys-lru", "volatile-ttl", "allkeys-random"}) {
    const Examination found = *examine(usual_info(), {"always", "no", policy}, *parse_url("redis://h"), kHere);
    ASSERT_TRUE(found.evicting) << policy;
    EXPECT_NE(found.evicting->message.find(policy), std::string::npos);
  }
  InfoFields silent = usual_info();
  silent.erase("maxmemory_policy");
  EXPECT_TRUE(examine(silent, {}, *parse_url("redis://h"), kHere)->evicting);
}

std::string unsuitable(std::string_view name, std::string value, std::string_view url = "redis://h") {
  InfoFields info = usual_info();
  info[std::string(name)] = std::move(value);
  const Result<Examination> found = examine(info, {}, *parse_url(url), kHere);
  return found ? "suitable" : found.fault().message;
}

TEST(RedisExamination, WhatCannotBeUsedIsRefusedWithTheReason) {
  EXPECT_NE(unsuitable("redis_version", "6.0.16").find("needs 6.2"), std::string::npos);
  EXPECT_NE(unsuitable("redis_version", "5.0").find("needs 6.2"), std::string::npos);
  EXPECT_EQ(unsuitable("redis_version", "6.2.0"), "suitable");
  EXPECT_EQ(unsuitable("redis_version", "10.0.0"), "suitable");
  EXPECT_NE(unsuitable("role", "slave").find("is a replica"), std::string::npos);
  EXPECT_NE(unsuitable("cluster_enabled", "1").find("redis+cluster://"), std::string::npos);
  EXPECT_NE(unsuitable("role", "master", "redis+cluster://h:1").find("not a node of a cluster"), std::string::npos);
}

TEST(RedisExamination, WhatWasEvictedBetweenTwoLooksIsCounted) {
  const auto looked = [](const char* run_id, const char* evicted) {
    InfoFields info = usual_info();
    info["run_id"] = run_id;
    info["evicted_keys"] = evicted;
    return *examine(info, {}, *parse_url("redis://h"), kHere);
  };
  EXPECT_EQ(evicted_between(looked("a", "7"), looked("a", "7")), 0u) << "before us, perhaps for another program";
  EXPECT_EQ(evicted_between(looked("a", "7"), looked("a", "9")), 2u);
  EXPECT_EQ(evicted_between(looked("a", "7"), looked("b", "0")), 0u);
  EXPECT_EQ(evicted_between(looked("a", "7"), looked("b", "9")), 9u) << "it was started again and counts anew";
  EXPECT_EQ(evicted_between(looked("a", "7"), looked("a", "3")), 3u) << "its statistics were reset";
}

TEST(RedisExamination, NumbersForTheMetrics) {
  const Examination found = *examine(usual_info(), {}, *parse_url("redis://h"), kHere);
  EXPECT_EQ(found.keys, 12u);
  EXPECT_EQ(found.bytes_in_memory, 1000u);
  EXPECT_EQ(found.bytes_on_disk, 77u);
}

} // namespace
} // namespace oncekey::redis
