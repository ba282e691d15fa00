// Transaction: what application code holds while the library has a transaction open for it.
//
// The application's code writes through execute() or through the real handle of its client library; the library begins
// and ends the transaction. Code that ends it by itself (COMMIT or ROLLBACK on the raw handle) is detected, and the
// call ends in a fault of kind `invalid`: rows that commit without their recovery point are what this library prevents.
//
// A transaction may run more than once. When two are in each other's way (Postgres' 40001 and 40P01), the database
// undoes one, and the library runs its code again. Effects outside the database (a counter, a log line, a mail) happen
// once for each try. Foreign calls therefore have a place of their own, see operation.h.
//
// Errors. execute() and check() throw DatabaseError. The library catches those that mean "try again" and passes all
// others on to the caller. Code that uses the raw handle passes its Postgres results through check(), or throws
// RetryTransaction itself when it sees a serialization failure.
//
// Ownership. A Transaction is lent: it is valid during the call of the code that gets it, on the thread of that call,
// and neither it nor the handle may be kept. Rows that came back own their values and may be kept.
//
// Durability. When the library's function returns success, the commit is durable by the rules of database.h.
#pragma once

#include <oncekey/database.h>
#include <oncekey/jobs.h>

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
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

// The database refused a statement, or did not answer it. Code may catch it and go on where the database allows that
// (see execute()); an error that says `try_again` should be let through, because the transaction cannot commit any
// more.
class DatabaseError : public std::runtime_error {
 public:
  enum class Advice {
    try_again, // a serialization failure or a deadlock: the library rolls back and runs the code again
    give_up,   // anything else: the same statement would fail again
  };
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

// A value given to execute(). Text and bytes differ: bytes may hold anything and become bytea or BLOB, text must be
// valid in the database's encoding. A value refers to the caller's text or bytes and copies nothing: a list of values
// that is kept longer than one expression must not outlive them.
struct Bytes {
  std::string_view bytes;
};
using SqlValueKinds = std::variant<std::nullptr_t, std::int64_t, double, std::string_view, Bytes>;
class SqlValue : public SqlValueKinds {
 public:
  SqlValue(std::nullptr_t) : SqlValueKinds(nullptr) {}
  // Throws std::out_of_range for an unsigned number that does not fit into 64 bits with a sign, as databases have them.
  template <std::integral T>
  SqlValue(T number) : SqlValueKinds(fitting(number)) {}
  template <std::floating_point T>
  SqlValue(T number) : SqlValueKinds(static_cast<double>(number)) {}
  SqlValue(std::string_view text) : SqlValueKinds(text) {}
  SqlValue(const std::string& text) : SqlValueKinds(std::string_view(text)) {}
  SqlValue(const char* text) : SqlValueKinds(std::string_view(text)) {}
  SqlValue(Bytes bytes) : SqlValueKinds(bytes) {}
  // Without a value: NULL.
  template <class T>
  SqlValue(const std::optional<T>& maybe) : SqlValue(maybe ? SqlValue(*maybe) : SqlValue(nullptr)) {}

 private:
  template <std::integral T>
  static std::int64_t fitting(T number) {
    if (!std::in_range<std::int64_t>(number)) throw std::out_of_range("a number given to execute() is above 2^63 - 1");
    return static_cast<std::int64_t>(number);
  }
};

// A column of a row that came back: NULL, numbers as numbers, text and bytes as they are, everything else as its text.
// A Postgres numeric without a fraction (also sum() of bigint) is an integer, as on SQLite; one with a fraction is its
// text, which is exact, and real() reads it.
using SqlColumn = std::variant<std::nullptr_t, std::int64_t, double, std::string>;

// A column that is not there, or not of the kind asked for. The message names the column and what it holds.
class ColumnError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// One row of an answer. It owns its values; rows of one answer share the names of their columns.
class SqlRow {
 public:
  using Names = std::shared_ptr<const std::vector<std::string>>;
  // Made by the library.
  explicit SqlRow(std::vector<SqlColumn> columns, Names names = nullptr)
      : columns_(std::move(columns)), names_(std::move(names)) {}
  std::size_t size() const { return columns_.size(); }

  // One column of a row. Valid as long as the row. A column of another kind than asked for throws ColumnError.
  class Cell {
   public:
    bool is_null() const { return std::holds_alternative<std::nullptr_t>(value()); }
    // NULL throws as well: ask is_null() where a column may be NULL.
    std::int64_t integer() const;
    // Of a number, or of a text that is one: a Postgres numeric with a fraction.
    double real() const;
    // The text or bytes. Valid as long as the row.
    const std::string& text() const;

