// What a server's settings mean to the store, and how it notices that a server has forgotten: evicted, flushed,
// replaced by an older copy.
#include "support/redis_store_fixture.h"

#include <array>
#include <future>
#include <set>

namespace oncekey::redis::store_tests {
namespace {

TEST_F(RedisServer, TheLevelFollowsTheSettings) {
  const auto store = open();
  EXPECT_EQ(store->durability(), Durability::power);
  console_->set("appendfsync", "everysec");
  EXPECT_TRUE(eventually([&] { return store->durability() == Durability::none; }));
  console_->set("appendfsync", "always");
  cut_connections();
  EXPECT_TRUE(eventually([&] { return store->durability() == Durability::power; })) << "looked at when connected";
}

TEST_F(RedisServer, AnEvictingServerIsRefusedAndNoticedLater) {
  const auto store = open();
  console_->set("maxmemory-policy", "allkeys-lru");
  EXPECT_THAT(refusal(url()), HasSubstr("noeviction"));
  EXPECT_TRUE(eventually([&] { return !store->healthy(); }));
  EXPECT_THAT(claim(*store, random_id()).fault().message, HasSubstr("allkeys-lru"));
  console_->set("maxmemory-policy", "noeviction");
  EXPECT_TRUE(eventually([&] { return claims(*store); }));
}

TEST_F(RedisServer, WhatWasEvictedIsALossAlsoWhenThePolicyIsRightAgain) {
  const auto store = open();
  const auto other = open();
  const RecordId evicted = random_id();
  ASSERT_TRUE(claim(*store, evicted));
  console_->set("maxmemory-policy", "volatile-ttl");
  console_->set("maxmemory", "1");
  EXPECT_TRUE(eventually([&] { return console_->ask({"EXISTS", key_of(evicted)}).look().integer() == 0; }));
  console_->set("maxmemory", "0");
  console_->set("maxmemory-policy", "noeviction");
  const auto knows = [](Store& each) { return refusal_to_claim(each).find("has evicted") != std::string::npos; };
  EXPECT_TRUE(eventually([&] { return knows(*store) && knows(*other); }));
  EXPECT_THAT(store->healthy().fault().message, HasSubstr("accept-loss"));
  EXPECT_TRUE(eventually([&] { return console_->text({"HGET", KeyNames(prefix_, 1).meta(), "lost"}) == "1"; }));
  EXPECT_THAT(refusal_to_claim(*open()), HasSubstr("lost its memory")) << "a gateway that starts later is told";
  ASSERT_TRUE(accept_lost_memory_redis({.url = url(), .log = log_}));
  EXPECT_TRUE(eventually([&] { return claims(*store) && claims(*other); }));
  cut_connections();
  EXPECT_TRUE(eventually([&] { return claims(*store) && claims(*other); })) << "what is accepted is not found again";
}

TEST_F(RedisServer, AFullServerRefusesAndNothingHappens) {
  const auto store = open();
  const RecordId owned = random_id();
  ASSERT_TRUE(claim(*store, owned));
  console_->set("maxmemory", "1");
  const RecordId id = random_id();
  const Result<ClaimAnswer> refused = claim(*store, id);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.fault().kind, FaultKind::unavailable);
  EXPECT_THAT(refused.fault().message, HasSubstr("OOM"));
  EXPECT_THAT(refused.fault().message, HasSubstr("raise maxmemory"));
  EXPECT_EQ(complete(*store, owned, fence_of(*store, owned)).fault().kind, FaultKind::unavailable);
  EXPECT_TRUE(*find(*store, owned)) << "reading is possible";
  console_->set("maxmemory", "0");
  EXPECT_FALSE(*find(*store, id));
  EXPECT_EQ(*complete(*store, owned, fence_of(*store, owned)), FenceAnswer::done);
}

TEST_F(RedisServer, WithoutTheReplicasToWaitForNothingCounts) {
  const auto store = open("&wait=1&call_timeout=400ms");
  const Result<ClaimAnswer> answer = claim(*store, random_id());
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.fault().kind, FaultKind::timeout) << "it may have happened";
  EXPECT_THAT(answer.fault().message, HasSubstr("replicas"));
}

TEST_F(RedisServer, AForeignValueUnderOurNameIsAFaultAndNotACrash) {
  const auto store = open();
  const RecordId short_one = random_id();
  const RecordId list_one = random_id();
  const RecordId new_one = random_id();
  console_->ask({"SET", key_of(short_one), "hello"});
  console_->ask({"LPUSH", key_of(list_one), "hello"});
  console_->ask({"SET", key_of(new_one), std::string(200, '\2')});
  EXPECT_EQ(claim(*store, short_one).fault().kind, FaultKind::corrupt);
  EXPECT_EQ(claim(*store, list_one).fault().kind, FaultKind::corrupt);
  EXPECT_EQ(find(*store, new_one).fault().kind, FaultKind::newer_format);
  EXPECT_TRUE(claims(*store));
}

// Memory.

