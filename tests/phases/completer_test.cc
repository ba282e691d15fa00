// The completer, the reaper and the inbox, on both databases.
#include "database_under_test.h"
#include "ride_app.h"

#include <oncekey/inbox.h>
#include <oncekey/workers.h>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <atomic>
#include <barrier>
#include <future>
#include <stdexcept>
#include <thread>

namespace oncekey {
namespace {

using namespace std::chrono_literals;

class Workers : public OnEveryDatabase {
 protected:
  Workers() : world(place.folder()) { make_ride_tables(*database); }

  // A client's request that broke off after the charge, with its lease given up.
  void abandon(const std::string& key) {
    Runner runner(*database, {ride_operation(world, [this] {
      if (++around % 2 == 0) throw std::runtime_error("the power went");
    })});
    EXPECT_THROW((void)runner.run(ride_request(key)).ok(), std::runtime_error);
  }
  CompleterCounts complete(Completer& completer) {
    auto counts = completer.run_once();
    if (!counts.ok()) ADD_FAILURE() << counts.fault().message;
    return counts.ok() ? *counts : CompleterCounts{};
  }
  std::int64_t unfinished() { return number(*database, "SELECT count(*) FROM oncekey_operation"); }

  OutsideWorld world;
  int around = 0;
};

TEST_P(Workers, TheCompleterFinishesWhatWasAbandonedWithoutItsClient) {
  abandon("k1");
  const auto later = place.open_later(6min);
  Runner runner(*later, {ride_operation(world)});
  Completer completer(runner);
  EXPECT_EQ(complete(completer).finished, 1u);
  EXPECT_EQ(unfinished(), 0);
  EXPECT_EQ(world.charges(), 1);
  EXPECT_EQ(world.calls(), 2);
  const auto outcome = runner.run(ride_request("k1"));
  ASSERT_TRUE(outcome.ok());
  EXPECT_TRUE(std::get<Finished>(outcome.value()).replayed);
  EXPECT_EQ(complete(completer).picked, 0u);
}

TEST_P(Workers, TheCompleterLeavesTheYoungAndTheLivingAlone) {
  abandon("young");
  Runner now(*database, {ride_operation(world)});
  Completer early(now);
  EXPECT_EQ(complete(early).picked, 0u);

  const auto later = place.open_later(10min);
  RunnerOptions patient;
  patient.lease = 1h;
  Operation slow("book_ride");
  slow.call_then_phase(
      "started", "charge",
      [&](const ForeignCall&) {
        Runner runner(*later, {ride_operation(world)});
        Completer completer(runner);
        const CompleterCounts counts = complete(completer);
        EXPECT_EQ(counts.picked, 1u) << "the young one is old by now; the living one is left alone";
        return std::string();
      },
      [](Phase& phase, const std::string&) { return phase.respond(200, "", "alive"); });
  Runner owner(*database, {slow}, patient);
  const auto outcome = owner.run(ride_request("alive"));
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(std::get<Finished>(outcome.value()).response.body, "alive");
}

TEST_P(Workers, FailingAttemptsBackOffAndEndAsDeadLetters) {
  abandon("k1");
  bool broken = true;
  const auto operation = ride_operation(world, [&] {
    if (broken) throw std::runtime_error("the processor is down");
  });
  CompleterOptions options;
  options.attempts_max = 3;
  Millis passed = 6min;
  std::uint64_t failed = 0, dead = 0;
  // Every attempt is at most an hour after the one before.
  for (int i = 0; i < 6; ++i, passed += 61min) {
    const auto later = place.open_later(passed);
    Runner runner(*later, {operation});
    Completer completer(runner, options);
    const CompleterCounts counts = complete(completer);
    failed += counts.failed;
    dead += counts.dead;
    EXPECT_EQ(complete(completer).picked, 0u) << "no second attempt before the backoff is over";
  }
  EXPECT_EQ(failed, 3u);
  EXPECT_EQ(dead, 1u);
  const auto letters = list_dead_operations(*database);
  ASSERT_TRUE(letters.ok());
  ASSERT_EQ(letters->size(), 1u);
  EXPECT_THAT((*letters)[0].why, testing::HasSubstr("the processor is down"));
  EXPECT_EQ((*letters)[0].operation.key, "k1");
  EXPECT_EQ((*letters)[0].operation.attempts, 3);
  EXPECT_EQ((*letters)[0].operation.recovery_point, "ride_created");
  EXPECT_EQ(count_backlog(*database)->dead_operations, 1u);

  broken = false;
  const auto later = place.open_later(passed);
  ASSERT_TRUE(*restart_dead_operation(*later, (*letters)[0].operation.id));
  Runner runner(*later, {operation});
  Completer completer(runner, options);
  EXPECT_EQ(complete(completer).finished, 1u);
  EXPECT_EQ(world.charges(), 1);
}

TEST_P(Workers, ARestartedOperationIsNotCalledForAgainAfterTheForeignMemory) {
  abandon("k1");
  run_sql(*database, "UPDATE oncekey_operation SET dead_at = 1, last_error = 'the processor is down'");
  const auto later = place.open_later(30h);
  Runner runner(*later, {ride_operation(world)});
  Completer completer(runner);
  const RecordId id = list_dead_operations(*later)->at(0).operation.id;
  ASSERT_TRUE(*restart_dead_operation(*later, id));
  EXPECT_EQ(complete(completer).dead, 1u);
  EXPECT_EQ(world.calls(), 1) << "the processor has forgotten the key by now and would charge again";
  EXPECT_THAT(list_dead_operations(*later)->at(0).why, testing::HasSubstr("look there whether it happened"));

  ASSERT_TRUE(*restart_dead_operation(*later, id, ForeignSide::looked_at));
  EXPECT_EQ(complete(completer).finished, 1u);
  EXPECT_EQ(world.calls(), 2);
}

TEST_P(Workers, ACompleterTellsWhatFails) {
  abandon("k1");
  std::vector<std::string> told;
  bool broken = true;
  const auto operation = ride_operation(world, [&] {
    if (broken) throw std::runtime_error("the processor is down");
  });
  for (const Millis passed : {Millis(6min), Millis(10min), Millis(20min)}) {
    const auto later = place.open_later(passed);
    Runner runner(*later, {operation});
    Completer completer(runner);
    completer.on_trouble([&](const std::string& what, const std::optional<std::string>& why) {
      told.push_back(what + ": " + why.value_or("works"));
    });
    complete(completer);
    EXPECT_EQ(completer.troubles().contains("resuming book_ride"), broken);
    broken = passed < 10min;
  }
  EXPECT_THAT(told, testing::ElementsAre("resuming book_ride: the processor is down",
                                         "resuming book_ride: the processor is down"));
  run_sql(*database, "DROP TABLE oncekey_operation");
  Runner runner(*database, {});
  Completer completer(runner);
  EXPECT_FALSE(completer.run_once().ok());
  EXPECT_THAT(completer.troubles().at("database"), testing::HasSubstr("oncekey_operation"));
}

TEST_P(Workers, ManyCompletersNeverMeet) {
  constexpr int kOperations = 20;
  for (int i = 0; i < kOperations; ++i) abandon(fmt::format("k{}", i));
  const auto later = place.open_later(6min);
  std::atomic<std::uint64_t> finished{0}, picked{0};
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        OutsideWorld own(place.folder());
        Runner runner(*later, {ride_operation(own)});
        Completer completer(runner);
        const CompleterCounts counts = complete(completer);
        finished += counts.finished;
        picked += counts.picked;
      });
    }
  }
  EXPECT_EQ(finished, kOperations);
  EXPECT_EQ(picked, kOperations);
  EXPECT_EQ(world.charges(), kOperations);
  EXPECT_EQ(world.calls(), 2 * kOperations);
  EXPECT_EQ(number(*database, "SELECT count(*) FROM oncekey_job"), kOperations);
}

