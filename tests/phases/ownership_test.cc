// Whose an operation is: leases, takeovers, pauses, and runs that meet.
#include "runs.h"

namespace oncekey {
namespace {

class Ownership : public Runs {};

// The database goes away in the middle of a phase, and with it whatever would give the lease up.
TEST_P(Ownership, AfterTheDatabaseBlinkedTheRunnerGoesOnWithItsOwnLease) {
  bool away = false;
  DatabaseOptions options;
  std::unique_ptr<Database> behind;
  if (on_postgres()) {
    options.connections.borrow = [&]() -> Result<OwnConnection> {
      if (away) return unavailable("away");
      return OwnConnection(PQconnectdb(place.url().c_str()));
    };
    options.connections.give_back = [](OwnConnection lent, ConnectionProvider::State) { PQfinish(lent.postgres()); };
  } else {
    options.connections.borrow = [&]() -> Result<OwnConnection> {
      if (away) return unavailable("away");
      sqlite3* handle = nullptr;
      sqlite3_open(place.sqlite_path().c_str(), &handle);
      return OwnConnection(handle);
    };
    options.connections.give_back = [](OwnConnection lent, ConnectionProvider::State) { sqlite3_close(lent.sqlite()); };
  }
  const auto blinking = place.open(options);
  Operation book("book_ride");
  book.phase("started", [&](Phase& phase) { return phase.next("charging"); });
  book.call_then_phase(
      "charging", "charge",
      [&](const ForeignCall& call) {
        away = world.calls() == 0;
        return world.charge(call.key());
      },
      [](Phase& phase, const std::string& charge) { return phase.respond(200, "", charge); });
  Runner runner(*blinking, {book});
  const auto broken = runner.run(ride_request("k1"));
  ASSERT_FALSE(broken.ok());
  EXPECT_EQ(broken.fault().kind, FaultKind::unavailable);
  away = false;
  Runner elsewhere(*database, {book});
  EXPECT_TRUE(std::holds_alternative<InProgress>(run(elsewhere, ride_request("k1")))) << "others wait for the lease";
  EXPECT_EQ(finished(run(runner, ride_request("k1"))).replayed, false);
  EXPECT_EQ(world.charges(), 1);
  EXPECT_EQ(world.calls(), 2);
}

TEST_P(Ownership, AStatementThatFailedCannotBePassedOver) {
  Runner runner(*database, {one_phase([&](Phase& phase) {
    insert_ride(phase);
    try {
      phase.execute("INSERT INTO no_such_table VALUES (1)");
    } catch (const DatabaseError& error) {
      EXPECT_EQ(error.advice(), DatabaseError::Advice::give_up);
    }
    return phase.respond(200, "", "");
  })});
  const auto outcome = runner.run(ride_request("k1"));
  // SQLite undoes the statement alone; in Postgres the transaction is lost.
  EXPECT_EQ(outcome.ok(), !on_postgres());
  EXPECT_EQ(rides(), on_postgres() ? 0 : 1);
}

TEST_P(Ownership, WhileOneRunsTheOthersAreToldToWait) {
  Operation book("book_ride");
  Runner* retrying = nullptr;
  std::vector<RunOutcome> seen;
  book.call_then_phase(
      "started", "charge",
      [&](const ForeignCall&) {
        // Should the retry be let in, its own call must not retry again.
        if (seen.empty()) seen.push_back(run(*retrying, ride_request("k1")));
        return std::string();
      },
      [](Phase& phase, const std::string&) { return phase.respond(200, "", "once"); });
  Runner runner(*database, {book});
  retrying = &runner;
  EXPECT_EQ(finished(run(runner, ride_request("k1"))).response.body, "once");
  ASSERT_EQ(seen.size(), 1u);
  const auto* const busy = std::get_if<InProgress>(&seen[0]);
  ASSERT_TRUE(busy);
  EXPECT_GE(busy->retry_after, 1s);
  EXPECT_LE(busy->retry_after, 10s) << "the owner is at work: its lease of a minute tells nothing of its answer";
}

TEST_P(Ownership, AmongManyAtOnceOneExecutes) {
  constexpr int kThreads = 8;
  std::atomic<int> executed{0}, other{0};
  Runner runner(*database, {one_phase([&](Phase& phase) {
    insert_ride(phase);
    return phase.respond(200, "", "once");
  })});
  for (int round = 0; round < 5; ++round) {
    std::latch start(kThreads);
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        start.arrive_and_wait();
        const auto outcome = runner.run(ride_request(fmt::format("round{}", round)));
        ASSERT_TRUE(outcome.ok()) << outcome.fault().message;
        const auto* const done = std::get_if<Finished>(&outcome.value());
        if (done && !done->replayed) {
          ++executed;
        } else if (done || std::holds_alternative<InProgress>(outcome.value())) {
          ++other;
        }
      });
    }
  }
  EXPECT_EQ(executed, 5);
  EXPECT_EQ(other, 5 * (kThreads - 1));
  EXPECT_EQ(rides(), 5);
}

