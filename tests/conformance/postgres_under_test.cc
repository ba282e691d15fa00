#include "store_conformance.h"

#include "base/log.h"
#include "store/postgres/postgres_store.h"

#include <libpq-fe.h>

#include <atomic>
#include <cstdlib>

namespace oncekey {
namespace {

const char* postgres_url() { return std::getenv("ONCEKEY_TEST_POSTGRES"); }

// Each test has the schema to itself. The server's clock stands still, in the one function that reads it, so that the
// tests' own turning of it is all the time there is.
class PostgresUnderTest : public StoreUnderTest {
 public:
  PostgresUnderTest() {
    static bool made = false;
    if (std::exchange(made, true)) {
      empty_schema();
    } else {
      make_schema();
    }
    open();
  }
  Store& store() override { return *store_; }
  void advance(Millis by) override {
    passed_ += by.count();
    const Status maintained = store_->maintain();
    EXPECT_TRUE(maintained) << maintained.fault().message;
  }
  bool reopen() override {
    store_.reset();
    open();
    return true;
  }
  bool shared() const override { return true; }
  bool damage_message(const RecordId& id) override {
    sql(("UPDATE oncekey.job_message SET message = 'x' WHERE id = '\\x" + to_hex(id) + "'").c_str());
    return true;
  }

 private:
  void make_schema() {
    sql("DROP SCHEMA IF EXISTS oncekey CASCADE");
    const Status migrated = migrate_postgres(options());
    EXPECT_TRUE(migrated) << migrated.fault().message;
    sql("CREATE OR REPLACE FUNCTION oncekey.clock() RETURNS int8 LANGUAGE sql VOLATILE "
        "AS $$ SELECT 1700000000000::int8 $$");
  }
  // As make_schema() leaves it, in a fraction of the time.
  static void empty_schema() {
    sql(R"(DO $$
      DECLARE partition text;
      BEGIN
        FOR partition IN SELECT tablename FROM pg_tables WHERE schemaname = 'oncekey' AND tablename LIKE 'record\_%' LOOP
          EXECUTE format('DROP TABLE oncekey.%I', partition);
        END LOOP;
        DELETE FROM oncekey.job_message;
        DELETE FROM oncekey.job;
        DELETE FROM oncekey.unsettled;
        DELETE FROM oncekey.gateway;
        DELETE FROM oncekey.note;
        UPDATE oncekey.meta SET replaces = '', tick = 0, lost = false, timeline = '';
        UPDATE oncekey.noted SET noted_until = 0;
        PERFORM setval('oncekey.fence', 1, false), setval('oncekey.job_place', 1, false);
      END $$)");
  }
  PostgresOptions options() {
    return {.url = postgres_url(),
            .log = log_,
            .call_timeout = Millis{20'000}, // a busy machine is no fault of the store's
            .skew = [this] { return Millis{passed_.load()}; },
            .local_clock = [] { return Millis{0}; },
            .maintenance = PostgresOptions::Maintenance::by_hand};
  }
  void open() {
    auto opened = PostgresStore::open(options());
    ASSERT_TRUE(opened) << opened.fault().message;
    store_ = *std::move(opened);
  }
  static void sql(const char* text) {
    PGconn* const connection = PQconnectdb(postgres_url());
    PQsetNoticeProcessor(
        connection, [](void*, const char*) {}, nullptr);
    PGresult* const result = PQexec(connection, text);
    EXPECT_EQ(PQresultStatus(result), PGRES_COMMAND_OK) << PQerrorMessage(connection);
    PQclear(result);
    PQfinish(connection);
  }

  Log log_{LogLevel::error};
  std::atomic<std::int64_t> passed_ = 0;
  std::unique_ptr<PostgresStore> store_;
};

std::vector<StoreKind> postgres_kinds() {
  if (postgres_url() == nullptr) return {};
  return clear_and_sealed({"postgres", [] { return std::make_unique<PostgresUnderTest>(); }});
}

} // namespace

INSTANTIATE_TEST_SUITE_P(Postgres, StoreConformance, ::testing::ValuesIn(postgres_kinds()),
                         [](const auto& kind) { return kind.param.name; });
INSTANTIATE_TEST_SUITE_P(Postgres, JobsConformance, ::testing::ValuesIn(postgres_kinds()),
                         [](const auto& kind) { return kind.param.name; });
INSTANTIATE_TEST_SUITE_P(Postgres, BrowseConformance, ::testing::ValuesIn(postgres_kinds()),
                         [](const auto& kind) { return kind.param.name; });

} // namespace oncekey
