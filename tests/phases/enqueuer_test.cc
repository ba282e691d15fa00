// Staged jobs and the enqueuer, on both databases.
#include "database_under_test.h"

#include <oncekey/workers.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <libpq-fe.h>

#include <atomic>
#include <barrier>
#include <latch>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

namespace oncekey {
namespace {

using namespace std::chrono_literals;

class Jobs : public OnEveryDatabase {
 protected:
  void stage(int count, const std::string& sink = "mail") {
    const auto done = run_transaction(*database, [&](Transaction& transaction) {
      for (int i = 0; i < count; ++i) transaction.stage_job({.sink = sink, .name = "n", .args = std::to_string(i)});
    });
    ASSERT_TRUE(done.ok()) << done.fault().message;
  }
  static std::map<std::string, std::shared_ptr<Sink>> to_mail(std::function<void(const Job&)> accept) {
    return {{"mail", callback_sink(std::move(accept))}};
  }
  EnqueuerCounts run_once(Enqueuer& enqueuer) {
    auto counts = enqueuer.run_once();
    if (!counts.ok()) ADD_FAILURE() << counts.fault().message;
    return counts.ok() ? *counts : EnqueuerCounts{};
  }
  std::int64_t left() { return number(*database, "SELECT count(*) FROM oncekey_job"); }
};

TEST_P(Jobs, AreHandedOverInOrderAndGone) {
  stage(25);
  std::vector<Job> seen;
  EnqueuerOptions options;
  options.batch = 10;
  Enqueuer enqueuer(*database, to_mail([&](const Job& job) { seen.push_back(job); }), options);
  EXPECT_EQ(run_once(enqueuer).delivered, 10u);
  EXPECT_EQ(run_once(enqueuer).delivered, 10u);
  EXPECT_EQ(run_once(enqueuer).delivered, 5u);
  EXPECT_EQ(run_once(enqueuer).claimed, 0u);
  ASSERT_EQ(seen.size(), 25u);
  for (std::size_t i = 0; i < seen.size(); ++i) {
    EXPECT_EQ(seen[i].args, std::to_string(i));
    if (i > 0) {
      EXPECT_GT(seen[i].id, seen[i - 1].id);
    }
  }
  EXPECT_EQ(left(), 0);
}

// The slow sink waits for the fast one: one after another, in the order of their names, they would wait for ever.
TEST_P(Jobs, ASlowSinkHoldsUpNoOther) {
  stage(1, "a slow one");
  std::latch fast_done(1);
  EnqueuerOptions options;
  options.idle_wait = 1ms;
  Enqueuer enqueuer(*database,
                    {{"a slow one", callback_sink([&](const Job&) { fast_done.wait(); })},
                     {"fast", callback_sink([&](const Job&) { fast_done.count_down(); })}},
                    options);
  std::thread worker([&] { enqueuer.run(); });
  stage(1, "fast");
  fast_done.wait();
  while (enqueuer.metrics().delivered < 2) std::this_thread::yield();
  enqueuer.stop();
  worker.join();
  EXPECT_EQ(left(), 0);
}

TEST_P(Jobs, StoppingEndsAfterTheJobUnderWayAndGivesTheOthersBack) {
  stage(10);
  Enqueuer* stopped = nullptr;
  Enqueuer enqueuer(*database, to_mail([&](const Job& job) {
    if (job.args == "2") stopped->stop();
  }));
  stopped = &enqueuer;
  const EnqueuerCounts counts = run_once(enqueuer);
  EXPECT_EQ(counts.delivered, 3u);
  EXPECT_EQ(counts.given_back, 7u);
  Enqueuer next(*database, to_mail([](const Job&) {}));
  EXPECT_EQ(run_once(next).delivered, 7u) << "they are free at once";
}

// Each waits for all others: one after another they would wait for ever.
TEST_P(Jobs, ASinkTakesSeveralJobsAtOnceWhereItMay) {
  constexpr std::size_t kAtOnce = 4;
  stage(kAtOnce * 3);
  std::barrier all_there(static_cast<std::ptrdiff_t>(kAtOnce));
  Enqueuer enqueuer(*database, {{"mail", callback_sink([&](const Job&) { all_there.arrive_and_wait(); }, kAtOnce)}});
  EXPECT_EQ(run_once(enqueuer).delivered, kAtOnce * 3);
  EXPECT_EQ(left(), 0);
}

TEST_P(Jobs, WithoutASinkOrANameCannotBeStaged) {
  const auto staging = [&](const StagedJob& job) {
    return run_transaction(*database, [&](Transaction& transaction) { transaction.stage_job(job); }).ok();
  };
  EXPECT_THROW((void)staging({.sink = "", .name = "n"}), std::invalid_argument);
  EXPECT_THROW((void)staging({.sink = "mail", .name = ""}), std::invalid_argument);
  EXPECT_THROW((void)staging({.sink = "ma\xffil", .name = "n"}), std::invalid_argument);
  EXPECT_EQ(left(), 0);
}

TEST_P(Jobs, TheBacklogShowsSinksThatNoEnqueuerHas) {
  stage(2, "mial");
  stage(1);
  const auto backlog = count_backlog(*database);
  ASSERT_TRUE(backlog.ok()) << backlog.fault().message;
  EXPECT_EQ(backlog->staged_jobs, 3u);
  EXPECT_EQ(backlog->by_sink.at("mial").staged, 2u);
  EXPECT_EQ(backlog->by_sink.at("mail").staged, 1u);
}

TEST_P(Jobs, IdsAreNeverUsedTwice) {
  std::set<JobId> seen;
  Enqueuer enqueuer(*database, to_mail([&](const Job& job) { EXPECT_TRUE(seen.insert(job.id).second); }));
  for (int i = 0; i < 3; ++i) {
    stage(3);
    run_once(enqueuer);
  }
  EXPECT_EQ(seen.size(), 9u);
}

TEST_P(Jobs, OnlyWhatTheSinkAcceptedIsDeleted) {
  stage(10);
  Enqueuer enqueuer(*database, {{"mail", batch_callback_sink([](std::span<const Job> jobs) {
                                   SinkReport report;
                                   report.accepted = {jobs[0].id, jobs[7].id, jobs[7].id, 999'999};
                                   return report;
                                 })}});
  const EnqueuerCounts counts = run_once(enqueuer);
  EXPECT_EQ(counts.delivered, 2u);
  EXPECT_EQ(counts.given_back, 8u);
  EXPECT_EQ(left(), 8);
}

TEST_P(Jobs, AJobThatCommitsLateWithASmallerIdIsNotLost) {
  if (!on_postgres()) {
    // SQLite has one writer: ids commit in their order.
    stage(2);
    return;
  }
  PGconn* const slow = PQconnectdb(place.url().c_str());
  PQclear(PQexec(slow, "BEGIN"));
  PGresult* const inserted = PQexec(
      slow, "INSERT INTO oncekey_job (sink, name, args, staged_at, next_attempt_at) VALUES ('mail', 'late', '', 0, 0)");
  ASSERT_EQ(PQresultStatus(inserted), PGRES_COMMAND_OK) << PQerrorMessage(slow);
  PQclear(inserted);
  stage(5);
  std::vector<std::string> seen;
  Enqueuer first(*database, to_mail([&](const Job& job) {
    seen.push_back(job.name);
    // The late one commits while the batch is being delivered.
    if (seen.size() == 3) PQclear(PQexec(slow, "COMMIT"));
  }));
  Enqueuer second(*database, to_mail([&](const Job& job) { seen.push_back(job.name); }));
  EXPECT_EQ(run_once(first).delivered, 5u);
  EXPECT_EQ(left(), 1);
  EXPECT_EQ(run_once(second).delivered, 1u);
  EXPECT_EQ(seen.back(), "late");
  PQfinish(slow);
}

TEST_P(Jobs, ManyEnqueuersShareTheWork) {
  constexpr int kJobs = 1000;
  stage(kJobs);
  std::mutex mutex;
  std::multiset<JobId> seen;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        EnqueuerOptions options;
        options.batch = 37;
        Enqueuer enqueuer(*database, to_mail([&](const Job& job) {
          const std::lock_guard lock(mutex);
          seen.insert(job.id);
        }),
                          options);
        while (run_once(enqueuer).claimed != 0) {
        }
      });
    }
  }
  EXPECT_EQ(seen.size(), static_cast<std::size_t>(kJobs)) << "each once, since nobody died";
  EXPECT_EQ(std::set<JobId>(seen.begin(), seen.end()).size(), static_cast<std::size_t>(kJobs));
  EXPECT_EQ(left(), 0);
}