TEST_P(Workers, ACompleterWithoutTheCodeAsksSomebodyWhoHasIt) {
  abandon("k1");
  const auto later = place.open_later(6min);
  Runner application(*later, {ride_operation(world)});
  const auto ask = [&](const UnfinishedOperation& operation) {
    EXPECT_EQ(operation.operation, "book_ride");
    return application.resume(operation.id);
  };
  Completer completer(*later, {{"book_ride", ask}});
  EXPECT_EQ(complete(completer).finished, 1u);
}

TEST_P(Workers, ResumingWhatIsNotThereFindsNothing) {
  Runner runner(*database, {ride_operation(world)});
  const auto outcome = runner.resume(RecordId{});
  ASSERT_TRUE(outcome.ok()) << outcome.fault().message;
  EXPECT_THAT(std::get<NotDeclared>(*outcome).why, testing::HasSubstr("there is no operation"));
}

TEST_P(Workers, ACompleterLeavesTheOperationsOfOtherProgramsAlone) {
  abandon("k1");
  const auto later = place.open_later(6min);
  Operation other("other \"program's\" \xc3\xb6peration");
  other.phase("started", [](Phase& phase) { return phase.respond(200, "", "other"); });
  Runner of_another_program(*later, {other});
  Completer theirs(of_another_program);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(complete(theirs).picked, 0u);
  EXPECT_EQ(number(*database, "SELECT attempts FROM oncekey_operation"), 0);

  Runner runner(*later, {ride_operation(world)});
  Completer ours(runner);
  EXPECT_EQ(complete(ours).finished, 1u);
}

