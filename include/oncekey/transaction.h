// Transaction: what application code holds while the library has a transaction open for it.
//
// The code writes what it likes through the real handle; the library begins and ends the transaction. Code that ends it
// by itself (COMMIT, ROLLBACK on the raw handle) is found out and answered with a fault, because rows that commit
// without their recovery point are the very thing this library is against.
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

// A value given to execute(). Text and bytes differ: bytes may hold anything, text must be valid in the database. It
// refers to them: in a list that outlives the expression it is written in, so must they.
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

// A column of a row that came back: numbers as numbers, text and bytes as they are, everything else as its text. A
// Postgres numeric without a fraction (also sum() of bigint) is an integer, as on SQLite; one with a fraction is its
// text, which is exact, and real() reads it.
using SqlColumn = std::variant<std::nullptr_t, std::int64_t, double, std::string>;

// A column that is not there, or not of the kind asked for. The message names the column and what it holds.
class ColumnError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class SqlRow {
 public:
  using Names = std::shared_ptr<const std::vector<std::string>>;
  explicit SqlRow(std::vector<SqlColumn> columns, Names names = nullptr)
      : columns_(std::move(columns)), names_(std::move(names)) {}
  std::size_t size() const { return columns_.size(); }

  // One column of a row, which outlives it. All of them throw ColumnError.
  class Cell {
   public:
    bool is_null() const { return std::holds_alternative<std::nullptr_t>(value()); }
    std::int64_t integer() const;
    double real() const; // of a number, or of a text that is one
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

  bool is_null(std::size_t column) const { return (*this)[column].is_null(); }
  std::int64_t integer(std::size_t column) const { return (*this)[column].integer(); }
  double real(std::size_t column) const { return (*this)[column].real(); }
  const std::string& text(std::size_t column) const { return (*this)[column].text(); }

 private:
  std::vector<SqlColumn> columns_;
  Names names_;
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
  // if its table has changed since, the transaction is run again. COMMIT, ROLLBACK and whatever else would end the
  // transaction is refused with a DatabaseError before anything is sent.
  //
  // After a failed statement Postgres takes no other until the transaction ends (25P02), SQLite does. Code that wants
  // to go on after a failure, on either, puts a savepoint before it: execute("SAVEPOINT attempt"), the statement, and
  // execute("ROLLBACK TO SAVEPOINT attempt") when it threw.
  SqlRows execute(std::string_view sql, std::initializer_list<SqlValue> values = {});
  // For values whose number is known at run time.
  SqlRows execute(std::string_view sql, std::span<const SqlValue> values);

  // Throws DatabaseError if a result obtained on the raw handle says that the statement failed. Does not free it.
  void check(const pg_result* result) const;

  // Stages a job: it is inserted before the transaction commits and exists if and only if that commit does. Jobs get
  // growing ids in the order of these calls. Throws std::invalid_argument when sink or name is empty or no UTF-8.
  void stage_job(StagedJob job);

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