TEST_P(Jobs, AClaimThatWasLeftIsTakenByTheNext) {
  stage(3);
  // As if the process had died in its delivery: claimed, and never given back.
  run_sql(*database,
          "UPDATE oncekey_job SET claim = 7, claimed_until = (SELECT max(staged_at) FROM oncekey_job) + 60000");
  int seen = 0;
  Enqueuer early(*database, to_mail([&](const Job&) { ++seen; }));
  EXPECT_EQ(run_once(early).claimed, 0u);
  const auto later = place.open_later(61s);
  Enqueuer next(*later, to_mail([&](const Job&) { ++seen; }));
  EXPECT_EQ(run_once(next).delivered, 3u);
  EXPECT_EQ(seen, 3);
}

TEST_P(Jobs, ARefusedJobBacksOffAloneAndBecomesADeadLetter) {
  stage(3);
  EnqueuerOptions options;
  options.attempts_max = 3;
  int refusals = 0, accepted = 0;
  Millis passed{0};
  std::uint64_t dead = 0;
  for (int i = 0; i < 4; ++i, passed += 11min) {
    const auto later = place.open_later(passed);
    Enqueuer enqueuer(*later, to_mail([&](const Job& job) {
      if (job.args != "1") {
        ++accepted;
        return;
      }
      EXPECT_EQ(job.attempts, refusals);
      ++refusals;
      throw std::runtime_error("no such address");
    }),
                      options);
    dead += run_once(enqueuer).dead;
    EXPECT_EQ(run_once(enqueuer).claimed, 0u) << "not before its backoff is over";
  }
  EXPECT_EQ(refusals, 3);
  EXPECT_EQ(accepted, 2);
  EXPECT_EQ(dead, 1u);
  const auto letters = list_jobs(*database, {.state = TableJobState::dead});
  ASSERT_TRUE(letters.ok());
  ASSERT_EQ(letters->size(), 1u);
  EXPECT_EQ((*letters)[0].last_error, "no such address");
  EXPECT_EQ((*letters)[0].job.attempts, 3);
  EXPECT_EQ(count_backlog(*database)->dead_jobs, 1u);

  ASSERT_TRUE(*retry_job(*database, (*letters)[0].job.id));
  Enqueuer enqueuer(*database, to_mail([](const Job&) {}));
  EXPECT_EQ(run_once(enqueuer).delivered, 1u);
  EXPECT_EQ(left(), 0);
  EXPECT_FALSE(*retry_job(*database, (*letters)[0].job.id));
}