TEST_P(Workers, AnOperationWhoseNameNeedsQuotesIsPicked) {
  bool fail = true;
  Operation odd("a \"b\" \\c \n \xc3\xb6");
  odd.phase("started", [&](Phase& phase) -> PhaseEnd {
    if (fail) throw std::runtime_error("not yet");
    return phase.respond(200, "", "done");
  });
  OperationRequest request = ride_request("k1");
  request.operation = odd.name();
  const auto later = place.open_later(6min);
  {
    Runner runner(*database, {odd});
    EXPECT_THROW((void)runner.run(request).ok(), std::runtime_error);
  }
  fail = false;
  Runner runner(*later, {odd});
  Completer completer(runner);
  EXPECT_EQ(complete(completer).finished, 1u);
}

TEST_P(Workers, ARecoveryPointOfAnotherVersionIsNoAttempt) {
  abandon("k1");
  Operation older("book_ride");
  older.phase("started", [](Phase& phase) { return phase.respond(200, "", "older"); });
  CompleterOptions options;
  options.attempts_max = 2;
  Millis passed = 6min;
  for (int i = 0; i < 4; ++i, passed += 61min) {
    const auto later = place.open_later(passed);
    Runner runner(*later, {older});
    Completer completer(runner, options);
    const CompleterCounts counts = complete(completer);
    EXPECT_EQ(counts.unknown, 1u);
    EXPECT_EQ(counts.failed + counts.dead, 0u);
    EXPECT_THAT(completer.troubles()["resuming book_ride"],
                testing::HasSubstr("operation book_ride has no step at the recovery point ride_created"));
  }
  EXPECT_EQ(number(*database, "SELECT attempts FROM oncekey_operation"), 0);

  const auto later = place.open_later(passed);
  Runner runner(*later, {ride_operation(world)});
  Completer completer(runner, options);
  EXPECT_EQ(complete(completer).finished, 1u);
  EXPECT_EQ(world.charges(), 1);
}

