// PostgresSession: a connection to a Postgres server.
//
// What belongs together goes in one round trip: the statements of a call are sent through libpq's pipeline and answered
// together. Between two calls the connection is in its ordinary mode, as application code inside a transaction expects.
#pragma once

#include "phases/session.h"

#include <libpq-fe.h>

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

namespace oncekey::phases {

struct PostgresFinish {
  void operator()(PGconn* handle) const { PQfinish(handle); }
};
struct PostgresClear {
  void operator()(PGresult* result) const { PQclear(result); }
};
using PostgresHandle = std::unique_ptr<PGconn, PostgresFinish>;
using PostgresResult = std::unique_ptr<PGresult, PostgresClear>;

// What a failed result means; for PostgresSession and for Transaction::check.
Fault postgres_fault(const PGresult* result, std::string_view sql);
bool postgres_succeeded(const PGresult* result);

class PostgresSession final : public Session {
 public:
  PostgresSession(PostgresHandle handle, const DatabaseOptions& options);
  PostgresSession(PGconn* handle, const DatabaseOptions& options);

  Dialect dialect() const override { return Dialect::postgres; }
  PGconn* postgres() const override { return handle_; }
  Result<std::vector<SqlRows>> begin(Isolation isolation, std::span<const Command> commands) override;
  Result<std::vector<SqlRows>> run(std::span<const Command> commands) override;
  Result<std::vector<SqlRows>> run_last(std::span<const Command> commands) override;
  Status commit() override;
  void rollback() override;
  Result<std::vector<SqlRows>> transact(Isolation isolation, std::span<const Command> commands) override;
  Result<SqlRows> execute(std::string_view sql, std::span<const SqlValue> values) override;
  Status execute_script(const std::string& sql) override;
  TransactionState state() const override;
  bool usable() const override { return !broken_ && PQstatus(handle_) == CONNECTION_OK; }
  const std::string& error_code() const override { return error_code_; }

 private:
  struct Sent {
    std::string_view sql;
    std::string preparing; // the template that this command prepares; empty for one that runs
  };
  Result<std::vector<SqlRows>> pipeline(std::span<const Command> commands);
  Result<std::vector<SqlRows>> pipeline_chunk(std::span<const Command> commands);
  bool send(const Command& command, std::vector<Sent>& sent);
  Result<std::vector<SqlRows>> receive(const std::vector<Sent>& sent);
  Fault lost(std::string_view doing);
  Fault note(const PGresult* result, std::string_view sql);
  void observe(StatementMoment moment, std::string_view sql) const;

  PostgresHandle owned_;
  PGconn* const handle_;
  const DatabaseOptions& options_;
  const bool prepare_;
  std::unordered_map<std::string, std::string> prepared_; // template to the statement's name
  std::uint64_t prepared_count_ = 0;
  std::string mark_; // of the transaction under way; see run_last
  std::string error_code_;
  bool broken_ = false;
};

} // namespace oncekey::phases
