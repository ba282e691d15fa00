// Session: one connection to the database, and the calls that the library makes on it.
//
// SQL is written once for both databases, with $1, $2, … for values and a few tokens where the dialects differ:
//   {now}          the database's clock, in milliseconds
//   {skip_locked}  locks the rows it reads and passes over those that others have locked; nothing on SQLite, whose
//                  transactions lock everything
//   {in $1}        whether the column before it is in a list made by id_list()
//   {in_texts $1}  whether the column before it is in a list made by text_list()
//   {at $1 n}      the element n (from 0) of a list made by id_list(); its last one if it is shorter
//
// Faults. `conflict` means: roll back and try again (serialization failure, deadlock, busy, a prepared statement that
// is gone). `timeout`, from end and transact alone: it is not known whether the transaction committed. All others mean
// that it did not. `exhausted`, from Engine::session alone: all connections are in use.
#pragma once

#include <oncekey/database.h>
#include <oncekey/transaction.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace oncekey::phases {

// How many rows a command must change for its transaction to commit. On Postgres the functions of the schema check this
// themselves, because the COMMIT is sent before the count is known.
enum class Changes { any, exactly_one };

struct Command {
  std::string_view sql; // outlives the call
  std::vector<SqlValue> values;
  Changes changes = Changes::any;
};

enum class Isolation { read_committed, serializable };
// Which part detects that application code has ended the transaction and begun another: the session, or the commands
// that end it, which then name the transaction. On SQLite it is always the session.
enum class Guard { session, commands };
enum class TransactionState { none, open, failed };

// The library's own statements do without names.
enum class ColumnNames { wanted, not_wanted };
// Whose handle a session works on: the library's is closed with the session, the application's is left open.
enum class HandleOwner { library, application };

class Session {
 public:
  virtual ~Session() = default;

  virtual Dialect dialect() const = 0;
  virtual sqlite3* sqlite() const { return nullptr; }
  virtual pg_conn* postgres() const { return nullptr; }

  // Begins a transaction and runs the commands in it, all in one round trip. After a fault no transaction is open.
  Result<std::vector<SqlRows>> begin(Isolation isolation, Guard guard, std::span<const Command> commands);
  virtual Result<std::vector<SqlRows>> run(std::span<const Command> commands) = 0;
  // Runs the last commands and commits, in one round trip. Rolled back on any fault; one of kind `invalid` if the
  // transaction is no longer the one begun.
  Status end(std::span<const Command> commands);
  // Cannot fail: a connection that cannot roll back is broken, and its transaction ends with it.
  virtual void rollback() = 0;
  // A whole transaction in one round trip; rolled back on any fault.
  Result<std::vector<SqlRows>> transact(Isolation isolation, std::span<const Command> commands);

  // The same for a single command, at READ COMMITTED.
  Result<SqlRows> run_one(const Command& command) { return only(run({&command, 1})); }
  Result<SqlRows> transact_one(const Command& command) {
    return only(transact(Isolation::read_committed, {&command, 1}));
  }

  // A statement of the application's, as it is: tokens are not replaced.
  virtual Result<SqlRows> execute(std::string_view sql, std::span<const SqlValue> values) = 0;
  // Statements without values, one after another in one transaction. The fault names the one that failed.
  Status execute_script(std::span<const std::string_view> statements);

  virtual TransactionState state() const = 0;
  // Whether the connection may be used again.
  virtual bool usable() const = 0;
  // Whether it is unusable because the server did not answer in time: other connections are likely to hang as well.
  virtual bool timed_out() const { return false; }
  // For a session that was idle: whether its server still seems to be there, judged without a round trip.
  virtual bool still_there() { return usable(); }
  // The code of the last error; see DatabaseError.
  const std::string& error_code() const { return error_code_; }

 protected:
  explicit Session(const DatabaseOptions& options) : options_(options) {}
  // One statement without values.
  virtual Status simple(std::string_view sql) = 0;
  // Before a transaction begins: waits for the one writer where there is only one, and begins.
  virtual Status lock_writer() { return ok_status(); }
  void observe(StatementMoment moment, std::string_view sql) const {
    if (options_.on_statement) options_.on_statement(moment, sql);
  }

  const DatabaseOptions& options_;
  std::string error_code_;

 private:
  static Result<SqlRows> only(Result<std::vector<SqlRows>> rows);
  // The rows of `commands`, which are run behind those that begin the transaction and before those that end it.
  Result<std::vector<SqlRows>> run_between(std::vector<Command> begin, std::span<const Command> commands,
                                           std::span<const Command> end);

  std::string mark_; // of the transaction under way; empty when its commands know it themselves
};

std::string id_list(Dialect dialect, std::span<const std::int64_t> ids);
std::string text_list(std::span<const std::string> texts);

// Comes first in transactions of workers that take the first few of many rows. Postgres' planner cannot know how many
// rows a busy table has at the moment, and without this may read and sort them all. Does nothing on SQLite.
Command walk_along_indexes(Dialect dialect);

// Advice to append to the database's message when a table or function of the library is missing; empty for any other.
std::string_view migrate_hint(std::string_view message);

// `sql` with its tokens replaced.
std::string in_dialect(std::string_view sql, Dialect dialect, Millis clock_ahead);

inline std::string_view as_bytes(const std::array<std::uint8_t, 32>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

} // namespace oncekey::phases