TEST_P(Workers, AnAliasLeadsFromARecoveryPointOfAnOlderVersionToTheNewOne) {
  abandon("k1");
  Operation newer("book_ride");
  newer.phase("started", [](Phase& phase) { return phase.next("paid"); });
  newer.phase("paid", [](Phase& phase) { return phase.respond(200, "", phase.note<std::string>("ride")); });
  newer.alias("ride_created", "paid");
  const auto later = place.open_later(6min);
  Runner runner(*later, {newer});
  Completer completer(runner);
  EXPECT_EQ(complete(completer).finished, 1u);
  const auto outcome = runner.run(ride_request("k1"));
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(std::get<Finished>(*outcome).response.body, "1");
}

// Each waits for all others: one after another they would wait for ever.
TEST_P(Workers, OperationsAreResumedAtTheSameTimeUpToALimit) {
  constexpr int kOperations = 6;
  constexpr std::ptrdiff_t kAtOnce = 3;
  for (int i = 0; i < kOperations; ++i) abandon(fmt::format("k{}", i));
  const auto later = place.open_later(6min);
  std::barrier all_there(kAtOnce);
  std::atomic<int> inside{0}, most{0};
  Runner runner(*later, {ride_operation(world, [&] {
    if (++inside > most) most = inside.load();
    all_there.arrive_and_wait();
    --inside;
  })});
  CompleterOptions options;
  options.concurrency = kAtOnce;
  Completer completer(runner, options);
  EXPECT_EQ(complete(completer).finished, static_cast<std::uint64_t>(kOperations));
  EXPECT_LE(most, kAtOnce);
  EXPECT_EQ(world.charges(), kOperations);
}

TEST_P(Workers, AnOperationThatTakesLongDoesNotHoldUpWhatFallsDueLater) {
  abandon("slow");
  abandon("quick");
  // Not due before the slow one is under way.
  run_sql(*database, "UPDATE oncekey_operation SET first_received = first_received + 3600000 WHERE key = 'quick'");
  const auto later = place.open_later(6min);
  std::promise<void> slow_began, quick_ended;
  std::atomic<int> around_calls{0}; // one before each call and one after it
  Completer* running = nullptr;
  Runner runner(*later, {ride_operation(world, [&] {
    const int before = around_calls++;
    if (before == 0) {
      slow_began.set_value();
      quick_ended.get_future().wait(); // for ever, if it holds up the quick one
    } else if (before == 1) {
      quick_ended.set_value();
      running->stop();
    }
  })});
  CompleterOptions options;
  options.idle_wait = 5ms;
  Completer completer(runner, options);
  running = &completer;
  std::jthread worker([&] { completer.run(); });
  slow_began.get_future().wait();
  run_sql(*database, "UPDATE oncekey_operation SET first_received = first_received - 3600000 WHERE key = 'quick'");
  worker.join();
  EXPECT_EQ(completer.metrics().picked, 2u);
  EXPECT_EQ(completer.metrics().finished, 2u);
  EXPECT_EQ(unfinished(), 0);
}

TEST_P(Workers, ACompleterThatStopsPicksNothingMore) {
  for (int i = 0; i < 5; ++i) abandon(fmt::format("k{}", i));
  const auto later = place.open_later(6min);
  Completer* stopped = nullptr;
  Runner runner(*later, {ride_operation(world, [&] { stopped->stop(); })});
  CompleterOptions options;
  options.concurrency = 1;
  Completer completer(runner, options);
  stopped = &completer;
  EXPECT_EQ(complete(completer).finished, 1u);
  EXPECT_EQ(unfinished(), 4);
  EXPECT_EQ(number(*database, "SELECT sum(attempts) FROM oncekey_operation"), 0) << "what was not begun is no attempt";
}

