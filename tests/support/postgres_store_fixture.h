// The Postgres store on a real server. Needs ONCEKEY_TEST_POSTGRES, the URL of a database whose schema "oncekey" the
// tests may drop.
#pragma once

#include "core/job_store.h"
#include "store/postgres/postgres_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <libpq-fe.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <future>
#include <thread>

namespace oncekey::postgres_tests {

inline const char* test_url() { return std::getenv("ONCEKEY_TEST_POSTGRES"); }

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

} // namespace oncekey::postgres_tests
