#include "database_under_test.h"

#include <fmt/format.h>
#include <libpq-fe.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>

namespace oncekey {
namespace {

std::string server_url() {
  const char* const url = std::getenv("ONCEKEY_TEST_POSTGRES");
  if (!url) {
    ADD_FAILURE() << "ONCEKEY_TEST_POSTGRES names no server: run this under tests/support/with_servers.py postgres";
    std::abort();
  }
  return url;
}

void on_server(const std::string& sql) {
  PGconn* const connection = PQconnectdb(server_url().c_str());
  PQsetNoticeProcessor(
      connection, [](void*, const char*) {}, nullptr);
  PGresult* const result = PQexec(connection, sql.c_str());
  if (PQresultStatus(result) != PGRES_COMMAND_OK) ADD_FAILURE() << sql << ": " << PQerrorMessage(connection);
  PQclear(result);
  PQfinish(connection);
}

std::string new_schema() {
  static std::atomic<int> count{0};
  return fmt::format("test_{}_{}", getpid(), ++count);
}

} // namespace

TestPlace::TestPlace(Dialect dialect) : dialect_(dialect) {
  std::string pattern = (std::filesystem::temp_directory_path() / "oncekey-phases-XXXXXX").string();
  folder_ = mkdtemp(pattern.data());
  if (dialect_ == Dialect::sqlite) {
    url_ = "sqlite:" + sqlite_path();
    return;
  }
  schema_ = new_schema();
  on_server(fmt::format("CREATE SCHEMA {}", schema_));
  url_ = fmt::format("{}?options=-csearch_path%3D{}%20-cclient_min_messages%3Dwarning", server_url(), schema_);
}

TestPlace::~TestPlace() {
  std::filesystem::remove_all(folder_);
  if (!schema_.empty()) on_server(fmt::format("DROP SCHEMA {} CASCADE", schema_));
}

std::unique_ptr<Database> TestPlace::open(DatabaseOptions options) const {
  auto opened = open_database(url_, std::move(options));
  if (!opened.ok()) {
    ADD_FAILURE() << opened.fault().message;
    std::abort();
  }
  if (const auto migrated = opened.value()->migrate(); !migrated.ok()) ADD_FAILURE() << migrated.fault().message;
  return std::move(opened).value();
}

std::unique_ptr<Database> TestPlace::open_later(Millis later) const {
  DatabaseOptions options;
  options.clock_ahead = later;
  return open(std::move(options));
}

std::int64_t number(Database& database, std::string_view sql) {
  std::int64_t value = -1;
  const auto done = run_transaction(
      database, [&](Transaction& transaction) { value = transaction.execute(sql).rows.at(0).integer(0); });
  if (!done.ok()) ADD_FAILURE() << done.fault().message;
  return value;
}

void run_sql(Database& database, std::string_view sql) {
  const auto done = run_transaction(database, [&](Transaction& transaction) { transaction.execute(sql); });
  if (!done.ok()) ADD_FAILURE() << sql << ": " << done.fault().message;
}

} // namespace oncekey