TEST_P(Jobs, WhatASinkSaysInAnyEncodingDoesNotHoldUpTheOthers) {
  // Postgres refuses text that is no UTF-8. Were it given such a reason, the whole batch would be delivered for ever.
  std::string umlauts;
  while (umlauts.size() < 2000) umlauts += "\xc3\xbc";
  const std::vector<std::string> reasons = {std::string("a\0b\x01", 4), "caf\xe9", "x" + umlauts, "\xf0\x9f\x98",
                                            "\xed\xa0\x80 \xc0\xaf \xf4\x90\x80\x80"};
  stage(static_cast<int>(reasons.size()) + 1);
  EnqueuerOptions options;
  options.attempts_max = 1;
  Enqueuer enqueuer(*database, {{"mail", batch_callback_sink([&](std::span<const Job> jobs) {
                                   SinkReport report;
                                   for (const Job& job : jobs) {
                                     const std::size_t at = std::stoul(job.args);
                                     if (at == reasons.size()) {
                                       report.accepted.push_back(job.id);
                                     } else {
                                       report.refused.push_back({job.id, reasons[at]});
                                     }
                                   }
                                   return report;
                                 })}},
                    options);
  const EnqueuerCounts counts = run_once(enqueuer);
  EXPECT_EQ(counts.delivered, 1u);
  EXPECT_EQ(counts.refused, reasons.size());
  const auto letters = list_jobs(*database, {.state = TableJobState::dead});
  ASSERT_TRUE(letters.ok()) << letters.fault().message;
  ASSERT_EQ(letters->size(), reasons.size());
  EXPECT_EQ((*letters)[0].last_error, "a?b?");
  EXPECT_EQ((*letters)[1].last_error, "caf?");
  EXPECT_EQ((*letters)[2].last_error, "x" + umlauts.substr(0, 998));
  EXPECT_EQ((*letters)[3].last_error, "???");
  EXPECT_EQ((*letters)[4].last_error, "??? ?? ????");
}

