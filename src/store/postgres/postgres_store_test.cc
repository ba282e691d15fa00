// What only a real server can show: partitions, faults, locks, standbys, batches.
#include "store/common/guarded_store.h"
#include "store/postgres/connection.h"
#include "support/postgres_store_fixture.h"

#include <array>
#include <atomic>
#include <barrier>
#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <set>
#include <thread>

namespace oncekey::postgres_tests {
namespace {

TEST_F(PostgresStoreTest, TwoStoresClaimTheSameKeysWhileABucketEndsAndEachKeyHasOneOwner) {
  const auto first = open();
  const auto second = open();
  ASSERT_TRUE(first && second);
  constexpr std::uint64_t kKeys = 300;
  // The copies that the claims below replace lie in earlier buckets.
  for (std::uint64_t key = 0; key < kKeys; ++key) {
    ASSERT_TRUE(owns(claim(*first, key)));
    passed_ += 200;
  }
  passed_ += kRetention.count();
  std::array<std::atomic<int>, kKeys> owners{};
  const auto expiry = (first->now() + kRetention).time_since_epoch().count();
  passed_ += kWidth - expiry % kWidth - 30; // the border comes while they are at it
  std::barrier start(8);
  std::vector<std::jthread> claimants;
  for (int number = 0; number < 8; ++number) {
    Store& store = number % 2 == 0 ? *first : *second;
    claimants.emplace_back([&] {
      start.arrive_and_wait();
      for (std::uint64_t key = 0; key < kKeys; ++key) {
        passed_ += 1;
        const Result<ClaimAnswer> answer = claim(store, key);
        EXPECT_TRUE(answer) << answer.fault().message;
        if (owns(answer)) ++owners[key];
      }
    });
  }
  claimants.clear();
  for (std::uint64_t key = 0; key < kKeys; ++key) EXPECT_EQ(owners[key], 1) << "key " << key;
  EXPECT_EQ(listed(*second), kKeys) << "an id is in one partition only";
}

TEST_F(PostgresStoreTest, AStatementThatItsSessionHasForgottenIsSentWhole) {
  using namespace postgres;
  const Result<PostgresUrl> url = split_postgres_url(test_url());
  const Result<PostgresTarget> target = postgres_target(url->for_libpq);
  const auto deadline = [] { return deadline_in(Millis{30'000}); };
  const std::atomic<bool> stopping = false;
  const auto connection = Connection::open(*target, deadline(), stopping);
  ASSERT_TRUE(connection) << connection.fault().message;
  Connection& session = **connection;
  const auto ask = [&] {
    const std::vector<Statement> asked[] = {{Statement("SELECT $1", std::int64_t{7})}};
    std::vector<Section> answers = session.pipeline(asked, deadline());
    return std::move(answers.front());
  };
  const auto prepared = [&] {
    return session.run(Statement("SELECT count(*) FROM pg_prepared_statements"), deadline()).row().int8(0);
  };
  EXPECT_EQ(ask().row().int8(0), 7);
  EXPECT_EQ(prepared(), 0) << "a pooler may lend the session to others";

  session.prepare_statements();
  EXPECT_EQ(ask().row().int8(0), 7);
  EXPECT_EQ(ask().row().int8(0), 7);
  EXPECT_EQ(prepared(), 1);
  const std::vector<Statement> wrong[] = {{Statement("SELECT no_such_schema.f($1)", std::int64_t{7})}};
  EXPECT_EQ(session.pipeline(wrong, deadline()).front().error.state, "3F000") << "invalid_schema_name";

  session.run(Statement("DEALLOCATE ALL"), deadline());
  const Section forgotten = ask();
  EXPECT_EQ(forgotten.outcome, SectionOutcome::rolled_back);
  EXPECT_TRUE(session.mends_prepared(forgotten));
  EXPECT_EQ(ask().row().int8(0), 7);
  EXPECT_EQ(prepared(), 0);
}

TEST_F(PostgresStoreTest, GatewaysSeeEachOtherUntilOneIsSilentForLong) {
  const auto first = open();
  const auto second = open();
  ASSERT_TRUE(first && second);
  const auto beat = [](Store& store, const std::string& instance) {
    std::promise<std::vector<GatewayBeat>> known;
    store.beat({instance, "gw-" + instance, "1", "ready", Time{}, {}}, [&](auto all) { known.set_value(*all); });
    std::set<std::string> names;
    for (const GatewayBeat& each : known.get_future().get()) names.insert(each.name);
    return names;
  };
  beat(*first, "a");
  EXPECT_EQ(beat(*second, "b"), (std::set<std::string>{"gw-a", "gw-b"}));
  passed_ += kGatewayForgottenAfter.count() + 1000;
  EXPECT_EQ(beat(*second, "b"), std::set<std::string>{"gw-b"});
}

TEST_F(PostgresStoreTest, NewKeysClaimedThroughTwoStoresHaveOneOwnerEach) {
  const auto first = open();
  const auto second = open();
  ASSERT_TRUE(first && second);
  constexpr std::uint64_t kKeys = 2000;
  std::atomic<int> owned = 0;
  std::atomic<int> answered = 0;
  std::promise<void> all;
  for (std::uint64_t key = 0; key < kKeys; ++key) {
    for (Store* const store : {static_cast<Store*>(first.get()), static_cast<Store*>(second.get())}) {
      store->claim(request(key), [&](Result<ClaimAnswer> answer) {
        EXPECT_TRUE(answer) << answer.fault().message;
        if (owns(answer)) ++owned;
        if (++answered == 2 * kKeys) all.set_value();
      });
    }
  }
  ASSERT_EQ(all.get_future().wait_for(std::chrono::seconds(60)), std::future_status::ready);
  EXPECT_EQ(owned, static_cast<int>(kKeys));
  EXPECT_EQ(listed(*first), kKeys);
}

TEST_F(PostgresStoreTest, PartitionsComeAndGoWhileTwoStoresKeepThem) {
  const auto first = open();
  const auto second = open();
  ASSERT_TRUE(first && second);
  std::uint64_t key = 0;
  for (int round = 0; round < 12; ++round) {
    ASSERT_TRUE(owns(claim(*first, ++key)));
    ASSERT_TRUE(owns(claim(*second, ++key)));
    passed_ += kRetention.count() / 2;
    std::jthread one([&] { EXPECT_TRUE(first->maintain()); });
    std::jthread other([&] { EXPECT_TRUE(second->maintain()); });
  }
  EXPECT_TRUE(in_the_end([&] { return first->maintain() && first->stats().buckets <= 6; })) << first->stats().buckets;
  EXPECT_EQ(sql("SELECT count(*) FROM pg_class WHERE relname ~ '^record_[0-9]+_[0-9]+$' AND relkind = 'r'"),
            std::to_string(first->stats().buckets));
}

TEST_F(PostgresStoreTest, APartitionThatWasDetachedAndNotDroppedIsDroppedLater) {
  const auto store = open();
  ASSERT_TRUE(store);
  ASSERT_TRUE(owns(claim(*store, 1)));
  const std::string name = sql("SELECT relname FROM pg_class WHERE relname ~ '^record_[0-9]+_[0-9]+$' LIMIT 1");
  passed_ += 3 * kRetention.count();
  // As a gateway that died after detaching, before dropping.
  sql("ALTER TABLE oncekey.record DETACH PARTITION oncekey." + name);
  EXPECT_TRUE(store->maintain());
  EXPECT_EQ(sql("SELECT count(*) FROM pg_class WHERE relname = '" + name + "'"), "0");
}

TEST_F(PostgresStoreTest, ALongReaderKeepsAPartitionAndHoldsNobodyUp) {
  const auto store = open();
  ASSERT_TRUE(store);
  ASSERT_TRUE(owns(claim(*store, 1)));
  PGconn* const reader = PQconnectdb(test_url());
  PQclear(PQexec(reader, "BEGIN; LOCK TABLE oncekey.record IN ACCESS SHARE MODE"));
  passed_ += 3 * kRetention.count();
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(store->maintain());
  EXPECT_TRUE(owns(claim(*store, 2)));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  PQfinish(reader);
  EXPECT_EQ(sql("SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%DETACH%' AND pid <> pg_backend_pid()"), "0");
}

TEST_F(PostgresStoreTest, TerminatedBackendsAreFaultsOfTheRightKindAndThenItRecovers) {
  const auto store = open();
  ASSERT_TRUE(store);
  std::atomic<bool> stop = false, some_claimed = false;
  std::jthread chaos([&] {
    for (int times = 0; times < 10 || (!some_claimed && times < 200); ++times) {
      std::this_thread::sleep_for(Millis{60});
      sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'oncekey'");
    }
    stop = true;
  });
  std::mutex mutex;
  std::vector<std::uint64_t> claimed, unchanged;
  std::vector<std::jthread> callers;
  for (std::uint64_t caller = 0; caller < 8; ++caller) {
    callers.emplace_back([&, caller] {
      for (std::uint64_t key = caller << 32; !stop; ++key) {
        const Result<ClaimAnswer> answer = claim(*store, key);
        const std::lock_guard lock(mutex);
        if (owns(answer)) {
          claimed.push_back(key);
          some_claimed = true;
        } else if (answer || answer.fault().kind == FaultKind::unavailable) {
          unchanged.push_back(key);
        } else {
          EXPECT_EQ(answer.fault().kind, FaultKind::timeout) << answer.fault().message;
        }
      }
    });
  }
  callers.clear();
  chaos.join();
  ASSERT_TRUE(in_the_end([&] { return owns(claim(*store, std::uint64_t{99} << 40)); }));
  EXPECT_FALSE(claimed.empty());
  for (const std::uint64_t key : claimed) ASSERT_TRUE(find(*store, key)) << "an answered claim was forgotten";
  for (const std::uint64_t key : unchanged) ASSERT_FALSE(find(*store, key)) << "said that nothing was changed";
  EXPECT_TRUE(store->healthy());
}

TEST_F(PostgresStoreTest, ATableThatIsLockedIsATimeoutAndThenItRecovers) {
  PostgresOptions impatient = options();
  impatient.call_timeout = Millis{600};
  const auto store = open(std::move(impatient));
  ASSERT_TRUE(store);
  ASSERT_TRUE(answers(*store));
  PGconn* const other = PQconnectdb(test_url());
  PQclear(PQexec(other, "BEGIN; LOCK TABLE oncekey.record"));
  std::vector<std::jthread> callers;
  std::atomic<int> timeouts = 0, unavailables = 0;
  const auto start = std::chrono::steady_clock::now();
  for (std::uint64_t caller = 0; caller < 8; ++caller) {
    callers.emplace_back([&, caller] {
      const Result<ClaimAnswer> answer = claim(*store, 10 + caller);
      ASSERT_FALSE(answer);
      ++(answer.fault().kind == FaultKind::timeout ? timeouts : unavailables);
    });
  }
  callers.clear();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(3));
  EXPECT_GE(timeouts, 1);
  PQclear(PQexec(other, "ROLLBACK"));
  PQfinish(other);
  EXPECT_TRUE(in_the_end([&] { return owns(claim(*store, 2)); }));
}

// While it lives, commits wait for a standby that does not exist.
struct MissingStandby {
  explicit MissingStandby(std::function<void(const std::string&)> sql) : sql_(std::move(sql)) {
    sql_("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
    sql_("SELECT pg_reload_conf()");
  }
  ~MissingStandby() {
    sql_("ALTER SYSTEM RESET synchronous_standby_names");
    sql_("SELECT pg_reload_conf()");
  }
  std::function<void(const std::string&)> sql_;
};

TEST_F(PostgresStoreTest, CallsThatWaitForALockLeaveNoSessionsBehind) {
  const auto store = open_impatient();
  ASSERT_TRUE(store);
  ASSERT_TRUE(answers(*store));
  PGconn* const other = PQconnectdb(test_url());
  PQclear(PQexec(other, "BEGIN; LOCK TABLE oncekey.record"));
  ask_in_vain(*store);
  EXPECT_LE(sessions(), kSessionsMax);
  PQfinish(other);
  EXPECT_TRUE(in_the_end([&] { return owns(claim(*store, 2)); }));
}

TEST_F(PostgresStoreTest, CommitsThatWaitForAStandbyLeaveNoSessionsBehind) {
  const auto store = open_impatient();
  ASSERT_TRUE(store);
  ASSERT_TRUE(answers(*store));
  {
    const MissingStandby missing([](const std::string& text) { sql(text); });
    std::uint64_t key = 1000;
    ASSERT_TRUE(in_the_end([&] { return !owns(claim(*store, ++key)); })) << "the setting has not arrived";
    ask_in_vain(*store);
    EXPECT_LE(sessions(), kSessionsMax);
  }
  EXPECT_TRUE(in_the_end([&] { return owns(claim(*store, 2)); }));
}

// A call that is given up has happened on the primary, where the next attempt sees it.
TEST_F(PostgresStoreTest, WhatNoStandbyHasIsNeverConfirmed) {
  const Millis patience{700};
  const auto guard_of = guarded(open_impatient(), {log_, Durability::none, patience, patience, patience});
  Store& guard = *guard_of;
  const auto plain = open_impatient();
  ASSERT_TRUE(in_the_end([&] { return owns(claim(guard, 1)) || find(guard, 1); }));
  const Ownership owner{id(1), fence_of(*plain, 1)};
  const MissingStandby missing([](const std::string& text) { sql(text); });
  std::uint64_t key = 1000;
  ASSERT_TRUE(in_the_end([&] { return !owns(claim(*plain, ++key)); })) << "the setting has not arrived";
  EXPECT_FALSE(owns(claim(guard, 2)));
  StageRequest job;
  job.id = id(3);
  job.retention = kRetention;
  EXPECT_FALSE(wait_for<StageAnswer>([&](auto done) { guard.jobs().stage(job, std::move(done)); }));
  EXPECT_FALSE(wait_for<FenceAnswer>([&](auto done) { guard.complete(owner, {}, std::move(done)); }));
  EXPECT_FALSE(wait_for<FenceAnswer>([&](auto done) { guard.release(owner, std::move(done)); }));
}

TEST_F(PostgresStoreTest, ATakeDoesNotLookAtJobsThatStandBehindAnother) {
  const auto store = open();
  ASSERT_TRUE(store);
  constexpr std::uint64_t kJobs = 600;
  const auto stage = [&](std::uint64_t number) {
    StageRequest job;
    job.id = id(number); // all of one order
    job.route = "queue";
    job.ordered = true;
    job.retention = kRetention;
    return wait_for<StageAnswer>([&](auto done) { store->jobs().stage(job, std::move(done)); });
  };
  ASSERT_TRUE(stage(0));
  const auto take = [&] {
    const TakeRequest wanted{"queue", 10, kLease, {}};
    return wait_for<std::vector<TakenJob>>([&](auto done) { store->jobs().take(wanted, std::move(done)); });
  };
  const auto first = take();
  ASSERT_TRUE(first && first->size() == 1);
  AttemptEnd again;
  again.kind = AttemptEnd::Kind::again;
  again.pause = kRetention / 2;
  ASSERT_TRUE(wait_for<FenceAnswer>([&](auto done) {
    store->jobs().end_attempt({id(0), first->at(0).job.fence}, again, std::move(done));
  }));
  std::atomic<std::uint64_t> next = 1;
  std::vector<std::jthread> senders;
  for (int sender = 0; sender < 8; ++sender) {
    senders.emplace_back([&] {
      for (std::uint64_t number = next++; number < kJobs; number = next++) EXPECT_TRUE(stage(number));
    });
  }
  senders.clear();
  // What was staged while another session had the queue's lock is looked at once.
  for (int round = 0; round < 20; ++round) EXPECT_TRUE(take()->empty());
  const std::string call = "SELECT count(*) FROM oncekey.meta, oncekey.take(generation, 0, 0, 'queue', 10, 10000, 0)";
  // The first call of a session also reads catalogs.
  const std::string plan = sql(call + "; EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + call);
  const std::string_view name = "\"Shared Hit Blocks\": ";
  const std::size_t at = plan.find(name);
  ASSERT_NE(at, std::string::npos) << plan;
  EXPECT_LT(std::stoi(plan.substr(at + name.size())), 200) << "pages; a look at each job takes some";
}

TEST_F(PostgresStoreTest, ALongAnswerIsReplayedWhole) {
  const auto store = open();
  ASSERT_TRUE(store);
  ASSERT_TRUE(owns(claim(*store, 1)));
  const std::string body(300'000, 'x');
  EXPECT_EQ(*complete(*store, 1, body), FenceAnswer::done);
  const Result<ClaimAnswer> found = claim(*store, 1);
  ASSERT_TRUE(found && std::holds_alternative<Found>(*found));
  EXPECT_EQ(std::get<Found>(*found).record->response->body, body);
}

TEST_F(PostgresStoreTest, ManyRetriesOfOneKeyShareTheirAnswers) {
  const auto store = open();
  ASSERT_TRUE(store);
  ASSERT_TRUE(owns(claim(*store, 1)));
  EXPECT_EQ(*complete(*store, 1, "once"), FenceAnswer::done);
  const std::uint64_t batches = store->stats().syncs;
  constexpr int kRetries = 2000;
  std::atomic<int> answered = 0;
  std::promise<void> all;
  for (int number = 0; number < kRetries; ++number) {
    store->claim(request(1), [&](Result<ClaimAnswer> answer) {
      EXPECT_TRUE(answer && std::get<Found>(*answer).record->response->body == "once");
      if (++answered == kRetries) all.set_value();
    });
  }
  ASSERT_EQ(all.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
  EXPECT_LT(store->stats().syncs - batches, 200u);
}

TEST_F(PostgresStoreTest, ManyFirstRequestsOfOneKeyHaveOneOwner) {
  const auto store = open();
  ASSERT_TRUE(store);
  std::atomic<int> answered = 0, owned = 0;
  std::promise<void> all;
  for (int number = 0; number < 200; ++number) {
    store->claim(request(1), [&](Result<ClaimAnswer> answer) {
      EXPECT_TRUE(answer);
      if (owns(answer)) ++owned;
      if (++answered == 200) all.set_value();
    });
  }
  ASSERT_EQ(all.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
  EXPECT_EQ(owned, 1);
}

TEST_F(PostgresStoreTest, TheLevelOfDurabilityIsTheServersAtThisMoment) {
  const auto store = open();
  ASSERT_TRUE(store);
  EXPECT_EQ(store->durability(), Durability::power);
  sql("ALTER DATABASE " + sql("SELECT quote_ident(current_database())") + " SET synchronous_commit = off");
  const auto later = open();
  sql("ALTER DATABASE " + sql("SELECT quote_ident(current_database())") + " RESET synchronous_commit");
  ASSERT_TRUE(later);
  EXPECT_EQ(later->durability(), Durability::none);
}

TEST_F(PostgresStoreTest, TextsThatAreNoTextDoNotFailAClaim) {
  const auto store = open();
  ASSERT_TRUE(store);
  ClaimRequest odd = request(1);
  odd.key = std::string("a\0b\xff\xed\xa0\x80", 7);
  const Result<ClaimAnswer> answer =
      wait_for<ClaimAnswer>([&](auto done) { store->claim(std::move(odd), std::move(done)); });
  ASSERT_TRUE(owns(answer));
  EXPECT_EQ(find(*store, 1)->record->key, "a?b????");
}

TEST_F(PostgresStoreTest, AWaiterAtOneStoreIsToldWhatAnotherSettled) {
  const auto first = open();
  const auto second = open();
  ASSERT_TRUE(first && second);
  std::mutex mutex;
  std::condition_variable came;
  std::set<RecordId> news;
  first->announce_to([&](const std::optional<RecordId>& settled) {
    const std::lock_guard lock(mutex);
    if (settled) news.insert(*settled);
    came.notify_all();
  });
  ASSERT_TRUE(owns(claim(*second, 1)));
  ASSERT_TRUE(owns(claim(*second, 2)));
  ASSERT_TRUE(find(*first, 1, Interest::settling));
  EXPECT_EQ(sql("SELECT awaited FROM oncekey.record WHERE key = 'key-1'"), "t");
  ASSERT_EQ(*complete(*second, 1, "done"), FenceAnswer::done);
  ASSERT_EQ(*complete(*second, 2, "nobody waits for this one"), FenceAnswer::done);
  std::unique_lock lock(mutex);
  EXPECT_TRUE(came.wait_for(lock, std::chrono::seconds(10), [&] { return news.contains(id(1)); }));
  EXPECT_FALSE(news.contains(id(2)));
}

} // namespace
} // namespace oncekey::postgres_tests
