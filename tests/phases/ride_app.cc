#include "ride_app.h"

#include "database_under_test.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace oncekey {

OutsideWorld::OutsideWorld(const std::string& folder) {
  EXPECT_EQ(sqlite3_open((folder + "/outside.db").c_str(), &handle_), SQLITE_OK);
  sqlite3_busy_timeout(handle_, 20'000);
  // Processes are killed here, machines are not.
  run("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;");
  run("CREATE TABLE IF NOT EXISTS charge (key TEXT PRIMARY KEY, calls INTEGER NOT NULL);"
      "CREATE TABLE IF NOT EXISTS mail (id INTEGER PRIMARY KEY, deliveries INTEGER NOT NULL);");
}

OutsideWorld::~OutsideWorld() { sqlite3_close(handle_); }

void OutsideWorld::run(const std::string& sql) const {
  char* error = nullptr;
  EXPECT_EQ(sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, &error), SQLITE_OK) << (error ? error : "") << sql;
  sqlite3_free(error);
}

std::int64_t OutsideWorld::number(const char* sql) const {
  sqlite3_stmt* statement = nullptr;
  EXPECT_EQ(sqlite3_prepare_v2(handle_, sql, -1, &statement, nullptr), SQLITE_OK);
  EXPECT_EQ(sqlite3_step(statement), SQLITE_ROW);
  const std::int64_t value = sqlite3_column_int64(statement, 0);
  sqlite3_finalize(statement);
  return value;
}

std::string OutsideWorld::charge(const std::string& key) {
  run(fmt::format("INSERT INTO charge VALUES ('{}', 1) ON CONFLICT (key) DO UPDATE SET calls = calls + 1", key));
  return "ch_" + key.substr(0, 8);
}

void OutsideWorld::receive_mail(const Job& job) {
  run(fmt::format("INSERT INTO mail VALUES ({}, 1) ON CONFLICT (id) DO UPDATE SET deliveries = deliveries + 1",
                  job.id));
}

void make_ride_tables(Database& database) {
  const bool postgres = database.dialect() == Dialect::postgres;
  run_sql(database, fmt::format("CREATE TABLE ride (id {}, principal text NOT NULL, key text NOT NULL, charge text)",
                                postgres ? "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY" : "INTEGER PRIMARY KEY"));
  run_sql(database, "CREATE TABLE audit (what text NOT NULL)");
}

Operation ride_operation(OutsideWorld& world, std::function<void()> around_call) {
  Operation book("book_ride");
  book.phase("started", [](Phase& phase) {
    const auto ride = phase.execute("INSERT INTO ride (principal, key) VALUES ($1, $2) RETURNING id",
                                    {phase.request().principal, phase.request().key});
    phase.execute("INSERT INTO audit (what) VALUES ('ride created')");
    phase.keep_note("ride", std::to_string(ride.rows.at(0).integer(0)));
    return phase.next("ride_created");
  });
  book.call_then_phase(
      "ride_created", "charge",
      [&world, around_call](const ForeignCall& call) {
        around_call();
        std::string charge = world.charge(call.key());
        around_call();
        return charge;
      },
      [](Phase& phase, const std::string& charge) {
        phase.execute("UPDATE ride SET charge = $1 WHERE id = $2",
                      {charge, std::int64_t{std::stoll(*phase.note("ride"))}});
        return phase.next("charge_created");
      });
  book.phase("charge_created", [](Phase& phase) {
    phase.stage_job({.sink = "mail", .name = "send_receipt", .args = "[" + *phase.note("ride") + "]"});
    return phase.respond(201, "application/json", "{\"ride\":" + *phase.note("ride") + "}");
  });
  return book;
}

OperationRequest ride_request(const std::string& key) {
  OperationRequest request;
  request.operation = "book_ride";
  request.principal = "user:42";
  request.key = key;
  request.path = "/rides";
  request.body = "{\"from\":\"here\",\"to\":\"there\"}";
  request.content_type = "application/json";
  return request;
}

} // namespace oncekey
