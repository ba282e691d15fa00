// SqliteSession: a connection to a SQLite file.
//
// Every transaction begins IMMEDIATE: it has the one write lock from its first statement on, and never fails half-way
// because another connection wrote. Threads of one process queue for that lock in WriterTurn, where a waiter is woken;
// SQLite itself would have them poll. For the lock of another process this class polls.
#pragma once

#include "phases/session.h"

#include <sqlite3.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace oncekey::phases {

// The queue of the threads of this process for SQLite's one write lock.
class WriterTurn {
 public:
  bool take(Millis wait_max);
  void give();

 private:
  std::mutex mutex_;
  std::condition_variable free_;
  bool taken_ = false;
};

struct SqliteFinalize {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using SqliteStatement = std::unique_ptr<sqlite3_stmt, SqliteFinalize>;

class SqliteSession final : public Session {
 public:
  SqliteSession(sqlite3* handle, HandleOwner owner, WriterTurn& turn, const DatabaseOptions& options)
      : Session(options), handle_(handle), owner_(owner), turn_(turn) {}
  ~SqliteSession() override;

  Dialect dialect() const override { return Dialect::sqlite; }
  sqlite3* sqlite() const override { return handle_; }
  Result<std::vector<SqlRows>> run(std::span<const Command> commands) override;
  void rollback() override;
  Result<SqlRows> execute(std::string_view sql, std::span<const SqlValue> values) override;
  TransactionState state() const override;
  bool usable() const override { return true; }

 private:
  Status simple(std::string_view sql) override;
  Status lock_writer() override;
  Result<SqlRows> run_prepared(const Command& command);
  Result<SqlRows> step_all(sqlite3_stmt* statement, std::span<const SqlValue> values, std::string_view sql,
                           ColumnNames wanted);
  // Exactly one statement: SQLite itself would run the first and ignore the others.
  Result<SqliteStatement> prepare(std::string_view sql);
  bool only_comments(std::string_view sql);
  Fault misused(std::string_view what, std::string_view sql);
  Fault fault(std::string_view sql);
  void end_turn();

  sqlite3* const handle_;
  const HandleOwner owner_;
  WriterTurn& turn_;
  std::unordered_map<std::string, SqliteStatement> prepared_;
  bool have_turn_ = false;
};

} // namespace oncekey::phases
