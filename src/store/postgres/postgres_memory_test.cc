// How the store notices that a server has forgotten, or is not the one it was: a promoted standby, an older copy, a
// schema that was dropped or is newer.
#include "support/postgres_store_fixture.h"

#include <future>
#include <set>
#include <thread>
#include <vector>

namespace oncekey::postgres_tests {
namespace {

TEST_F(PostgresStoreTest, APromotedStandbyGivesNoFenceASecondTime) {
  const auto store = open();
  ASSERT_TRUE(store);
  ASSERT_TRUE(owns(claim(*store, 1)));
  const std::uint64_t given = fence_of(*store, 1);
  // What a standby that lacks the last writes has, once it is promoted: an older counter, on a new timeline.
  sql("SELECT setval('oncekey.fence', 5)");
  sql("UPDATE oncekey.meta SET timeline = 'an older one'");
  sql("DELETE FROM oncekey.record");
  ASSERT_TRUE(owns(claim(*store, 1)));
  EXPECT_GT(fence_of(*store, 1), given);
  const std::uint64_t after = fence_of(*store, 1);
  ASSERT_TRUE(owns(claim(*store, 2)));
  EXPECT_LT(fence_of(*store, 2), after + 10) << "moved on once";
}

TEST_F(PostgresStoreTest, ACounterAheadOfTheClockIsNotSetBack) {
  const auto store = open();
  ASSERT_TRUE(store);
  ASSERT_TRUE(owns(claim(*store, 1)));
  sql("SELECT setval('oncekey.fence', 8000000000000000)");
  sql("UPDATE oncekey.meta SET timeline = 'an older one'");
  ASSERT_TRUE(owns(claim(*store, 2)));
  EXPECT_GT(fence_of(*store, 2), 8000000000000000u);
}

TEST_F(PostgresStoreTest, ATickThatWentBackIsLostMemoryUntilAnOperatorAcceptsIt) {
  const auto store = open();
  ASSERT_TRUE(store);
  ASSERT_TRUE(owns(claim(*store, 1)));
  for (int times = 0; times < 3; ++times) ASSERT_TRUE(store->maintain());
  sql("UPDATE oncekey.meta SET tick = 0");
  ASSERT_TRUE(store->maintain());
  EXPECT_FALSE(store->healthy());
  const Result<ClaimAnswer> refused = claim(*store, 2);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.fault().kind, FaultKind::conflict);
  EXPECT_NE(refused.fault().message.find("it is at tick 1 and was at "), std::string::npos) << refused.fault().message;
  EXPECT_EQ(*complete(*store, 1, "what was begun may be finished"), FenceAnswer::done);
  EXPECT_EQ(sql("SELECT lost FROM oncekey.meta"), "t");

  const auto later = open();
  ASSERT_TRUE(later);
  EXPECT_FALSE(claim(*later, 3)) << "a gateway that starts now must refuse as well";

  ASSERT_TRUE(accept_lost_memory_postgres(options()));
  EXPECT_TRUE(store->maintain());
  EXPECT_TRUE(owns(claim(*store, 2)));
  EXPECT_TRUE(owns(claim(*open(), 3)));
}

TEST_F(PostgresStoreTest, AStoreCreatedAnewIsNoticedByTheClaimItself) {
  const auto store = open();
  ASSERT_TRUE(store);
  ASSERT_TRUE(owns(claim(*store, 1)));
  sql("UPDATE oncekey.meta SET generation = 'another'");
  EXPECT_FALSE(claim(*store, 2));
  EXPECT_FALSE(store->healthy());
  EXPECT_EQ(sql("SELECT count(*) FROM oncekey.record"), "1");
}

TEST_F(PostgresStoreTest, ATickThatWentBackIsNoticedByTheClaimItselfOverAConnectionThatStayed) {
  const auto store = open();
  ASSERT_TRUE(store);
  ASSERT_TRUE(owns(claim(*store, 1)));
  for (int times = 0; times < 3; ++times) ASSERT_TRUE(store->maintain());
  sql("UPDATE oncekey.meta SET tick = 1");
  const Result<ClaimAnswer> refused = claim(*store, 2);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.fault().kind, FaultKind::conflict);
  EXPECT_EQ(sql("SELECT count(*) FROM oncekey.record"), "1");
  EXPECT_EQ(sql("SELECT lost FROM oncekey.meta"), "t");
}

TEST_F(PostgresStoreTest, NoJobIsTakenFromAStoreWhoseTickWentBackAndNoneStaged) {
  const auto store = open();
  ASSERT_TRUE(store);
  StageRequest job;
  job.id = request(1).id;
  job.route = "queue";
  job.retention = request(1).retention;
  const auto stage = [&] {
    return wait_for<StageAnswer>([&](auto done) { store->jobs().stage(job, std::move(done)); });
  };
  ASSERT_TRUE(stage());
  for (int times = 0; times < 3; ++times) ASSERT_TRUE(store->maintain());
  sql("UPDATE oncekey.meta SET tick = 1");
  const TakeRequest wanted{"queue", 10, kLease, {}};
  const auto taken = wait_for<std::vector<TakenJob>>([&](auto done) { store->jobs().take(wanted, std::move(done)); });
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.fault().kind, FaultKind::conflict);
  EXPECT_EQ(sql("SELECT count(*) FROM oncekey.job WHERE state = 2"), "0");
  job.id = request(2).id;
  EXPECT_FALSE(stage());
  EXPECT_EQ(sql("SELECT count(*) FROM oncekey.job"), "1");
}

