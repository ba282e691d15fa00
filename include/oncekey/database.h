// Database: the application's own database, as the library of atomic phases uses it.
//
// The library keeps its rows beside the application's tables, so that a key, the business rows and the staged jobs
// commit in one transaction or not at all. Two kinds of database are known, told apart by their URL:
//
//   sqlite:PATH            one machine. Write-ahead log, synchronous = FULL, one writer at a time (BEGIN IMMEDIATE).
//   postgres://user@host/name    many machines. Phases run SERIALIZABLE. What libpq understands in a URL is understood.
//
// What the library commits is durable: where synchronous_commit is off, it is on for the library's transactions, on the
// application's own connections as well. Any other setting stays as it is.
//
// The tables are made by migrate(), or by the application's own migrations from schema_text(): the same text. On
// Postgres the application's role must own them, because partitions are made, attached and dropped while it runs.
// Migrations that run under another role become that role for these statements: SET ROLE app before, RESET ROLE after,
// and once GRANT CREATE, USAGE ON SCHEMA public TO app.
//
// The schema has a version. A library that finds another one than its own says so in a fault (`newer_format` or
// `invalid`) and does nothing.
//
// Connections. The library opens its own as it needs them and keeps them for the next use; no more than
// `connections_max` at a time, further callers wait. A phase gets the raw handle of the connection it runs on. An
// application with a pool of its own lends connections out of it through DatabaseOptions::connections.
//
// Time. Leases, backoff and expiry are counted by the database's clock: the server's for Postgres, the machine's for
// SQLite, which only one machine uses. The clocks of the application's machines never meet. That one clock must not
// step: it may be slewed, not set. After a step ahead answers expire early, and an expired key is executed again; after
// a step back leases last longer.
//
// A database that hangs. Every wait has an end, so that every call of this library ends in a fault at the latest after
// `wait_max` + `connect_timeout` + `answer_timeout`, also where the server's machine still answers for it (a stopped
// process, a proxy that forwards nothing). `connect_timeout` counts for each address: a URL with three hosts that hang
// takes three times as long. Inside a phase the fault is a DatabaseError that execute() throws; Runner::run() throws it
// on, like any exception of a phase. Statements of the application on the raw handle are the application's.
//
// fork(). A child has no use of a Database, Runner or worker made before the fork: it shares the parent's sockets and
// has none of its threads. Open the database after forking.
//
// Cost on Postgres. A claim is one round trip, a phase two besides the application's own statements: its beginning with
// the check of the fence, and its end with the commit. The steps are functions of the schema, one statement each.
//
// Threads. A Database may be used from any number of threads. It outlives every Runner and worker made from it.
#pragma once

#include <oncekey/result.h>
#include <oncekey/time.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

// The handles of the two client libraries, whose headers this one does not need.
struct sqlite3;
struct pg_conn;

namespace oncekey {

enum class Dialect { sqlite, postgres };
std::string_view to_string(Dialect dialect);

// Tells what is sent to the database, for traces, for counting and for crash tests.
enum class StatementMoment {
  before, // about to be executed or put on the wire
  after,  // executed, and its answer read
  // A whole exchange with the server has ended. Several statements may share one: that is how few round trips are made.
  round_trip,
};
using StatementObserver = std::function<void(StatementMoment moment, std::string_view sql)>;

// A connection that belongs to the application. It must be idle (no transaction open), used by no other thread during
// the run, and lead to the same database. SQLite: synchronous must be FULL or EXTRA; this is checked.
class OwnConnection {
 public:
  explicit OwnConnection(sqlite3* handle) : sqlite_(handle) {}
  explicit OwnConnection(pg_conn* handle) : postgres_(handle) {}
  sqlite3* sqlite() const { return sqlite_; }
  pg_conn* postgres() const { return postgres_; }

 private:
  sqlite3* sqlite_ = nullptr;
  pg_conn* postgres_ = nullptr;
};

// Lends the library connections out of the application's own pool, for everything it does: runs, resumes, transactions,
// the inbox, workers. One is borrowed for a phase or a statement and never during a foreign call. Both are called from
// several threads at once.
//
//     options.connections.borrow = [&]() -> oncekey::Result<oncekey::OwnConnection> {
//       pg_conn* const connection = pool.acquire_within(std::chrono::seconds(5));
//       if (connection == nullptr) return oncekey::Fault{oncekey::FaultKind::exhausted, "the pool is empty"};
//       return oncekey::OwnConnection(connection);
//     };
//     options.connections.give_back = [&](oncekey::OwnConnection connection, oncekey::ConnectionProvider::State state)
//     {
//       if (state == oncekey::ConnectionProvider::State::broken) return pool.close(connection.postgres());
//       pool.release(connection.postgres());
//     };
struct ConnectionProvider {
  // Waits as long as the pool likes to. A fault of kind `exhausted` says that all are in use. May throw: `unavailable`.
  std::function<Result<OwnConnection>()> borrow;
  // What became of it: `broken` must be closed, because a statement may still be under way on it.
  enum class State { idle, broken };
  // Must not throw.
  std::function<void(OwnConnection connection, State state)> give_back;
};

struct DatabaseOptions {
  // A connection is held during a phase and never during a foreign call, so that few serve many threads.
  std::size_t connections_max = 16;
  // Where the application has a pool: both functions are set, and the library opens no connection of its own.
  ConnectionProvider connections{};
  Millis connect_timeout = std::chrono::seconds(5);
  // How long Postgres may take for one exchange: one statement of the application through execute(), or the library's
  // own. A connection on which it took longer is closed. The time that statements wait for locks counts.
  Millis answer_timeout = std::chrono::seconds(30);
  // How long to wait for SQLite's one writer (then the answer is a conflict to try again) and for a free connection (a
  // fault of kind `exhausted`).
  Millis wait_max = std::chrono::seconds(10);
  // Statements of the library, and those of the application that come again, are sent to Postgres as prepared ones.
  // Behind a pooler that gives every transaction another server connection (PgBouncer before 1.21 in transaction mode)
  // this is noticed and given up after a repeated transaction or two for each connection; turn it off to save those.
  bool prepare_statements = true;
  // Makes the database's clock seem ahead by this much to this Database object: how tests let an hour pass. Not for
  // production.
  Millis clock_ahead{0};
  // Called on the thread that sends the statement. Must not use the database.
  StatementObserver on_statement;
};

namespace phases {
class Engine; // the inside: src/phases/engine.h
}

class Database {
 public:
  explicit Database(std::unique_ptr<phases::Engine> engine);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  Dialect dialect() const;

  // Makes the tables that are missing. Does nothing, quickly, when the schema has this library's version; several
  // processes may call it at once. Not needed where the application's own migrations contain schema_text(). A version
  // that differs is a fault: 1.x versions of the library will bring the statements that lead from one to the next.
  Status migrate();

  // For the library's own use.
  phases::Engine& engine() const { return *engine_; }

 private:
  std::unique_ptr<phases::Engine> engine_;
};

// A URL that cannot be understood is `invalid`; a database that cannot be reached is `unavailable`.
Result<std::unique_ptr<Database>> open_database(std::string_view url, DatabaseOptions options = {});

// The version of the schema that this library works with; kept in the table oncekey_meta.
inline constexpr int kSchemaVersion = 1;
// The library's schema as SQL, to read or to copy into the application's migrations: every statement may be run again.
std::string_view schema_text(Dialect dialect);
// The same by name, "sqlite" or "postgres"; a fault of kind `invalid` for any other.
Result<std::string_view> schema_text(std::string_view dialect);

} // namespace oncekey
