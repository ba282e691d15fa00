// What only Postgres can do to a connection: forget what was prepared, change a table under it, and sit behind a
// pooler.
#include "database_under_test.h"
#include "ride_app.h"

#include <oncekey/runner.h>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <libpq-fe.h>

#include <cstdlib>
#include <thread>

namespace oncekey {
namespace {

using namespace std::chrono_literals;

// One connection, so that what one transaction prepared the next one meets.
class PostgresConnection : public testing::Test {
 protected:
  PostgresConnection() { make_ride_tables(*database); }

  static DatabaseOptions one_connection() {
    DatabaseOptions options;
    options.connections_max = 1;
    return options;
  }
  static Operation one_phase(Operation::PhaseFunction code) {
    Operation operation("book_ride");
    operation.phase("started", std::move(code));
    return operation;
  }
  static void expect_finished(Runner& runner, const std::string& key) {
    const auto outcome = runner.run(ride_request(key));
    ASSERT_TRUE(outcome.ok()) << outcome.fault().message;
    EXPECT_TRUE(std::holds_alternative<Finished>(outcome.value())) << outcome->index();
  }
  std::int64_t prepared_like(const std::string& text) {
    return number(*database,
                  fmt::format("SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '{}%'", text));
  }

  TestPlace place{Dialect::postgres};
  std::unique_ptr<Database> database = place.open(one_connection());
};

TEST_F(PostgresConnection, CopyIsRefusedAndTheNextRunHasAnotherConnection) {
  for (const std::string sql : {"COPY audit (what) FROM STDIN", "COPY audit TO STDOUT"}) {
    const std::string key = sql.ends_with("STDIN") ? "in" : "out";
    bool copied = false;
    Runner runner(*database, {one_phase([&](Phase& phase) {
      if (!copied) {
        copied = true;
        phase.execute(sql);
      }
      return phase.respond(200, "", "");
    })});
    try {
      (void)runner.run(ride_request(key)).ok();
      ADD_FAILURE() << "no error: " << sql;
    } catch (const DatabaseError& error) {
      EXPECT_NE(std::string(error.what()).find("COPY is not for execute()"), std::string::npos) << error.what();
    }
    expect_finished(runner, key);
  }
}

TEST_F(PostgresConnection, PreparesAStatementOfTheApplicationWhenItComesAgain) {
  const auto insert = [&](int i) {
    return run_transaction(*database, [&](Transaction& transaction) {
      transaction.execute("INSERT INTO audit (what) VALUES ($1)", {fmt::format("{}", i)});
    });
  };
  ASSERT_TRUE(insert(0).ok());
  EXPECT_EQ(prepared_like("INSERT INTO audit"), 0);
  for (int i = 1; i < 5; ++i) ASSERT_TRUE(insert(i).ok());
  EXPECT_EQ(prepared_like("INSERT INTO audit"), 1);
  EXPECT_EQ(number(*database, "SELECT count(DISTINCT what) FROM audit"), 5);
}

TEST_F(PostgresConnection, IsNotFilledWithStatementsThatDoNotComeAgain) {
  const auto done = run_transaction(*database, [&](Transaction& transaction) {
    for (int i = 0; i < 600; ++i) transaction.execute(fmt::format("INSERT INTO audit (what) VALUES ('{}')", i));
  });
  ASSERT_TRUE(done.ok()) << done.fault().message;
  EXPECT_EQ(prepared_like("INSERT INTO audit"), 0);
}

TEST_F(PostgresConnection, MayBeClearedByTheApplicationInsideAPhase) {
  Runner runner(*database, {one_phase([&](Phase& phase) {
    phase.execute("INSERT INTO audit (what) VALUES ($1)", {"before"});
    PQclear(PQexec(phase.postgres(), "DEALLOCATE ALL"));
    phase.execute("INSERT INTO audit (what) VALUES ($1)", {"after"});
    return phase.respond(200, "", "");
  })});
  for (int i = 0; i < 6; ++i) expect_finished(runner, fmt::format("k{}", i));
  EXPECT_EQ(number(*database, "SELECT count(*) FROM audit"), 12) << "each phase once in effect";
  EXPECT_GT(runner.metrics().phases_repeated, 0u);
}

TEST_F(PostgresConnection, MayBeClearedWhileATableForAnswersIsMade) {
  // As a pooler does that gives the second table's transaction another connection than the first one's.
  run_sql(*database,
          "CREATE FUNCTION clear() RETURNS event_trigger LANGUAGE plpgsql AS"
          " 'BEGIN EXECUTE ''DEALLOCATE ALL''; END'");
  run_sql(*database,
          "CREATE EVENT TRIGGER clear ON ddl_command_end WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION clear()");
  Runner runner(*database, {one_phase([&](Phase& phase) { return phase.respond(200, "", ""); })});
  expect_finished(runner, "k1");
  run_sql(*database, "DROP EVENT TRIGGER clear");
}

TEST_F(PostgresConnection, NoticesThatATableHasChangedUnderAPreparedStatement) {
  std::size_t width = 0;
  Runner runner(*database, {one_phase([&](Phase& phase) {
    phase.execute("INSERT INTO audit (what) VALUES ('x')");
    width = phase.execute("SELECT * FROM audit").rows.at(0).size();
    return phase.respond(200, "", "");
  })});
  for (int i = 0; i < 3; ++i) expect_finished(runner, fmt::format("before{}", i));
  const std::size_t before = width;
  for (int change = 1; change <= 4; ++change) {
    run_sql(*database, fmt::format("ALTER TABLE audit ADD COLUMN more{} text", change));
    expect_finished(runner, fmt::format("after{}", change));
    EXPECT_EQ(width, before + static_cast<std::size_t>(change));
  }
  EXPECT_EQ(prepared_like("SELECT * FROM audit"), 5) << "a change of a table is no reason to stop preparing";
}

TEST_F(PostgresConnection, TakesValuesOfDifferentKindsForTheSameText) {
  run_sql(*database, "CREATE TABLE v (b bytea, n bigint, t text)");
  const std::string bytes("\0\xff\\x", 4);
  for (int i = 0; i < 3; ++i) {
    const auto done = run_transaction(*database, [&](Transaction& transaction) {
      constexpr std::string_view kInsert = "INSERT INTO v (b, n, t) VALUES ($1, $2, $3)";
      transaction.execute(kInsert, {nullptr, nullptr, nullptr});
      transaction.execute(kInsert, {Bytes{bytes}, 7, "seven"});
    });
    ASSERT_TRUE(done.ok()) << done.fault().message;
  }
  EXPECT_EQ(number(*database, "SELECT count(*) FROM v WHERE b = '\\x00ff5c78' AND n = 7 AND t = 'seven'"), 3);
  EXPECT_EQ(number(*database, "SELECT count(*) FROM v WHERE b IS NULL AND n IS NULL AND t IS NULL"), 3);
}

TEST_F(PostgresConnection, RefusesTextThatTheServerWouldCutShort) {
  const auto done = [&] {
    return run_transaction(*database, [](Transaction& transaction) {
      transaction.execute("INSERT INTO audit (what) VALUES ($1)", {std::string_view("a\0b", 3)});
    });
  };
  EXPECT_THROW((void)done().ok(), DatabaseError);
  OperationRequest request = ride_request("k1");
  request.principal = std::string("user:4\0002", 8);
  Runner runner(*database, {one_phase([](Phase& phase) { return phase.respond(200, "", ""); })});
  const auto outcome = runner.run(request);
  ASSERT_TRUE(outcome.ok()) << outcome.fault().message;
  EXPECT_TRUE(std::holds_alternative<RequestInvalid>(*outcome));
  EXPECT_EQ(number(*database, "SELECT count(*) FROM oncekey_operation"), 0);
}

TEST_F(PostgresConnection, IsReplacedWhenTheServerHasEndedItMeanwhile) {
  Runner runner(*database, {one_phase([](Phase& phase) { return phase.respond(200, "", ""); })});
  expect_finished(runner, "k1");
  const auto other = place.open();
  EXPECT_GT(number(*other,
                   "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity"
                   " WHERE application_name = 'oncekey' AND pid <> pg_backend_pid()"),
            0);
  expect_finished(runner, "k2");
}

TEST_F(PostgresConnection, ClaimsRightlyWhateverIsolationIsTheDefault) {
  auto opened = open_database(place.url() + "%20-cdefault_transaction_isolation%3Dserializable", one_connection());
  ASSERT_TRUE(opened.ok()) << opened.fault().message;
  Runner runner(*opened.value(), {one_phase([](Phase& phase) { return phase.respond(200, "", ""); })});
  expect_finished(runner, "k1");
  expect_finished(runner, "k1");
  EXPECT_EQ(runner.metrics().replayed, 1u);
  // The function itself refuses to be called where it could not see who was quicker.
  EXPECT_THROW((void)run_transaction(*database,
                                     [](Transaction& transaction) {
                                       transaction.execute(
                                           "SELECT oncekey_claim('a', 'b', '', '', 1, 'c', '', '', '', '', '', '', 1)");
                                     })
                   .ok(),
               DatabaseError);
}

TEST_F(PostgresConnection, NoticesALostServerUnlessTheUrlSaysHow) {
  const auto setting = [](Database& where, std::string_view wanted) {
    std::string value;
    const auto done = run_transaction(where, [&](Transaction& transaction) {
      PQconninfoOption* const options = PQconninfo(transaction.postgres());
      for (const PQconninfoOption* option = options; option->keyword; ++option) {
        if (option->keyword == wanted && option->val) value = option->val;
      }
      PQconninfoFree(options);
    });
    EXPECT_TRUE(done.ok());
    return value;
  };
  EXPECT_EQ(setting(*database, "tcp_user_timeout"), "10000");
  EXPECT_EQ(setting(*database, "keepalives_idle"), "10");
  auto given = open_database(place.url() + "&tcp_user_timeout=77", one_connection());
  ASSERT_TRUE(given.ok()) << given.fault().message;
  EXPECT_EQ(setting(*given.value(), "tcp_user_timeout"), "77");
}

// What is in effect when the row of a claim is written, and inside a phase, for a session with the given setting.
class PostgresDurability : public PostgresConnection {
 protected:
  PostgresDurability() {
    run_sql(*database, "CREATE TABLE durability (at_commit text NOT NULL)");
    run_sql(*database,
            "CREATE FUNCTION note_durability() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " INSERT INTO durability VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$");
    // Deferred: it runs in the COMMIT itself.
    run_sql(*database,
            "CREATE CONSTRAINT TRIGGER durability AFTER INSERT OR UPDATE ON oncekey_operation"
            " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note_durability()");
  }
  std::int64_t commits_with(const std::string& setting) {
    return number(*database, fmt::format("SELECT count(*) FROM durability WHERE at_commit = '{}'", setting));
  }
  static Operation two_phases() {
    Operation operation("book_ride");
    operation.phase("started", [](Phase& phase) { return phase.next("second"); });
    operation.phase("second", [](Phase& phase) { return phase.respond(200, "", ""); });
    return operation;
  }
};

TEST_F(PostgresDurability, IsTurnedOnWhereItIsOff) {
  auto opened = open_database(place.url() + "%20-csynchronous_commit%3Doff", one_connection());
  ASSERT_TRUE(opened.ok()) << opened.fault().message;
  Runner runner(*opened.value(), {two_phases()});
  expect_finished(runner, "k1");
  EXPECT_EQ(commits_with("on"), 2) << "the claim and the phase that went on";
  EXPECT_EQ(commits_with("off"), 0);
}

TEST_F(PostgresDurability, IsLeftAsItIsWhereItIsAnythingElse) {
  for (const std::string setting : {"local", "remote_write", "remote_apply"}) {
    auto opened = open_database(place.url() + "%20-csynchronous_commit%3D" + setting, one_connection());
    ASSERT_TRUE(opened.ok()) << opened.fault().message;
    Runner runner(*opened.value(), {two_phases()});
    expect_finished(runner, setting);
    EXPECT_EQ(commits_with(setting), 2);
  }
}

TEST_F(PostgresDurability, IsTurnedOnForOurTransactionsAloneOnTheApplicationsConnection) {
  PGconn* const own = PQconnectdb(place.url().c_str());
  PQclear(PQexec(own, "SET synchronous_commit = off"));
  Runner runner(*database, {two_phases()});
  const auto outcome = runner.run(ride_request("k1"), OwnConnection(own));
  ASSERT_TRUE(outcome.ok()) << outcome.fault().message;
  EXPECT_EQ(commits_with("on"), 2);
  EXPECT_EQ(commits_with("off"), 0);
  PGresult* const after = PQexec(own, "SHOW synchronous_commit");
  EXPECT_STREQ(PQgetvalue(after, 0, 0), "off");
  PQclear(after);
  PQfinish(own);
}

TEST(PgBouncer, GivesEveryTransactionAnotherConnectionAndNothingGoesWrong) {
  const char* const url = std::getenv("ONCEKEY_TEST_PGBOUNCER");
  ASSERT_TRUE(url) << "run this under tests/support/with_servers.py postgres pgbouncer";
  DatabaseOptions options;
  options.connections_max = 8;
  auto opened = open_database(url, options);
  ASSERT_TRUE(opened.ok()) << opened.fault().message;
  Database& database = *opened.value();
  ASSERT_TRUE(database.migrate().ok());
  run_sql(database, "CREATE TABLE note (what text NOT NULL, thread bigint NOT NULL)");
  Operation book("book_ride");
  book.phase("started", [](Phase& phase) {
    phase.execute("INSERT INTO note (what, thread) VALUES ('first', $1)", {std::stoll(phase.request().body)});
    return phase.next("second");
  });
  book.phase("second", [](Phase& phase) {
    phase.execute("INSERT INTO note (what, thread) VALUES ('second', $1)", {std::stoll(phase.request().body)});
    phase.stage_job({.sink = "mail", .name = "n", .args = "[]"});
    return phase.respond(200, "", "done");
  });
  Runner runner(database, {book});
  constexpr int kThreads = 8, kRuns = 20;
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        for (int i = 0; i < kRuns; ++i) {
          OperationRequest request = ride_request(fmt::format("bounced-{}-{}", thread, i));
          request.body = std::to_string(thread);
          for (const bool replayed : {false, true}) {
            const auto outcome = runner.run(request);
            ASSERT_TRUE(outcome.ok()) << outcome.fault().message;
            const auto* const done = std::get_if<Finished>(&outcome.value());
            ASSERT_TRUE(done) << outcome->index();
            EXPECT_EQ(done->replayed, replayed);
          }
        }
      });
    }
  }
  EXPECT_EQ(number(database, "SELECT count(*) FROM note"), kThreads * kRuns * 2);
  EXPECT_EQ(number(database, "SELECT min(c) FROM (SELECT count(*) AS c FROM note GROUP BY what, thread) AS x"), kRuns);
  EXPECT_EQ(number(database, "SELECT count(*) FROM oncekey_job"), kThreads * kRuns);
  EXPECT_EQ(number(database, "SELECT count(*) FROM oncekey_operation"), 0);
}

} // namespace
} // namespace oncekey
