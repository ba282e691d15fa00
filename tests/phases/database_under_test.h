// The database a test runs on, new for every test: a SQLite file of its own, or a schema of its own on the Postgres
// server that ONCEKEY_TEST_POSTGRES names.
#pragma once

#include <oncekey/database.h>
#include <oncekey/transaction.h>

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace oncekey {

class TestPlace {
 public:
  explicit TestPlace(Dialect dialect);
  ~TestPlace();
  TestPlace(const TestPlace&) = delete;
  TestPlace& operator=(const TestPlace&) = delete;

  const std::string& url() const { return url_; }
  // A folder for whatever else the test keeps.
  const std::string& folder() const { return folder_; }
  std::string sqlite_path() const { return folder_ + "/test.db"; }

  // With the tables of the library made.
  std::unique_ptr<Database> open(DatabaseOptions options = {}) const;
  // As another process would open it when that much time has passed.
  std::unique_ptr<Database> open_later(Millis later) const;

 private:
  const Dialect dialect_;
  std::string folder_;
  std::string schema_;
  std::string url_;
};

// A number out of a query with one column and one row.
std::int64_t number(Database& database, std::string_view sql);
void run_sql(Database& database, std::string_view sql);

class OnEveryDatabase : public testing::TestWithParam<Dialect> {
 protected:
  OnEveryDatabase() : place(GetParam()), database(place.open()) {}
  bool on_postgres() const { return GetParam() == Dialect::postgres; }

  TestPlace place;
  std::unique_ptr<Database> database;
};

} // namespace oncekey

// One suite, both databases. The prefixes are what the ctest entries filter by.
#define ONCEKEY_ON_EVERY_DATABASE(suite)                                              \
  INSTANTIATE_TEST_SUITE_P(Sqlite, suite, testing::Values(oncekey::Dialect::sqlite)); \
  INSTANTIATE_TEST_SUITE_P(Postgres, suite, testing::Values(oncekey::Dialect::postgres))