TEST_P(Jobs, ASinkThatIsDownIsLeftAloneAndBlamesNoJob) {
  stage(3, "down");
  stage(2, "mail");
  stage(1, "nobodys");
  int calls = 0;
  EnqueuerOptions options;
  options.backoff_first = 1h;
  Enqueuer enqueuer(*database,
                    {{"down", batch_callback_sink([&](std::span<const Job>) -> SinkReport {
                        ++calls;
                        throw std::runtime_error("connection refused");
                      })},
                     {"mail", callback_sink([](const Job&) {})}},
                    options);
  const EnqueuerCounts first = run_once(enqueuer);
  EXPECT_EQ(first.delivered, 2u);
  EXPECT_EQ(first.given_back, 3u);
  EXPECT_EQ(first.sinks_down, 1u);
  EXPECT_EQ(run_once(enqueuer).claimed, 0u);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(left(), 4);
  EXPECT_EQ(number(*database, "SELECT max(attempts) FROM oncekey_job"), 0);
  EXPECT_EQ(number(*database, "SELECT max(claimed_until) FROM oncekey_job"), 0);
}

TEST_P(Jobs, ASinkThatFailsIsToldOnceAndAgainWhenItWorks) {
  stage(1);
  bool down = true;
  std::map<std::string, std::shared_ptr<Sink>> sinks;
  sinks["mail"] = batch_callback_sink([&](std::span<const Job> jobs) {
    SinkReport report;
    if (down) {
      report.down = "nobody there";
    } else {
      for (const Job& job : jobs) report.accepted.push_back(job.id);
    }
    return report;
  });
  EnqueuerOptions options;
  options.backoff_first = options.backoff_max = 0ms;
  Enqueuer enqueuer(*database, std::move(sinks), options);
  std::vector<std::string> told;
  enqueuer.on_trouble([&](const std::string& what, const std::optional<std::string>& why) {
    told.push_back(what + ": " + why.value_or("works"));
  });
  run_once(enqueuer);
  run_once(enqueuer);
  EXPECT_EQ(enqueuer.troubles().at("sink mail"), "nobody there");
  down = false;
  run_once(enqueuer);
  EXPECT_TRUE(enqueuer.troubles().empty());
  EXPECT_EQ(told, (std::vector<std::string>{"sink mail: nobody there", "sink mail: works"}));
}