TEST_P(Ownership, ARetryThatMeetsTheFinishingCommitIsAReplay) {
  // While the first run commits its answer, a retry claims. In Postgres it waits for that commit with a snapshot from
  // before it, in which there is neither an operation nor an answer; the trigger makes the commit a long one.
  if (on_postgres()) {
    run_sql(*database,
            "CREATE FUNCTION take_long() RETURNS trigger LANGUAGE plpgsql AS"
            " 'BEGIN PERFORM pg_sleep(0.5); RETURN NULL; END'");
    run_sql(*database,
            "CREATE CONSTRAINT TRIGGER take_long AFTER INSERT ON ride DEFERRABLE INITIALLY DEFERRED"
            " FOR EACH ROW EXECUTE FUNCTION take_long()");
  }
  std::optional<std::jthread> retry;
  std::optional<RunOutcome> seen;
  Runner* second = nullptr;
  bool finishing = false;
  DatabaseOptions options;
  options.on_statement = [&](StatementMoment moment, std::string_view sql) {
    if (moment != StatementMoment::before || retry) return;
    if (sql.find("oncekey_finish") != std::string_view::npos || sql.starts_with("DELETE FROM oncekey_operation")) {
      finishing = sql.find("identity") == std::string_view::npos;
    }
    if (sql != "COMMIT" || !finishing) return;
    retry.emplace([&] {
      if (on_postgres()) {
        while (number(*database, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") == 0) {
          std::this_thread::sleep_for(5ms); // until the commit is under way
        }
      } else {
        std::this_thread::sleep_for(150ms);
      }
      seen = run(*second, ride_request("k1"));
    });
    if (!on_postgres()) std::this_thread::sleep_for(300ms);
  };
  const auto watched = place.open(options);
  const auto once = one_phase([&](Phase& phase) {
    insert_ride(phase);
    return phase.respond(200, "", "once");
  });
  Runner first(*watched, {once}), other(*database, {once});
  second = &other;
  EXPECT_FALSE(finished(run(first, ride_request("k1"))).replayed);
  ASSERT_TRUE(retry);
  retry->join();
  ASSERT_TRUE(seen);
  // SQLite's retry looked before it waited for the writer, and has seen the operation at work.
  if (on_postgres()) {
    EXPECT_TRUE(finished(*seen).replayed);
  }
  EXPECT_EQ(rides(), 1);
  EXPECT_EQ(unfinished(), 0);
}

TEST_P(Ownership, ATakeoverAfterTheLeaseLeavesTheOldOwnerWithoutEffect) {
  // The old owner pauses in its foreign call; by then an hour passes on another machine, which finishes the operation.
  const auto later = place.open_later(1h);
  Operation quick("book_ride");
  quick.call_then_phase(
      "started", "charge", [](const ForeignCall& call) { return call.key(); },
      [&](Phase& phase, const std::string& key) {
        insert_ride(phase);
        return phase.respond(200, "", "by the new owner " + key);
      });
  Runner new_owner(*later, {quick});
  Operation slow("book_ride");
  std::string old_key;
  slow.call_then_phase(
      "started", "charge",
      [&](const ForeignCall& call) {
        old_key = call.key();
        EXPECT_FALSE(finished(run(new_owner, ride_request("k1"))).replayed);
        return std::string();
      },
      [&](Phase& phase, const std::string&) {
        ADD_FAILURE() << "the old owner's phase runs";
        insert_ride(phase);
        return phase.respond(500, "", "by the old owner");
      });
  Runner old_owner(*database, {slow});
  const Finished seen = finished(run(old_owner, ride_request("k1")));
  EXPECT_TRUE(seen.replayed);
  EXPECT_EQ(seen.response.body, "by the new owner " + old_key);
  EXPECT_EQ(rides(), 1);
  EXPECT_EQ(old_owner.metrics().leases_lost, 1u);
  EXPECT_EQ(new_owner.metrics().takeovers, 1u);
}

TEST_P(Ownership, AnOwnerPausedInsideAPhaseKeepsItsRowLocked) {
  if (!on_postgres()) return; // a second SQLite writer waits for the first one's whole transaction
  const auto later = place.open_later(1h);
  Runner thief(*later, {one_phase([](Phase& phase) { return phase.respond(500, "", "stolen"); })});
  Runner runner(*database, {one_phase([&](Phase& phase) {
    EXPECT_TRUE(std::holds_alternative<InProgress>(run(thief, ride_request("k1"))));
    insert_ride(phase);
    return phase.respond(200, "", "mine");
  })});
  EXPECT_EQ(finished(run(runner, ride_request("k1"))).response.body, "mine");
}

TEST_P(Ownership, ALockThatPassesDoesNotPutATakeoverOff) {
  if (!on_postgres()) return; // its writers lock the whole file
  // A run that ended within its call, with its lease given up.
  Runner first(*database, {ride_operation(world, [] { throw std::runtime_error("the power went"); })});
  EXPECT_THROW((void)first.run(ride_request("k1")).ok(), std::runtime_error);
  // A search of another completer holds the row until the takeover has met it once.
  PGconn* const search = PQconnectdb(place.url().c_str());
  const auto send = [&](const char* sql) { PQclear(PQexec(search, sql)); };
  DatabaseOptions options;
  int takeovers = 0;
  options.on_statement = [&](StatementMoment moment, std::string_view sql) {
    if (moment != StatementMoment::after || sql.find("SET fence = CASE") == std::string_view::npos) return;
    if (++takeovers == 1) send("COMMIT");
  };
  const auto observed = place.open(options);
  send("BEGIN");
  send("SELECT 1 FROM oncekey_operation FOR UPDATE");
  Runner runner(*observed, {ride_operation(world)});
  finished(run(runner, ride_request("k1")));
  EXPECT_GE(takeovers, 2) << "it did not meet the lock";
  PQfinish(search);
}

TEST_P(Ownership, ALongCallKeepsItsLease) {
  RunnerOptions options;
  options.lease = 300ms;
  Runner* retrying = nullptr;
  int calls = 0;
  Operation book("book_ride");
  book.call_then_phase(
      "started", "charge",
      [&](const ForeignCall&) {
        if (++calls > 1) return std::string();
        // Twice as long as the lease, so that without renewal the retry would take over.
        const auto lease_until = [&] { return number(*database, "SELECT lease_until FROM oncekey_operation"); };
        const std::int64_t renewed_twice = lease_until() + 2 * options.lease.count();
        while (lease_until() < renewed_twice) std::this_thread::sleep_for(10ms);
        EXPECT_TRUE(std::holds_alternative<InProgress>(run(*retrying, ride_request("k1"))));
        return std::string();
      },
      [](Phase& phase, const std::string&) { return phase.respond(200, "", "mine"); });
  Runner runner(*database, {book}, options);
  retrying = &runner;
  EXPECT_EQ(finished(run(runner, ride_request("k1"))).response.body, "mine");
  EXPECT_EQ(runner.metrics().takeovers, 0u);
}

TEST_P(Ownership, ACallThatHangsIsLeftToItsLease) {
  RunnerOptions options;
  options.lease = 200ms;
  options.call_max = 100ms;
  Operation book("book_ride");
  Runner* other = nullptr;
  int calls = 0;
  book.call_then_phase(
      "started", "charge",
      [&](const ForeignCall&) {
        if (++calls == 1) {
          RunOutcome taken_over = run(*other, ride_request("k1"));
          while (std::holds_alternative<InProgress>(taken_over)) { // until the lease is over
            std::this_thread::sleep_for(10ms);
            taken_over = run(*other, ride_request("k1"));
          }
          finished(taken_over);
        }
        return std::string("call ") + std::to_string(calls);
      },
      [](Phase& phase, const std::string& outcome) { return phase.respond(200, "", outcome); });
  Runner runner(*database, {book}, options);
  other = &runner;
  EXPECT_TRUE(finished(run(runner, ride_request("k1"))).replayed);
  EXPECT_EQ(calls, 2);
}

TEST_P(Ownership, AForgottenForeignKeyIsNotUsedAgain) {
  int calls = 0;
  Operation book("book_ride");
  book.call_then_phase(
      "started", "charge",
      [&](const ForeignCall&) -> std::string {
        if (++calls == 1) throw Declined("no answer");
        return "paid";
      },
      [](Phase& phase, const std::string& outcome) { return phase.respond(200, "", outcome); });
  Runner runner(*database, {book});
  EXPECT_THROW((void)runner.run(ride_request("k1")).ok(), Declined);
  const auto tomorrow = place.open_later(24h);
  Runner late(*tomorrow, {book});
  EXPECT_TRUE(std::holds_alternative<DeadLettered>(run(late, ride_request("k1"))));
  EXPECT_TRUE(std::holds_alternative<DeadLettered>(run(late, ride_request("k1"))));
  EXPECT_EQ(calls, 1);

  const auto dead = list_dead_operations(*tomorrow);
  ASSERT_TRUE(dead.ok());
  ASSERT_EQ(dead->size(), 1u);
  EXPECT_EQ((*dead)[0].operation.recovery_point, "started");
  EXPECT_THAT((*dead)[0].why, testing::HasSubstr("forgotten"));
  const auto restarted = restart_dead_operation(*tomorrow, (*dead)[0].operation.id, ForeignSide::looked_at);
  ASSERT_TRUE(restarted.ok());
  EXPECT_TRUE(*restarted);
  EXPECT_EQ(finished(run(late, ride_request("k1"))).response.body, "paid");
  EXPECT_FALSE(*restart_dead_operation(*tomorrow, (*dead)[0].operation.id));
}

TEST_P(Ownership, AnAnswerIsForgottenAfterTheRetentionAndNotBefore) {
  std::set<std::string> keys;
  Operation book("book_ride");
  book.call_then_phase(
      "started", "charge",
      [&](const ForeignCall& call) {
        keys.insert(call.key());
        return std::string();
      },
      [](Phase& phase, const std::string&) { return phase.respond(200, "", ""); });
  Runner runner(*database, {book});
  finished(run(runner, ride_request("k1")));
  const auto before = place.open_later(23h + 59min);
  const auto after = place.open_later(24h + 1min);
  Runner early(*before, {book}), late(*after, {book});
  EXPECT_TRUE(finished(run(early, ride_request("k1"))).replayed);
  EXPECT_FALSE(finished(run(late, ride_request("k1"))).replayed);
  EXPECT_EQ(keys.size(), 2u) << "a new life of the key must not find the foreign side's old answer";
  EXPECT_TRUE(finished(run(late, ride_request("k1"))).replayed);
}

TEST_P(Ownership, AConnectionOfTheApplicationsOwnServesAllPhases) {
  Operation book("book_ride");
  std::set<const void*> handles;
  const auto note_handle = [&](Phase& phase) {
    handles.insert(phase.sqlite() ? static_cast<const void*>(phase.sqlite()) : phase.postgres());
  };
  book.phase("started", [&](Phase& phase) {
    note_handle(phase);
    insert_ride(phase);
    return phase.next("second");
  });
  book.phase("second", [&](Phase& phase) {
    note_handle(phase);
    return phase.respond(200, "", "own");
  });
  Runner runner(*database, {book});
  if (on_postgres()) {
    PGconn* const mine = PQconnectdb(place.url().c_str());
    const auto outcome = runner.run(ride_request("k1"), OwnConnection(mine));
    ASSERT_TRUE(outcome.ok()) << outcome.fault().message;
    EXPECT_EQ(handles, std::set<const void*>{mine});
    EXPECT_EQ(PQtransactionStatus(mine), PQTRANS_IDLE);
    EXPECT_EQ(PQpipelineStatus(mine), PQ_PIPELINE_OFF);
    PQfinish(mine);
  } else {
    sqlite3* mine = nullptr;
    ASSERT_EQ(sqlite3_open(place.sqlite_path().c_str(), &mine), SQLITE_OK);
    sqlite3_exec(mine, "PRAGMA synchronous = NORMAL", nullptr, nullptr, nullptr);
    EXPECT_FALSE(runner.run(ride_request("k1"), OwnConnection(mine)).ok()) << "commits would not be durable";
    sqlite3_exec(mine, "PRAGMA synchronous = FULL", nullptr, nullptr, nullptr);
    const auto outcome = runner.run(ride_request("k1"), OwnConnection(mine));
    ASSERT_TRUE(outcome.ok()) << outcome.fault().message;
    EXPECT_EQ(handles, std::set<const void*>{mine});
    EXPECT_NE(sqlite3_get_autocommit(mine), 0);
    EXPECT_EQ(sqlite3_close(mine), SQLITE_OK) << "no statement of ours may stay open on it";
  }
  EXPECT_TRUE(finished(run(runner, ride_request("k1"))).replayed);
}

TEST_P(Ownership, ATransactionThatWasAskedToBeRepeatedIsRepeated) {
  int tries = 0;
  Runner runner(*database, {one_phase([&](Phase& phase) {
    insert_ride(phase);
    if (++tries < 4) throw RetryTransaction("seen 40001 on the raw handle");
    return phase.respond(200, "", "");
  })});
  finished(run(runner, ride_request("k1")));
  EXPECT_EQ(tries, 4);
  EXPECT_EQ(rides(), 1);
  EXPECT_EQ(runner.metrics().phases_repeated, 3u);
}

TEST_P(Ownership, AUsedUpBudgetIsAConflictThatCanBeTriedAgain) {
  RunnerOptions options;
  options.conflict_budget = 50ms;
  bool busy = true;
  Runner runner(*database, {one_phase([&](Phase& phase) -> PhaseEnd {
    if (busy) throw RetryTransaction("always");
    return phase.respond(200, "", "at last");
  })},
                options);
  EXPECT_TRUE(std::holds_alternative<Conflict>(run(runner, ride_request("k1"))));
  busy = false;
  EXPECT_EQ(finished(run(runner, ride_request("k1"))).response.body, "at last");
}

TEST_P(Ownership, AStormOfConflictingPhasesLosesNoUpdate) {
  run_sql(*database, "CREATE TABLE counter (value integer NOT NULL)");
  run_sql(*database, "INSERT INTO counter VALUES (0)");
  Runner runner(*database, {one_phase([](Phase& phase) {
    const auto value = phase.execute("SELECT value FROM counter").rows.at(0).integer(0);
    phase.execute("UPDATE counter SET value = $1", {value + 1});
    return phase.respond(200, "", "");
  })});
  constexpr int kThreads = 4, kRuns = 10;
  std::atomic<int> done{0};
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        for (int i = 0; i < kRuns; ++i) {
          const auto request = ride_request(fmt::format("storm-{}-{}", thread, i));
          for (int tries = 0; tries < 20; ++tries) {
            const auto outcome = runner.run(request);
            ASSERT_TRUE(outcome.ok()) << outcome.fault().message;
            if (std::holds_alternative<Finished>(outcome.value())) {
              ++done;
              break;
            }
          }
        }
      });
    }
  }
  EXPECT_EQ(done, kThreads * kRuns);
  EXPECT_EQ(number(*database, "SELECT value FROM counter"), kThreads * kRuns);
}

TEST_P(Ownership, UnrelatedOperationsAreNotInEachOthersWay) {
  if (on_postgres()) {
    // With fresh statistics of an almost empty table the planner would read all of it, which in a serializable
    // transaction conflicts with everybody.
    PGconn* const connection = PQconnectdb(place.url().c_str());
    PQclear(PQexec(connection, "VACUUM ANALYZE oncekey_operation"));
    PQfinish(connection);
  }
  Runner runner(*database, {one_phase([&](Phase& phase) {
    if (on_postgres()) {
      EXPECT_EQ(phase.execute("SHOW enable_seqscan").rows.at(0).text(0), "on");
    }
    phase.execute("INSERT INTO audit (what) VALUES ('x')");
    return phase.respond(200, "", "");
  })});
  constexpr int kThreads = 4, kRuns = 25;
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        for (int i = 0; i < kRuns; ++i) {
          EXPECT_TRUE(runner.run(ride_request(fmt::format("calm-{}-{}", thread, i))).ok());
        }
      });
    }
  }
  EXPECT_LE(runner.metrics().phases_repeated, 5u);
}

ONCEKEY_ON_EVERY_DATABASE(Ownership);

} // namespace
} // namespace oncekey
