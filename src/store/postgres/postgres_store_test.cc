// What only a real server can show. Needs ONCEKEY_TEST_POSTGRES, the URL of a database whose schema "oncekey" the tests
// may drop.
#include "store/postgres/postgres_store.h"

#include "core/job_store.h"
#include "store/common/guarded_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <libpq-fe.h>

#include <array>
#include <atomic>
#include <barrier>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <future>
#include <mutex>
#include <set>
#include <thread>

namespace oncekey {
namespace {

const char* test_url() { return std::getenv("ONCEKEY_TEST_POSTGRES"); }

constexpr Millis kLease{10'000};
constexpr Millis kRetention{400'000}; // buckets of 131 s
constexpr std::int64_t kWidth = 131'072;

class PostgresStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (test_url() == nullptr) GTEST_SKIP() << "needs a server: ONCEKEY_TEST_POSTGRES";
    sql("DROP SCHEMA IF EXISTS oncekey CASCADE");
  }

  // The first value of the first row, if there is one.
  static std::string sql(const std::string& text) {
    PGconn* const connection = PQconnectdb(test_url());
    PQsetNoticeProcessor(
        connection, [](void*, const char*) {}, nullptr);
    PGresult* const result = PQexec(connection, text.c_str());
    const ExecStatusType status = PQresultStatus(result);
    EXPECT_TRUE(status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK) << PQerrorMessage(connection);
    const std::string value = PQntuples(result) > 0 ? PQgetvalue(result, 0, 0) : "";
    PQclear(result);
    PQfinish(connection);
    return value;
  }

  PostgresOptions options(const std::string& url = test_url()) {
    return {.url = url,
            .log = log_,
            .call_timeout = Millis{20'000},
            .skew = [this] { return Millis{passed_.load()}; },
            .maintenance = PostgresOptions::Maintenance::by_hand};
  }
  std::unique_ptr<PostgresStore> open(PostgresOptions wanted) {
    Result<std::unique_ptr<PostgresStore>> opened = PostgresStore::open(std::move(wanted));
    EXPECT_TRUE(opened) << opened.fault().message;
    return opened ? *std::move(opened) : nullptr;
  }
  std::unique_ptr<PostgresStore> open() { return open(options()); }

  static RecordId id(std::uint64_t number) {
    RecordId id;
    id.bytes.fill(0x5a);
    std::memcpy(id.bytes.data(), &number, sizeof number);
    std::memcpy(id.bytes.data() + 8, &number, sizeof number);
    return id;
  }
  static ClaimRequest request(std::uint64_t key, std::uint8_t token = 0) {
    ClaimRequest request;
    request.id = id(key);
    request.fingerprint.bytes.fill(1);
    request.lease = kLease;
    request.retention = kRetention;
    request.token.fill(token);
    request.key = "key-" + std::to_string(key);
    return request;
  }
  template <class T, class Ask>
  static Result<T> wait_for(Ask ask) {
    std::promise<Result<T>> promise;
    std::future<Result<T>> answer = promise.get_future();
    ask([&promise](Result<T> result) { promise.set_value(std::move(result)); });
    return answer.get();
  }
  static Result<ClaimAnswer> claim(Store& store, std::uint64_t key, std::uint8_t token = 0) {
    return wait_for<ClaimAnswer>([&](auto done) { store.claim(request(key, token), std::move(done)); });
  }
  static bool owns(const Result<ClaimAnswer>& answer) { return answer && std::holds_alternative<Claimed>(*answer); }
  static std::optional<Found> find(Store& store, std::uint64_t key, Interest interest = Interest::none) {
    Result<std::optional<Found>> found =
        wait_for<std::optional<Found>>([&](auto done) { store.find(id(key), interest, std::move(done)); });
    EXPECT_TRUE(found) << found.fault().message;
    return found ? *found : std::nullopt;
  }
  static std::uint64_t fence_of(Store& store, std::uint64_t key) {
    const std::optional<Found> found = find(store, key);
    return found ? found->record->fence : 0;
  }
  static Result<FenceAnswer> complete(Store& store, std::uint64_t key, std::string body) {
    const std::uint64_t fence = fence_of(store, key);
    StoredResponse response;
    response.status = 201;
    response.body = std::move(body);
    return wait_for<FenceAnswer>([&](auto done) {
      store.complete({id(key), fence}, std::move(response), std::move(done));
    });
  }
  static std::size_t listed(Store& store) {
    ListRequest everything;
    everything.limit = 100'000;
    return wait_for<std::vector<Listed>>([&](auto done) { store.list(everything, std::move(done)); })->size();
  }
  // Tries until it is true; a store finds its server again within seconds.
  template <class Condition>
  static bool in_the_end(Condition condition) {
    for (int tries = 0; tries < 400; ++tries) {
      if (condition()) return true;
      std::this_thread::sleep_for(Millis{25});
    }
    return false;
  }

  std::unique_ptr<PostgresStore> open_impatient() {
    PostgresOptions impatient = options();
    impatient.call_timeout = Millis{300};
    return open(std::move(impatient));
  }
  // Within its call_timeout, which a busy machine may need several tries for.
  static bool answers(Store& store) {
    std::uint64_t key = std::uint64_t{1} << 40;
    return in_the_end([&] { return owns(claim(store, ++key)); });
  }
  // Long enough that sessions which are left behind would be many more than kSessionsMax.
  static void ask_in_vain(Store& store) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(6);
    for (std::uint64_t key = 10; std::chrono::steady_clock::now() < until; ++key) {
      EXPECT_FALSE(owns(claim(store, key)));
      std::this_thread::sleep_for(Millis{20});
    }
  }
  // The workers' and the listener's, each with one that has just been given up.
  static constexpr int kSessionsMax = 8;
  static int sessions() {
    return std::stoi(sql("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'oncekey'"));
  }

  Log log_{LogLevel::error};
  std::atomic<std::int64_t> passed_ = 0;
};

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
} // namespace oncekey
