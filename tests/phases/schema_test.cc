// Opening, migrating, and the schema as text.
#include "database_under_test.h"

#include <thread>

namespace oncekey {
namespace {

class Schema : public OnEveryDatabase {};

TEST_P(Schema, MigratingTwiceChangesNothing) {
  run_sql(*database, "INSERT INTO oncekey_bucket (kind, name, ends_at) VALUES ('answer', 'bucket-25-1', 1)");
  EXPECT_TRUE(database->migrate().ok());
  EXPECT_EQ(number(*database, "SELECT count(*) FROM oncekey_bucket"), 1);
}

TEST_P(Schema, ManyMayMigrateAtOnce) {
  TestPlace fresh(GetParam());
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      auto opened = open_database(fresh.url());
      ASSERT_TRUE(opened.ok()) << opened.fault().message;
      const auto migrated = opened.value()->migrate();
      EXPECT_TRUE(migrated.ok()) << migrated.fault().message;
    });
  }
}

TEST_P(Schema, TheTextIsWhatMigrateRuns) {
  const auto text = schema_text(to_string(GetParam()));
  ASSERT_TRUE(text.ok());
  for (const char* const table : {"oncekey_operation", "oncekey_answer", "oncekey_job", "oncekey_inbox"}) {
    EXPECT_NE(text->find(table), std::string_view::npos) << table;
  }
  EXPECT_FALSE(schema_text("oracle").ok());
}

TEST_P(Schema, AnotherVersionIsToldBeforeAnythingIsDone) {
  for (const auto& [version, kind] :
       {std::pair(kSchemaVersion + 1, FaultKind::newer_format), {0, FaultKind::invalid}}) {
    run_sql(*database, "UPDATE oncekey_meta SET value = '" + std::to_string(version) + "' WHERE name = 'schema'");
    const auto opened = open_database(place.url());
    ASSERT_TRUE(opened.ok()) << opened.fault().message;
    const auto migrated = (*opened)->migrate();
    const auto ran = run_transaction(**opened, [](Transaction&) { ADD_FAILURE() << "it was run"; });
    for (const Status& status : {migrated, ran}) {
      ASSERT_FALSE(status.ok());
      EXPECT_EQ(status.fault().kind, kind);
      EXPECT_NE(status.fault().message.find("have schema version " + std::to_string(version)), std::string::npos);
    }
  }
}

TEST_P(Schema, MigratingNamesTheStatementThatFailed) {
  TestPlace fresh(GetParam());
  const auto opened = open_database(fresh.url());
  ASSERT_TRUE(opened.ok()) << opened.fault().message;
  run_sql(**opened, "CREATE TABLE oncekey_job (something_else text)");
  const auto migrated = (*opened)->migrate();
  ASSERT_FALSE(migrated.ok());
  EXPECT_NE(migrated.fault().message.find("in: CREATE INDEX IF NOT EXISTS oncekey_job_waiting"), std::string::npos)
      << migrated.fault().message;
}

TEST_P(Schema, ATransactionMayStageJobsAndIsUndoneWhole) {
  const auto done = run_transaction(*database, [](Transaction& transaction) {
    for (int i = 0; i < 200; ++i) transaction.stage_job({.sink = "mail", .name = "n", .args = std::to_string(i)});
  });
  ASSERT_TRUE(done.ok()) << done.fault().message;
  EXPECT_EQ(number(*database, "SELECT count(*) FROM oncekey_job"), 200);
  EXPECT_EQ(number(*database, "SELECT max(id) - min(id) FROM oncekey_job"), 199);
  EXPECT_THROW((void)run_transaction(*database,
                                     [](Transaction& transaction) {
                                       transaction.stage_job({.name = "never"});
                                       throw std::runtime_error("no");
                                     })
                   .ok(),
               std::runtime_error);
  EXPECT_EQ(number(*database, "SELECT count(*) FROM oncekey_job"), 200);
}

TEST_P(Schema, ValuesOfEveryKindGoInAndComeBack) {
  run_sql(*database, on_postgres() ? "CREATE TABLE v (i bigint, d double precision, t text, b bytea, n text)"
                                   : "CREATE TABLE v (i INTEGER, d REAL, t TEXT, b BLOB, n TEXT)");
  const auto done = run_transaction(*database, [](Transaction& transaction) {
    const std::string bytes("\0\xff'\\", 4);
    transaction.execute("INSERT INTO v VALUES ($1, $2, $3, $4, $5)", {-7, 0.1, "t'ü", Bytes{bytes}, nullptr});
    const auto rows = transaction.execute("SELECT i, d, t, b, n FROM v WHERE i = $1", {-7});
    ASSERT_EQ(rows.rows.size(), 1u);
    EXPECT_EQ(rows.rows[0].integer(0), -7);
    EXPECT_EQ(rows.rows[0].real(1), 0.1);
    EXPECT_EQ(rows.rows[0].text(2), "t'ü");
    EXPECT_EQ(rows.rows[0].text(3), bytes);
    EXPECT_TRUE(rows.rows[0].is_null(4));
    EXPECT_EQ(transaction.execute("UPDATE v SET i = 8").changed, 1);
  });
  EXPECT_TRUE(done.ok());
}

TEST_P(Schema, AnErrorOfADatabaseSaysItsCode) {
  try {
    (void)run_transaction(*database, [&](Transaction& transaction) {
      transaction.execute("INSERT INTO oncekey_bucket (kind, name, ends_at) VALUES ('a', 'b', 1)");
      transaction.execute("INSERT INTO oncekey_bucket (kind, name, ends_at) VALUES ('a', 'b', 1)");
    }).ok();
    FAIL() << "no exception";
  } catch (const DatabaseError& error) {
    EXPECT_EQ(error.code(), on_postgres() ? "23505" : "1555");
  }
}

ONCEKEY_ON_EVERY_DATABASE(Schema);

TEST(OpenDatabase, RefusesWhatItCannotUse) {
  EXPECT_EQ(open_database("mysql://x").fault().kind, FaultKind::invalid);
  EXPECT_EQ(open_database("sqlite:").fault().kind, FaultKind::invalid);
  EXPECT_EQ(open_database("sqlite::memory:").fault().kind, FaultKind::invalid);
  EXPECT_EQ(open_database("sqlite:/no/such/folder/x.db").fault().kind, FaultKind::unavailable);
  const auto refused = open_database("postgres://me:secret@127.0.0.1:1/x");
  EXPECT_EQ(refused.fault().kind, FaultKind::unavailable);
  EXPECT_EQ(refused.fault().message.find("secret"), std::string::npos);
}

} // namespace
} // namespace oncekey