TEST_F(PostgresStoreTest, ADroppedSchemaIsLostMemoryForThoseThatStartLaterToo) {
  const auto store = open();
  ASSERT_TRUE(store);
  ASSERT_TRUE(owns(claim(*store, 1)));
  sql("DROP SCHEMA oncekey CASCADE");
  EXPECT_FALSE(claim(*store, 1));
  EXPECT_FALSE(store->healthy());
  const auto later = open();
  ASSERT_TRUE(later);
  const Result<ClaimAnswer> refused = claim(*later, 1);
  ASSERT_FALSE(refused) << "it would be executed again";
  EXPECT_EQ(refused.fault().kind, FaultKind::conflict);
  ASSERT_TRUE(accept_lost_memory_postgres(options()));
  for (PostgresStore* const each : {store.get(), later.get()}) EXPECT_TRUE(each->maintain());
  EXPECT_TRUE(owns(claim(*store, 1))) << "ids are made with the same secret";
  EXPECT_FALSE(owns(claim(*later, 1)));
}

TEST_F(PostgresStoreTest, AStoreMadeAnewBeforeTheLossWasNoticedIsRefusedAsSoonAsItIs) {
  const auto store = open();
  ASSERT_TRUE(store);
  sql("DROP SCHEMA oncekey CASCADE");
  const auto unaware = open();
  ASSERT_TRUE(unaware);
  EXPECT_TRUE(store->maintain());
  EXPECT_EQ(sql("SELECT lost FROM oncekey.meta"), "t");
  EXPECT_FALSE(claim(*unaware, 1));
}

TEST_F(PostgresStoreTest, ASecretThatDoesNotFitItsCheckValueIsRefused) {
  ASSERT_TRUE(open());
  sql("UPDATE oncekey.meta SET secret = overlay(secret placing '\\x0102030405' from 3)");
  const auto opened = PostgresStore::open(options());
  ASSERT_FALSE(opened);
  EXPECT_THAT(opened.fault().message, testing::HasSubstr("does not fit its check value"));
}

TEST_F(PostgresStoreTest, ADroppedSchemaWithAnotherSecretNeedsARestart) {
  const auto store = open();
  ASSERT_TRUE(store);
  ASSERT_TRUE(owns(claim(*store, 1)));
  sql("DROP SCHEMA oncekey CASCADE");
  ASSERT_TRUE(accept_lost_memory_postgres(options()));
  EXPECT_TRUE(store->maintain());
  EXPECT_FALSE(claim(*store, 2)) << "its ids are made with a secret that no other store has";
  const auto restarted = open();
  ASSERT_TRUE(restarted);
  EXPECT_TRUE(owns(claim(*restarted, 1)));
}

TEST_F(PostgresStoreTest, AStoreWithoutItsMarkerIsNotOpened) {
  ASSERT_TRUE(open());
  sql("DELETE FROM oncekey.meta");
  const auto opened = PostgresStore::open(options());
  ASSERT_FALSE(opened);
  EXPECT_NE(opened.fault().message.find("accept-loss"), std::string::npos) << opened.fault().message;
}

TEST_F(PostgresStoreTest, ManyMayMigrateAtOnce) {
  std::vector<std::jthread> starting;
  for (int number = 0; number < 6; ++number) {
    starting.emplace_back([&] {
      const Status migrated = migrate_postgres(options());
      EXPECT_TRUE(migrated) << migrated.fault().message;
    });
  }
  starting.clear();
  EXPECT_EQ(sql("SELECT count(*) FROM oncekey.meta"), "1");
}

TEST_F(PostgresStoreTest, ANewerStoreIsOpenedWhereItSaysSoAndElseRefused) {
  ASSERT_TRUE(open());
  sql("INSERT INTO oncekey.migration (number, name, compatible_from) VALUES (98, 'of the future', 1)");
  EXPECT_TRUE(PostgresStore::open(options()));
  sql("INSERT INTO oncekey.migration (number, name, compatible_from) VALUES (99, 'of the far future', 99)");
  const auto refused = PostgresStore::open(options());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.fault().kind, FaultKind::newer_format);
}

TEST_F(PostgresStoreTest, AServerThatIsNotThereIsSaidAtOnceAndWithoutThePassword) {
  const auto opened = PostgresStore::open(options("postgres://user:secret@127.0.0.1:1/shop"));
  ASSERT_FALSE(opened);
  EXPECT_NE(opened.fault().message.find("127.0.0.1:1/shop"), std::string::npos) << opened.fault().message;
  EXPECT_EQ(opened.fault().message.find("secret"), std::string::npos) << opened.fault().message;
}

} // namespace
} // namespace oncekey::postgres_tests