TEST_P(Jobs, AJobThatIsRefusedForGoodIsADeadLetterAtOnce) {
  stage(2);
  std::map<std::string, std::shared_ptr<Sink>> sinks;
  sinks["mail"] = batch_callback_sink([](std::span<const Job> jobs) {
    SinkReport report;
    report.refused.push_back({jobs[0].id, "answered 410", true});
    report.refused.push_back({jobs[1].id, "answered 404"});
    return report;
  });
  Enqueuer enqueuer(*database, std::move(sinks));
  const EnqueuerCounts counts = run_once(enqueuer);
  EXPECT_EQ(counts.refused, 2u);
  EXPECT_EQ(counts.dead, 1u);
  const auto letters = list_jobs(*database, {.state = TableJobState::dead});
  ASSERT_TRUE(letters.ok()) << letters.fault().message;
  ASSERT_EQ(letters->size(), 1u);
  EXPECT_EQ((*letters)[0].last_error, "answered 410");
}

TEST_P(Jobs, ADelayedJobWaits) {
  const auto done = run_transaction(*database, [](Transaction& transaction) {
    transaction.stage_job({.sink = "mail", .name = "later", .delay = 1h});
    transaction.stage_job({.sink = "mail", .name = "now"});
  });
  ASSERT_TRUE(done.ok());
  std::vector<std::string> seen;
  const auto note = [&](const Job& job) { seen.push_back(job.name); };
  Enqueuer now(*database, to_mail(note));
  run_once(now);
  EXPECT_EQ(seen, std::vector<std::string>{"now"});
  const auto later = place.open_later(61min);
  Enqueuer then(*later, to_mail(note));
  run_once(then);
  EXPECT_EQ(seen.back(), "later");
}

TEST_P(Jobs, AnOperatorSeesRetriesAndDropsThem) {
  stage(2);
  stage(1, "sms");
  run_sql(*database,
          "UPDATE oncekey_job SET claim = 7, claimed_until = staged_at + 60000 WHERE sink = 'mail' AND id ="
          " (SELECT min(id) FROM oncekey_job)");
  const auto listed = [&](const TableJobQuery& query) {
    std::vector<JobId> ids;
    for (const TableJob& job : *list_jobs(*database, query)) ids.push_back(job.job.id);
    return ids;
  };
  const std::vector<JobId> all = listed({});
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(listed({.state = TableJobState::taken}), std::vector<JobId>{all[0]});
  EXPECT_EQ(listed({.state = TableJobState::waiting}), (std::vector<JobId>{all[1], all[2]}));
  EXPECT_EQ(listed({.sink = "sms"}), std::vector<JobId>{all[2]});
  EXPECT_EQ(listed({.id = all[1]}), std::vector<JobId>{all[1]});
  EXPECT_EQ(listed({.limit = 2}).size(), 2u);
  EXPECT_FALSE(*drop_job(*database, all[0])) << "an enqueuer has it";
  EXPECT_FALSE(*retry_job(*database, all[0]));
  EXPECT_TRUE(*drop_job(*database, all[1]));
  EXPECT_FALSE(*drop_job(*database, all[1]));
  run_sql(*database, "UPDATE oncekey_job SET next_attempt_at = staged_at + 3600000, attempts = 3");
  EXPECT_TRUE(*retry_job(*database, all[2]));
  Enqueuer enqueuer(*database, {{"sms", callback_sink([](const Job& job) { EXPECT_EQ(job.attempts, 3); })}});
  EXPECT_EQ(run_once(enqueuer).delivered, 1u);
}

TEST_P(Jobs, AnEnqueuerRunsUntilItIsStopped) {
  std::atomic<int> seen{0};
  EnqueuerOptions options;
  options.idle_wait = 5ms;
  Enqueuer enqueuer(*database, to_mail([&](const Job&) { ++seen; }), options);
  std::thread thread([&] { enqueuer.run(); });
  stage(5);
  for (int i = 0; i < 2000 && seen < 5; ++i) std::this_thread::sleep_for(5ms);
  enqueuer.stop();
  thread.join();
  EXPECT_EQ(enqueuer.metrics().delivered, 5u);
}

ONCEKEY_ON_EVERY_DATABASE(Jobs);

} // namespace
} // namespace oncekey