TEST_P(Workers, TheAnswerToACompletersCallbackIsReadyMade) {
  abandon("k1");
  const auto later = place.open_later(6min);
  const std::string id = [&] {
    std::string hex;
    Completer finder(*later, {{"book_ride", [&](const UnfinishedOperation& operation) -> Result<RunOutcome> {
                                 hex = to_hex(operation.id);
                                 return RunOutcome(InProgress{});
                               }}});
    complete(finder);
    return hex;
  }();
  Operation other("other");
  other.phase("started", [](Phase& phase) { return phase.respond(200, "", ""); });
  Operation failing = ride_operation(world, [] { throw std::runtime_error("the processor is down"); });
  Runner elsewhere(*later, {other}), broken(*later, {failing}), runner(*later, {ride_operation(world)});
  EXPECT_EQ(runner.resume_answer("no id").status, 400);
  EXPECT_EQ(runner.resume_answer(std::string(64, '0')).status, 404);
  EXPECT_EQ(elsewhere.resume_answer(id).status, 404);
  const HttpAnswer failed = broken.resume_answer(id);
  EXPECT_EQ(failed.status, 500);
  EXPECT_EQ(failed.body, "the processor is down\n");
  const HttpAnswer done = runner.resume_answer(id);
  EXPECT_EQ(done.status, 200);
  EXPECT_EQ(done.reason, "OK");
  EXPECT_EQ(runner.resume_answer(id).status, 200);
}

TEST_P(Workers, TheReaperDropsWholeBucketsAndNeverUnfinishedWork) {
  Runner runner(*database, {ride_operation(world)});
  ASSERT_TRUE(runner.run(ride_request("finished")).ok());
  abandon("unfinished");
  ASSERT_TRUE(process_once(*database, "c", "m", [](Transaction&) {}).ok());

  const auto soon = place.open_later(23h);
  Reaper early(*soon);
  const auto none = early.run_once();
  ASSERT_TRUE(none.ok()) << none.fault().message;
  EXPECT_EQ(none->answer_buckets, 0u);
  EXPECT_EQ(number(*database, "SELECT count(*) FROM oncekey_answer"), 1);

  const auto late = place.open_later(24h * 30);
  Reaper reaper(*late);
  const auto counts = reaper.run_once();
  ASSERT_TRUE(counts.ok()) << counts.fault().message;
  EXPECT_EQ(counts->answer_buckets, 2u); // the bucket in use and the one made ahead of it
  EXPECT_EQ(counts->inbox_buckets, 2u);
  EXPECT_EQ(number(*late, "SELECT count(*) FROM oncekey_answer"), 0);
  EXPECT_EQ(number(*late, "SELECT count(*) FROM oncekey_bucket"), 0);
  EXPECT_EQ(
      number(*late, on_postgres() ? "SELECT count(*) FROM pg_inherits WHERE inhparent IN ('oncekey_answer'::regclass, "
                                    "'oncekey_inbox'::regclass) AND inhrelid::regclass::text LIKE 'oncekey\\_%\\_%\\_%'"
                                  : "SELECT count(*) FROM sqlite_master WHERE name LIKE 'oncekey_answer_2%'"),
      0);
  EXPECT_EQ(unfinished(), 1);

  // The bucket this process knew is gone; what it finishes now finds a new one at the second try.
  Runner later_runner(*late, {ride_operation(world)});
  const auto again = later_runner.run(ride_request("finished"));
  ASSERT_TRUE(again.ok()) << again.fault().message;
  EXPECT_FALSE(std::get<Finished>(again.value()).replayed);
}

TEST_P(Workers, AWorkerRunsUntilItIsStopped) {
  abandon("k1");
  const auto later = place.open_later(6min);
  Runner runner(*later, {ride_operation(world)});
  CompleterOptions options;
  options.idle_wait = 10ms;
  Completer completer(runner, options);
  std::thread thread([&] { completer.run(); });
  for (int i = 0; i < 2000 && completer.metrics().finished == 0; ++i) std::this_thread::sleep_for(5ms);
  completer.stop();
  thread.join();
  EXPECT_EQ(completer.metrics().finished, 1u);
  completer.run(); // returns at once
}