   private:
    friend class SqlRow;
    Cell(const SqlRow& row, std::size_t column) : row_(row), column_(column) {}
    const SqlColumn& value() const { return row_.columns_[column_]; }
    [[noreturn]] void wrong(std::string_view wanted) const;
    const SqlRow& row_;
    const std::size_t column_;
  };

  // By place from 0 on, or by name as the statement gives it ("SELECT id, sum(fare) AS total"); of two columns with the
  // same name the first. Throw ColumnError.
  Cell operator[](std::size_t column) const;
  Cell operator[](std::string_view name) const;

  // The same by place, in one word.
  bool is_null(std::size_t column) const { return (*this)[column].is_null(); }
  std::int64_t integer(std::size_t column) const { return (*this)[column].integer(); }
  double real(std::size_t column) const { return (*this)[column].real(); }
  const std::string& text(std::size_t column) const { return (*this)[column].text(); }

 private:
  std::vector<SqlColumn> columns_;
  Names names_;
};

// The answer to one statement: the rows of a SELECT or of RETURNING, and how many rows were changed.
struct SqlRows {
  std::vector<SqlRow> rows;
  std::int64_t changed = 0; // rows inserted, updated or deleted
};

class Transaction {
 public:
  Transaction(phases::Session& session) : session_(session) {}
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;

  // The real handle, for the application's own database layer; null when the database is of the other kind.
  sqlite3* sqlite() const;
  pg_conn* postgres() const;
  Dialect dialect() const;

  // For code that has no database layer of its own: one statement, with parameters as $1, $2, … on both databases. Each
  // costs one round trip, as it would by hand. A statement that comes again on the same connection is prepared; if its
  // table has changed since, the transaction is run again. Statements that would end the transaction (COMMIT, ROLLBACK)
  // are refused with a DatabaseError before anything is sent.
  //
  //     const auto rides = transaction.execute("SELECT id, fare FROM rides WHERE rider = $1", {rider});
  //     for (const oncekey::SqlRow& ride : rides.rows) total += ride["fare"].integer();
  //
  // After a failed statement Postgres takes no other until the transaction ends (25P02), SQLite does. Code that wants
  // to go on after a failure, on either, puts a savepoint before it:
  //
  //     transaction.execute("SAVEPOINT attempt");
  //     try {
  //       transaction.execute("INSERT INTO coupons (code) VALUES ($1)", {code});
  //     } catch (const oncekey::DatabaseError& error) {
  //       if (error.advice() == oncekey::DatabaseError::Advice::try_again) throw;
  //       transaction.execute("ROLLBACK TO SAVEPOINT attempt");
  //     }
  SqlRows execute(std::string_view sql, std::initializer_list<SqlValue> values = {});
  // The same for values whose number is known at run time only.
  SqlRows execute(std::string_view sql, std::span<const SqlValue> values);

  // For code that uses libpq itself: throws DatabaseError if the result says that the statement failed, with the advice
  // to try again where the failure was a conflict. A null result throws as well. Does not free the result.
  void check(const pg_result* result) const;

  // Stages a job (jobs.h). It is inserted before the transaction commits, and exists if and only if that commit does.
  // Jobs get growing ids in the order of these calls. Throws std::invalid_argument when sink or name is empty or is not
  // UTF-8.
  void stage_job(StagedJob job);

  // For the library's own use.
  const std::vector<StagedJob>& staged_jobs() const { return staged_; }
  phases::Session& session() const { return session_; }

 private:
  phases::Session& session_;
  std::vector<StagedJob> staged_;
};

// For run_transaction.
struct TransactionOptions {
  // How long a transaction is run again after serialization failures before the answer is `conflict`.
  Millis conflict_budget = std::chrono::seconds(5);
};

// Runs `code` in one serializable transaction and commits it: the plain form of a phase, for writes and staged jobs
// that belong to no operation.
//
//     const oncekey::Status done = oncekey::run_transaction(*database, [&](oncekey::Transaction& transaction) {
//       transaction.execute("UPDATE rides SET state = 'over' WHERE id = $1", {ride});
//       transaction.stage_job({.sink = "mail", .name = "ask_for_a_rating", .args = "[…]"});
//     });
//     if (!done) std::cerr << done.fault().message << "\n";
//
// Blocks its caller; may be called from any thread. What `code` throws rolls back and is passed on. Faults:
//
//   conflict      serialization failures used up the budget; nothing was changed
//   timeout       the commit was sent and never answered; whether it took effect is unknown
//   exhausted     all connections are in use; `code` did not run
//   invalid       the code ended the transaction itself
//   unavailable   the database failed; nothing was changed
//
// A retry after `timeout` may write a second time. Where that matters, use an operation (operation.h) or process_once
// (inbox.h), which look first.
Status run_transaction(Database& database, const std::function<void(Transaction&)>& code,
                       const TransactionOptions& options = {});

} // namespace oncekey
