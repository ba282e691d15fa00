// Transaction: what application code holds while the library has a transaction open for it.
//
// The code writes what it likes through the real handle; the library begins and ends the transaction. Code that ends it
// by itself (COMMIT, ROLLBACK) is found out and answered with a fault, because rows that commit without their recovery
// point are the very thing this library is against.
//
// A transaction may be run more than once: a database that finds two of them in each other's way (Postgres' 40001 and
// 40P01) undoes one, and the library runs its code again. Whatever is not in the database (a counter, a log line, a
// message to somebody) happens once for each try. Foreign calls therefore have a place of their own, see operation.h.
//
// Errors. execute() and check() throw DatabaseError; the library catches the ones that mean "try again" and passes all
// others on to the caller. Code that uses the raw handle passes its Postgres results through check(), or throws
// RetryTransaction itself when it sees a serialization failure.
#pragma once

#include <oncekey/database.h>
#include <oncekey/jobs.h>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

struct pg_result;

namespace oncekey {

namespace phases {
class Session;
}

// The database refused a statement.
class DatabaseError : public std::runtime_error {
 public:
  enum class Advice { try_again, give_up };
  DatabaseError(const std::string& message, Advice advice, std::string code)
      : std::runtime_error(message), advice_(advice), code_(std::move(code)) {}
  Advice advice() const { return advice_; }
  // Postgres' SQLSTATE ("23505"); for SQLite the extended result code as a number ("2067").
  const std::string& code() const { return code_; }

 private:
  Advice advice_;
  std::string code_;
};

// Thrown by application code that met a serialization failure on its raw handle: roll back and run the code again.
class RetryTransaction : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A value given to execute(). Text and bytes differ: bytes may hold anything, text must be valid in the database.
struct Bytes {
  std::string_view bytes;
};
using SqlValue = std::variant<std::nullptr_t, std::int64_t, double, std::string_view, Bytes>;
// A column of a row that came back: numbers as numbers, text and bytes as they are, everything else as its text.
using SqlColumn = std::variant<std::nullptr_t, std::int64_t, double, std::string>;

class SqlRow {
 public:
  explicit SqlRow(std::vector<SqlColumn> columns) : columns_(std::move(columns)) {}
  std::size_t size() const { return columns_.size(); }
  // Throw std::out_of_range, std::bad_variant_access on a column that is not there or not of that kind.
  bool is_null(std::size_t column) const { return std::holds_alternative<std::nullptr_t>(columns_.at(column)); }
  std::int64_t integer(std::size_t column) const { return std::get<std::int64_t>(columns_.at(column)); }
  double real(std::size_t column) const { return std::get<double>(columns_.at(column)); }
  const std::string& text(std::size_t column) const { return std::get<std::string>(columns_.at(column)); }

 private:
  std::vector<SqlColumn> columns_;
};

struct SqlRows {
  std::vector<SqlRow> rows;
  std::int64_t changed = 0; // rows inserted, updated or deleted
};

class Transaction {
 public:
  Transaction(phases::Session& session) : session_(session) {}
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;

  // The real handle; null when the database is of the other kind.
  sqlite3* sqlite() const;
  pg_conn* postgres() const;
  Dialect dialect() const;

  // A small convenience for code that has no database layer of its own: one statement, parameters as $1, $2, … on both
  // databases. Each costs one round trip, as it would by hand. One that comes again on the same connection is prepared;
  // if its table has changed since, the transaction is run again.
  SqlRows execute(std::string_view sql, std::initializer_list<SqlValue> values = {});

  // Throws DatabaseError if a result obtained on the raw handle says that the statement failed. Does not free it.
  void check(const pg_result* result) const;

  // Stages a job: it is inserted before the transaction commits and exists if and only if that commit does. Jobs get
  // growing ids in the order of these calls.
  void stage_job(StagedJob job) { staged_.push_back(std::move(job)); }

  // For the library's own use.
  const std::vector<StagedJob>& staged_jobs() const { return staged_; }
  phases::Session& session() const { return session_; }

 private:
  phases::Session& session_;
  std::vector<StagedJob> staged_;
};

struct TransactionOptions {
  // How long a transaction is run again after serialization failures before the answer is `conflict`.
  Millis conflict_budget = std::chrono::seconds(5);
};

// Runs `code` in one serializable transaction and commits it: the plain form of a phase, for writes and staged jobs
// that belong to no operation. A fault of kind `conflict` means that the budget was used up and nothing was changed;
// one of kind `timeout`, that the commit was sent and never answered. What `code` throws rolls back and is passed on.
Status run_transaction(Database& database, const std::function<void(Transaction&)>& code,
                       const TransactionOptions& options = {});

} // namespace oncekey
