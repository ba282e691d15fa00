#include "store/postgres/server.h"

#include "store/postgres/batch_sender.h"

#include <gtest/gtest.h>

namespace oncekey::postgres {
namespace {

PostgresSettings good_settings() {
  PostgresSettings settings;
  settings.version = 150004;
  settings.fsync = "on";
  settings.full_page_writes = "on";
  settings.synchronous_commit = "on";
  settings.isolation = "read committed";
  return settings;
}

TEST(DurabilityOf, EveryKindOfCommitThatWaitsForTheDiskSurvivesAPowerCut) {
  for (const char* const commit : {"on", "local", "remote_write", "remote_apply"}) {
    PostgresSettings settings = good_settings();
    settings.synchronous_commit = commit;
    EXPECT_EQ(durability_of(settings), Durability::power) << commit;
  }
}

TEST(DurabilityOf, WithoutSyncsOrMendedPagesOnlyAKillIsSurvived) {
  PostgresSettings unsynced = good_settings();
  unsynced.fsync = "off";
  EXPECT_EQ(durability_of(unsynced), Durability::process);
  PostgresSettings torn = good_settings();
  torn.full_page_writes = "off";
  EXPECT_EQ(durability_of(torn), Durability::process);
}

TEST(DurabilityOf, CommitsAnsweredFromMemoryPromiseNothing) {
  PostgresSettings settings = good_settings();
  settings.synchronous_commit = "off";
  EXPECT_EQ(durability_of(settings), Durability::none);
}

TEST(Suitable, AUsualServerIs) { EXPECT_TRUE(suitable(good_settings(), "h/d")); }

TEST(Suitable, OldStandbyReadOnlyAndSerializableServersAreNot) {
  PostgresSettings old = good_settings();
  old.version = 130012;
  EXPECT_FALSE(suitable(old, "h/d"));
  PostgresSettings standby = good_settings();
  standby.in_recovery = true;
  EXPECT_FALSE(suitable(standby, "h/d"));
  PostgresSettings read_only = good_settings();
  read_only.read_only = true;
  EXPECT_FALSE(suitable(read_only, "h/d"));
  PostgresSettings serializable = good_settings();
  serializable.isolation = "serializable";
  EXPECT_FALSE(suitable(serializable, "h/d"));
}

TEST(Migrations, AreNumberedInOrderFromOne) {
  int expected = 1;
  for (const Migration& migration : migrations()) {
    EXPECT_EQ(migration.number, expected++);
    EXPECT_LE(migration.compatible_from, migration.number);
  }
}

TEST(Migrations, AnOlderBinaryGoesOnWhereTheNewestSaysItMay) {
  EXPECT_TRUE(can_work_on({0, 0}, 3));
  EXPECT_TRUE(can_work_on({3, 2}, 3));
  EXPECT_TRUE(can_work_on({5, 3}, 3));
  const Status refused = can_work_on({5, 4}, 3);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.fault().kind, FaultKind::newer_format);
}

TEST(MissingBucket, IsReadOutOfTheErrorInAnyLanguage) {
  SqlError error{"23514", "no partition", "Partition key of the failing row contains (bucket) = (123456).", "record"};
  EXPECT_EQ(missing_bucket(error), 123456);
  error.detail = "Der Partitionierungsschl\xc3\xbcssel enth\xc3\xa4lt (bucket) = (42).";
  EXPECT_EQ(missing_bucket(error), 42);
}

TEST(MissingBucket, IsNothingInOtherErrors) {
  EXPECT_FALSE(missing_bucket({"23514", "", "(bucket) = (42).", "meta"}));
  EXPECT_FALSE(missing_bucket({"23505", "", "(bucket) = (42).", "record"}));
  EXPECT_FALSE(missing_bucket({"23514", "", "no number here", "record"}));
  EXPECT_FALSE(missing_bucket({"23514", "", "(bucket) = (", "record"}));
}

} // namespace
} // namespace oncekey::postgres
