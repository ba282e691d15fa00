#include "phases/postgres_session.h"

#include "base/crypto.h"
#include "phases/postgres_values.h"

#include <fmt/format.h>

#include <algorithm>

namespace oncekey::phases {
namespace {

constexpr std::size_t kPostgresPreparedMax = 256;
// Answers of a pipeline wait in the sockets' buffers until all of it is sent: it must be short enough for them.
constexpr std::size_t kPipelineMax = 64;

constexpr std::string_view kBeginSerializable = "BEGIN ISOLATION LEVEL SERIALIZABLE";
constexpr std::string_view kBeginReadCommitted = "BEGIN ISOLATION LEVEL READ COMMITTED";
// The mark lasts as long as the transaction: one that application code ended and began anew does not have it.
//
// Our own statements must find their row by its index. When there are few rows the planner prefers to read the whole
// table, and a serializable transaction that has read a whole table is in everybody's way: unrelated operations would
// undo each other by the thousand. So the planner is kept from it for our statements, and has its old setting back for
// those of the application.
constexpr std::string_view kPostgresMark =
    "SELECT set_config('oncekey.transaction', $1, true),"
    " set_config('oncekey.enable_seqscan', current_setting('enable_seqscan'), true),"
    " set_config('enable_seqscan', 'off', true)";
constexpr std::string_view kPostgresHandOver =
    "SELECT set_config('enable_seqscan', current_setting('oncekey.enable_seqscan'), true)";
constexpr std::string_view kPostgresReadMark =
    "SELECT coalesce(current_setting('oncekey.transaction', true), ''), set_config('enable_seqscan', 'off', true)";

std::string_view begin_of(Isolation isolation) {
  return isolation == Isolation::serializable ? kBeginSerializable : kBeginReadCommitted;
}

std::string trimmed_message(const char* message) {
  std::string text = message ? message : "";
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

FaultKind postgres_kind(std::string_view state) {
  // Serialization failure, deadlock, a lock not to be had in time.
  if (state == "40001" || state == "40P01" || state == "55P03") return FaultKind::conflict;
  if (state.starts_with("XX001") || state.starts_with("XX002")) return FaultKind::corrupt;
  for (const std::string_view theirs : {"08", "53", "57", "58", "XX"}) {
    if (state.starts_with(theirs)) return FaultKind::unavailable;
  }
  return state.empty() ? FaultKind::unavailable : FaultKind::invalid;
}

std::string_view sqlstate_of(const PGresult* result) {
  const char* const state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
  return state ? state : "";
}

std::string random_mark() {
  const std::uint64_t number = random_u64();
  return fmt::format("{:016x}", number);
}

} // namespace

bool postgres_succeeded(const PGresult* result) {
  switch (PQresultStatus(result)) {
    case PGRES_COMMAND_OK:
    case PGRES_TUPLES_OK:
    case PGRES_SINGLE_TUPLE:
    case PGRES_COPY_IN:
    case PGRES_COPY_OUT:
    case PGRES_COPY_BOTH:
    case PGRES_PIPELINE_SYNC:
    case PGRES_NONFATAL_ERROR:
    case PGRES_EMPTY_QUERY:
      return true;
    case PGRES_BAD_RESPONSE:
    case PGRES_FATAL_ERROR:
    case PGRES_PIPELINE_ABORTED:
      return false;
  }
  return false;
}

Fault postgres_fault(const PGresult* result, std::string_view sql) {
  return {postgres_kind(sqlstate_of(result)),
          fmt::format("Postgres: {} ({}) in: {}", trimmed_message(PQresultErrorMessage(result)), sqlstate_of(result),
                      sql.substr(0, 200))};
}

PostgresSession::PostgresSession(PostgresHandle handle, const DatabaseOptions& options)
    : owned_(std::move(handle)), handle_(owned_.get()), options_(options), prepare_(options.prepare_statements) {}

// What is prepared on the application's connection is not ours to know: nothing is.
PostgresSession::PostgresSession(PGconn* handle, const DatabaseOptions& options)
    : handle_(handle), options_(options), prepare_(false) {}

void PostgresSession::observe(StatementMoment moment, std::string_view sql) const {
  if (options_.on_statement) options_.on_statement(moment, sql);
}

Fault PostgresSession::lost(std::string_view doing) {
  broken_ = true;
  error_code_.clear();
  return unavailable(fmt::format("Postgres: {} while {}", trimmed_message(PQerrorMessage(handle_)), doing));
}

Fault PostgresSession::note(const PGresult* result, std::string_view sql) {
  error_code_ = sqlstate_of(result);
  return postgres_fault(result, sql);
}

bool PostgresSession::send(const Command& command, std::vector<Sent>& sent) {
  const PostgresValues values(command.values);
  observe(StatementMoment::before, command.sql);
  const std::string text(command.sql);
  if (!prepare_) {
    sent.push_back({command.sql, {}});
    const std::string sql = in_dialect(command.sql, Dialect::postgres, options_.clock_ahead);
    return PQsendQueryParams(handle_, sql.c_str(), values.count(), values.types(), values.pointers(), values.lengths(),
                             values.formats(), 0) == 1;
  }
  auto known = prepared_.find(text);
  if (known == prepared_.end()) {
    known = prepared_.emplace(text, fmt::format("oncekey_{}", ++prepared_count_)).first;
    sent.push_back({command.sql, text});
    const std::string sql = in_dialect(command.sql, Dialect::postgres, options_.clock_ahead);
    if (PQsendPrepare(handle_, known->second.c_str(), sql.c_str(), values.count(), values.types()) != 1) return false;
  }
  sent.push_back({command.sql, {}});
  return PQsendQueryPrepared(handle_, known->second.c_str(), values.count(), values.pointers(), values.lengths(),
                             values.formats(), 0) == 1;
}

Result<std::vector<SqlRows>> PostgresSession::receive(const std::vector<Sent>& sent) {
  std::vector<SqlRows> all;
  std::optional<Fault> failed;
  for (const Sent& command : sent) {
    const PostgresResult result(PQgetResult(handle_));
    if (!result) return lost("waiting for an answer");
    if (!postgres_succeeded(result.get())) {
      if (!command.preparing.empty()) prepared_.erase(command.preparing);
      // What follows the first failure was not executed and has nothing to say.
      if (!failed) failed = note(result.get(), command.sql);
    } else if (command.preparing.empty()) {
      all.push_back(postgres_rows(result.get()));
    }
    while (const PostgresResult rest{PQgetResult(handle_)}) {
    }
    if (PQstatus(handle_) != CONNECTION_OK) return lost("waiting for an answer");
    if (command.preparing.empty()) observe(StatementMoment::after, command.sql);
  }
  const PostgresResult sync(PQgetResult(handle_));
  if (!sync || PQresultStatus(sync.get()) != PGRES_PIPELINE_SYNC) return lost("waiting for the end of the answers");
  if (PQexitPipelineMode(handle_) != 1) return lost("leaving the pipeline");
  observe(StatementMoment::round_trip, {});
  if (failed) return std::move(*failed);
  return all;
}

Result<std::vector<SqlRows>> PostgresSession::pipeline_chunk(std::span<const Command> commands) {
  if (!usable()) return unavailable("Postgres: the connection is gone");
  if (prepared_.size() > kPostgresPreparedMax) {
    // Names of buckets make statements of their own in no dialect but SQLite's, so this is rare.
    prepared_.clear();
    PostgresResult(PQexec(handle_, "DEALLOCATE ALL"));
  }
  if (PQenterPipelineMode(handle_) != 1) return lost("entering the pipeline");
  std::vector<Sent> sent;
  for (const Command& command : commands) {
    if (!send(command, sent)) return lost("sending");
  }
  if (PQpipelineSync(handle_) != 1) return lost("sending");
  return receive(sent);
}

Result<std::vector<SqlRows>> PostgresSession::pipeline(std::span<const Command> commands) {
  std::vector<SqlRows> all;
  while (!commands.empty()) {
    const auto chunk = commands.first(std::min(commands.size(), kPipelineMax));
    commands = commands.subspan(chunk.size());
    auto rows = pipeline_chunk(chunk);
    if (!rows.ok()) return rows;
    for (SqlRows& some : rows.value()) all.push_back(std::move(some));
  }
  return all;
}

Result<std::vector<SqlRows>> PostgresSession::begin(Isolation isolation, std::span<const Command> commands) {
  if (state() != TransactionState::none) return invalid("the connection has a transaction open already");
  mark_ = random_mark();
  std::vector<Command> all;
  all.reserve(commands.size() + 3);
  all.push_back({begin_of(isolation), {}});
  all.push_back({kPostgresMark, {std::string_view(mark_)}});
  all.insert(all.end(), commands.begin(), commands.end());
  all.push_back({kPostgresHandOver, {}});
  auto rows = pipeline(all);
  if (!rows.ok()) {
    rollback();
    return rows;
  }
  rows->erase(rows->begin(), rows->begin() + 2);
  rows->pop_back();
  return rows;
}

Result<std::vector<SqlRows>> PostgresSession::run(std::span<const Command> commands) { return pipeline(commands); }

Result<std::vector<SqlRows>> PostgresSession::run_last(std::span<const Command> commands) {
  switch (state()) {
    case TransactionState::open:
      break;
    case TransactionState::none:
      return invalid("the code inside ended the transaction itself; only the library may commit or roll back");
    case TransactionState::failed:
      return invalid("a statement inside the transaction failed and the code went on as if nothing had happened");
  }
  std::vector<Command> all;
  all.reserve(commands.size() + 1);
  all.push_back({kPostgresReadMark, {}});
  all.insert(all.end(), commands.begin(), commands.end());
  auto rows = pipeline(all);
  if (!rows.ok()) return rows;
  if (rows->front().rows.at(0).text(0) != mark_) {
    return invalid("the code inside ended the transaction itself and began another; only the library may do that");
  }
  rows->erase(rows->begin());
  return rows;
}

Status PostgresSession::commit() {
  const Command command{"COMMIT", {}};
  auto rows = pipeline({&command, 1});
  if (rows.ok()) return ok_status();
  if (!usable()) return Fault{FaultKind::timeout, rows.fault().message + "; it is not known whether it committed"};
  rollback();
  return std::move(rows).fault();
}

void PostgresSession::rollback() {
  if (PQpipelineStatus(handle_) != PQ_PIPELINE_OFF) broken_ = true;
  if (!usable() || state() == TransactionState::none) return;
  const std::string code = error_code_; // of what led here
  const Command command{"ROLLBACK", {}};
  if (!pipeline({&command, 1}).ok()) broken_ = true;
  error_code_ = code;
}

Result<std::vector<SqlRows>> PostgresSession::transact(Isolation isolation, std::span<const Command> commands) {
  if (state() != TransactionState::none) return invalid("the connection has a transaction open already");
  std::vector<Command> all;
  all.reserve(commands.size() + 2);
  all.push_back({begin_of(isolation), {}});
  all.insert(all.end(), commands.begin(), commands.end());
  all.push_back({"COMMIT", {}});
  auto rows = pipeline(all);
  if (!rows.ok()) {
    const bool unknown = !usable();
    rollback();
    if (unknown) return Fault{FaultKind::timeout, rows.fault().message};
    return rows;
  }
  rows->erase(rows->begin());
  rows->pop_back();
  return rows;
}

Result<SqlRows> PostgresSession::execute(std::string_view sql, std::span<const SqlValue> values) {
  const PostgresValues given(values);
  const std::string text(sql);
  observe(StatementMoment::before, sql);
  const PostgresResult result(PQexecParams(handle_, text.c_str(), given.count(), given.types(), given.pointers(),
                                           given.lengths(), given.formats(), 0));
  observe(StatementMoment::after, sql);
  observe(StatementMoment::round_trip, {});
  if (!result || PQstatus(handle_) != CONNECTION_OK) return lost("running a statement");
  if (!postgres_succeeded(result.get())) return note(result.get(), sql);
  return postgres_rows(result.get());
}

Status PostgresSession::execute_script(const std::string& sql) {
  observe(StatementMoment::before, sql);
  const PostgresResult result(PQexec(handle_, sql.c_str()));
  observe(StatementMoment::after, sql);
  observe(StatementMoment::round_trip, {});
  if (!result || PQstatus(handle_) != CONNECTION_OK) return lost("running a script");
  if (!postgres_succeeded(result.get())) return note(result.get(), sql);
  return ok_status();
}

TransactionState PostgresSession::state() const {
  switch (PQtransactionStatus(handle_)) {
    case PQTRANS_IDLE:
      return TransactionState::none;
    case PQTRANS_INERROR:
      return TransactionState::failed;
    case PQTRANS_ACTIVE:
    case PQTRANS_INTRANS:
      return TransactionState::open;
    case PQTRANS_UNKNOWN:
      break;
  }
  return TransactionState::none; // the connection is gone, and its transaction with it
}

} // namespace oncekey::phases
