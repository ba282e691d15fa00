// PostgresSession: a connection to a Postgres server.
//
// What belongs together goes in one round trip: the statements of a call are sent through libpq's pipeline and answered
// together. Between two calls the connection is in its ordinary mode, as application code inside a transaction expects.
//
// Every wait has a deadline. A server that is stopped, or behind a proxy that forwards nothing, keeps its sockets open
// and still acknowledges TCP segments. During an exchange libpq does not block; this class waits, up to the deadline. A
// connection that missed it is broken.
#pragma once

#include "phases/postgres_values.h"
#include "phases/session.h"

#include <libpq-fe.h>

#include <chrono>
#include <memory>
#include <unordered_map>
#include <unordered_set>

namespace oncekey::phases {

struct PostgresClear {
  void operator()(PGresult* result) const { PQclear(result); }
};
using PostgresResult = std::unique_ptr<PGresult, PostgresClear>;

// What a failed result means; for PostgresSession and for Transaction::check.
Fault postgres_fault(const PGresult* result, std::string_view sql);
bool postgres_succeeded(const PGresult* result);

// Which statements are prepared on one connection, and under which names.
//
// A name is made of the statement's own text and types. Behind a pooler that gives every transaction another server
// connection, another session may have prepared a statement there under the same name: it is then the same statement.
//
// A prepared statement may be gone (DISCARD, DEALLOCATE, a pooler) or planned for a table that has changed since. The
// server says so before it does anything; the transaction is undone, everything prepared is forgotten, and the
// transaction is run again. A connection that has names of another session, or loses names a second time, is behind a
// pooler or is cleared regularly by its application: from then on nothing is prepared on it.
class PostgresStatements {
 public:
  enum class Use { never, allowed };
  explicit PostgresStatements(Use use) : use_(use) {}

  // The library's statements are few and are prepared at once. A statement of the application is prepared when it comes
  // a second time: a text with values written into it comes only once.
  enum class Whose { ours, applications };
  // What a statement is remembered by: its text as the caller has it, and the types of its values.
  static std::string key(Whose whose, std::string_view sql, std::span<const Oid> types);

  // The name it is prepared under; null if it is not.
  const char* find(const std::string& key) const;
  // Whether it is to be prepared now.
  bool worth_preparing(const std::string& key, Whose whose);
  // Makes a name out of the key and the text as the server gets it. The caller erases it if preparing fails.
  const char* add(const std::string& key, std::string_view sent);
  void erase(const std::string& key) { names_.erase(key); }

  // Whether a failure was only about prepared statements, which are then forgotten: the same transaction may succeed
  // when it is run again.
  bool forget_if_stale(std::string_view sqlstate, std::string_view source_function);

 private:
  Use use_;
  int misses_ = 0;
  int generation_ = 1;
  std::unordered_map<std::string, std::string> names_;
  std::unordered_set<std::size_t> seen_once_;
};

class PostgresSession final : public Session {
 public:
  PostgresSession(PGconn* handle, HandleOwner owner, const DatabaseOptions& options);

  Dialect dialect() const override { return Dialect::postgres; }
  PGconn* postgres() const override { return handle_; }
  // If a prepared statement is gone at the beginning of a transaction, nothing has happened, and all is run again.
  Result<std::vector<SqlRows>> run(std::span<const Command> commands) override;
  void rollback() override;
  Result<SqlRows> execute(std::string_view sql, std::span<const SqlValue> values) override;
  TransactionState state() const override;
  bool timed_out() const override { return timed_out_; }
  bool usable() const override { return !broken_ && PQstatus(handle_) == CONNECTION_OK; }
  bool still_there() override;

 private:
  using Whose = PostgresStatements::Whose;
  // A command that was put on the wire and will be answered.
  struct Sent {
    enum class Kind { preparing, running };
    Kind kind;
    std::string_view sql;
    std::string key; // of what is being prepared
  };
  Result<std::vector<SqlRows>> pipeline(std::span<const Command> commands);
  Result<std::vector<SqlRows>> exchange(std::span<const Command> commands, Whose whose);
  bool send(const Command& command, Whose whose, std::vector<Sent>& sent);
  Result<std::vector<SqlRows>> receive(const std::vector<Sent>& sent, Whose whose);
  // In the ordinary mode.
  Status simple(std::string_view sql) override;

  using SteadyTime = std::chrono::steady_clock::time_point;
  void begin_exchange() {
    deadline_ = std::chrono::steady_clock::now() + options_.answer_timeout;
    nonblocking_before_ = PQisnonblocking(handle_);
  }
  // Waits for what libpq has to send or to read. False when the time is up or the connection gone.
  bool flush_in_time();
  bool result_in_time();
  bool wait_for_socket(short events);
  // The next result; null at the end of a statement's, or when none came in time.
  PGresult* next_result() { return result_in_time() ? PQgetResult(handle_) : nullptr; }
  Fault lost(std::string_view doing);
  // A connection on which COPY has begun cannot be used any more.
  Fault refuse_copy(std::string_view sql);
  Fault note(const PGresult* result, std::string_view sql);

  const std::unique_ptr<PGconn, void (*)(PGconn*)> owned_;
  PGconn* const handle_;
  PostgresStatements statements_;
  SteadyTime deadline_{}; // of the exchange under way
  int nonblocking_before_ = 0;
  bool timed_out_ = false;
  bool stale_ = false; // the last failure was about preparing alone
  bool broken_ = false;
};

} // namespace oncekey::phases