class Inbox : public OnEveryDatabase {
 protected:
  Inbox() { run_sql(*database, "CREATE TABLE effect (what text NOT NULL)"); }
  static void act(Transaction& transaction) { transaction.execute("INSERT INTO effect VALUES ('done')"); }
  std::int64_t effects() { return number(*database, "SELECT count(*) FROM effect"); }
};

TEST_P(Inbox, AMessageIsProcessedOnce) {
  EXPECT_EQ(*process_once(*database, "mail", "m1", act), Processed::done_now);
  EXPECT_EQ(*process_once(*database, "mail", "m1", act), Processed::done_before);
  EXPECT_EQ(*process_once(*database, "mail", "m2", act), Processed::done_now);
  EXPECT_EQ(*process_once(*database, "stats", "m1", act), Processed::done_now);
  EXPECT_EQ(effects(), 3);
}

TEST_P(Inbox, AnExceptionForgetsTheMessage) {
  EXPECT_THROW((void)process_once(*database, "mail", "m1",
                                  [](Transaction& transaction) {
                                    act(transaction);
                                    throw std::runtime_error("no");
                                  })
                   .ok(),
               std::runtime_error);
  EXPECT_EQ(effects(), 0);
  EXPECT_EQ(*process_once(*database, "mail", "m1", act), Processed::done_now);
}

TEST_P(Inbox, ConcurrentDeliveriesHaveOneEffect) {
  std::atomic<int> now{0}, before{0};
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&] {
        const auto processed = process_once(*database, "mail", "m1", act);
        ASSERT_TRUE(processed.ok()) << processed.fault().message;
        ++(*processed == Processed::done_now ? now : before);
      });
    }
  }
  EXPECT_EQ(now, 1);
  EXPECT_EQ(before, 7);
  EXPECT_EQ(effects(), 1);
}

TEST_P(Inbox, AMessageIsKnownOnBothSidesOfABucketsBorder) {
  ASSERT_EQ(*process_once(*database, "mail", "m1", act), Processed::done_now);
  for (const Millis passed : {Millis(24h), Millis(24h * 3), Millis(24h * 6)}) {
    const auto later = place.open_later(passed);
    EXPECT_EQ(*process_once(*later, "mail", "m1", act), Processed::done_before);
  }
  const auto later = place.open_later(24h * 8);
  EXPECT_EQ(*process_once(*later, "mail", "m1", act), Processed::done_now);
}

TEST_P(Inbox, TwoDeliveriesIntoDifferentBucketsHaveOneEffect) {
  // One clock is five days ahead of the other, more than a bucket is wide, so that each writes into a bucket of its
  // own; both have looked before either commits.
  const auto later = place.open_later(24h * 5);
  ASSERT_TRUE(process_once(*database, "warm", "a", act).ok());
  ASSERT_TRUE(process_once(*later, "warm", "b", act).ok());
  std::atomic<int> arrived{0};
  const auto meet = [&](Transaction& transaction) {
    ++arrived;
    for (int i = 0; on_postgres() && i < 1000 && arrived < 2; ++i) std::this_thread::sleep_for(1ms);
    act(transaction);
  };
  std::atomic<int> now{0};
  {
    std::vector<std::jthread> threads;
    for (Database* const one : {database.get(), later.get()}) {
      threads.emplace_back([&, one] {
        const auto processed = process_once(*one, "mail", "m1", meet);
        ASSERT_TRUE(processed.ok()) << processed.fault().message;
        if (*processed == Processed::done_now) ++now;
      });
    }
  }
  EXPECT_EQ(now, 1);
  EXPECT_EQ(effects(), 3);
}

TEST_P(Inbox, NamesHaveLimits) {
  EXPECT_EQ(process_once(*database, "", "m", act).fault().kind, FaultKind::invalid);
  EXPECT_EQ(process_once(*database, "c", std::string(256, 'm'), act).fault().kind, FaultKind::invalid);
}

ONCEKEY_ON_EVERY_DATABASE(Workers);
ONCEKEY_ON_EVERY_DATABASE(Inbox);

} // namespace
} // namespace oncekey