TEST_F(RedisServer, AFlushedServerIsNoticedAndRefusedUntilTheLossIsAccepted) {
  const auto store = open();
  const RecordId forgotten = random_id();
  ASSERT_TRUE(claim(*store, forgotten));
  const std::uint64_t before = fence_of(*store, forgotten);
  console_->ask({"FLUSHALL"});
  EXPECT_FALSE(claim(*store, forgotten)) << "noticed by the claim itself, at once";
  EXPECT_THAT(store->healthy().fault().message, HasSubstr("accept-loss"));
  // A gateway that starts now is told as well, by those that were there before.
  const auto later = [&] {
    EXPECT_TRUE(eventually([&] { return console_->text({"HGET", KeyNames(prefix_, 1).meta(), "lost"}) == "1"; }));
    return open();
  }();
  EXPECT_FALSE(claims(*later));
  ASSERT_TRUE(accept_lost_memory_redis({.url = url(), .log = log_}));
  EXPECT_TRUE(eventually([&] { return claims(*store) && claims(*later); }));
  EXPECT_TRUE(store->healthy());
  EXPECT_EQ(store->secret(), later->secret());
  EXPECT_GT(std::get<Claimed>(*claim(*store, forgotten)).fence, before) << "the counter was lost and began again";
}

TEST_F(RedisServer, ASecretThatDoesNotFitItsCheckValueIsRefused) {
  ASSERT_TRUE(open());
  std::string secret = console_->text({"HGET", KeyNames(prefix_, 1).meta(), "secret"});
  secret[5] ^= 1;
  console_->ask({"HSET", KeyNames(prefix_, 1).meta(), "secret", secret});
  EXPECT_THAT(refusal(url()), HasSubstr("does not fit its check value"));
}

TEST_F(RedisServer, AMarkerFromThePastIsALoss) {
  const auto store = open();
  EXPECT_TRUE(eventually([&] { return console_->text({"HGET", marker(), "tick"}) > "2"; }));
  console_->ask({"HSET", marker(), "tick", "0"});
  EXPECT_TRUE(eventually([&] { return !store->healthy(); }));
  EXPECT_THAT(claim(*store, random_id()).fault().message, HasSubstr("lost its memory"));
  ASSERT_TRUE(accept_lost_memory_redis({.url = url(), .log = log_}));
  EXPECT_TRUE(eventually([&] { return claims(*store); }));
}

TEST_F(RedisServer, AnOlderCopyIsNoticedByTheClaimItselfAndNothingHappens) {
  const auto store = open();
  EXPECT_TRUE(eventually([&] { return console_->text({"HGET", marker(), "tick"}) > "2"; }));
  ASSERT_TRUE(find(*store, random_id())) << "any answer tells the tick";
  console_->ask({"HSET", marker(), "tick", "1"});
  const RecordId id = random_id();
  const Result<ClaimAnswer> refused = claim(*store, id);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.fault().message, HasSubstr("it is at tick 1 and was at"));
  EXPECT_EQ(console_->ask({"EXISTS", key_of(id)}).look().integer(), 0);
  EXPECT_EQ(console_->text({"HGET", marker(), "tick"}), "1") << "others must be able to notice it as well";
  // With a marker that has replaced one before it is no different.
  ASSERT_TRUE(accept_lost_memory_redis({.url = url(), .log = log_}));
  EXPECT_TRUE(eventually([&] { return claims(*store); }));
  EXPECT_TRUE(eventually([&] { return console_->text({"HGET", marker(), "tick"}) > "1"; }));
  ASSERT_TRUE(find(*store, random_id()));
  console_->ask({"HSET", marker(), "tick", "0"});
  EXPECT_FALSE(claims(*store));
}

TEST_F(RedisServer, AFullServerThatCannotCountHasNotForgotten) {
  const auto store = open();
  EXPECT_TRUE(eventually([&] { return console_->text({"HGET", marker(), "tick"}) > "1"; }));
  console_->set("maxmemory", "1");
  const std::string tick = console_->text({"HGET", marker(), "tick"});
  std::this_thread::sleep_for(std::chrono::milliseconds(1500)); // longer than from one tick to the next
  ASSERT_TRUE(find(*store, random_id()));
  EXPECT_EQ(console_->text({"HGET", marker(), "tick"}), tick) << "it was counted: the test shows nothing";
  EXPECT_TRUE(store->healthy());
  console_->set("maxmemory", "0");
  EXPECT_TRUE(claims(*store));
}

TEST_F(RedisServer, AStoreMadeAnewWithAnotherSecretIsNotOurs) {
  const auto store = open();
  for (const std::string& key : {marker(), KeyNames(prefix_, 1).meta()}) console_->ask({"DEL", key});
  ASSERT_TRUE(accept_lost_memory_redis({.url = url(), .log = log_})) << "before any gateway could notice";
  EXPECT_TRUE(eventually([&] { return !store->healthy(); }));
  EXPECT_FALSE(claims(*store));
  EXPECT_TRUE(eventually([&] {
    const Status healthy = store->healthy();
    return !healthy && (healthy.fault().message.find("restart") != std::string::npos ||
                        healthy.fault().message.find("lost its memory") != std::string::npos);
  }));
}

TEST_F(RedisServer, TwoThatStartAtOnceAgree) {
  std::vector<std::future<std::unique_ptr<Store>>> opening;
  for (int i = 0; i < 4; ++i) opening.push_back(std::async(std::launch::async, [this] { return open(); }));
  std::set<std::array<std::uint8_t, 32>> secrets;
  for (auto& each : opening) secrets.insert(each.get()->secret());
  EXPECT_EQ(secrets.size(), 1u);
}

} // namespace
} // namespace oncekey::redis::store_tests
