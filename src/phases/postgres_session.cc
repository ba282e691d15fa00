#include "phases/postgres_session.h"

#include "base/crypto.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>

namespace oncekey::phases {
namespace {

// Commands in one pipeline. The answers wait in the sockets' buffers until everything is sent, and must fit in there.
constexpr std::size_t kPipelineMax = 64;
// Runs of a transaction whose prepared statements are gone: with the remembered ones, with newly prepared ones, and
// without preparing anything.
constexpr int kAfreshMax = 3;

// Prepared statements cost the server memory for each connection, and few statements of an application come again.
constexpr std::size_t kPreparedMax = 256;
// Hashes of statements seen once. When this many different ones have come, the old ones will hardly come again.
constexpr std::size_t kSeenOnceMax = 1024;
constexpr int kMissesMax = 2;
constexpr std::size_t kNameBytes = 16;

std::string trimmed_message(const char* message) {
  const std::string_view text = message ? message : "";
  return std::string(text.substr(0, text.find_last_not_of(" \n") + 1));
}

FaultKind postgres_kind(std::string_view state) {
  // Serialization failure, deadlock, lock not available in time.
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

const Command* first_with_nul(std::span<const Command> commands) {
  for (const Command& command : commands) {
    for (const SqlValue& value : command.values) {
      const auto* const text = std::get_if<std::string_view>(&value);
      if (text && text->find('\0') != std::string_view::npos) return &command;
    }
  }
  return nullptr;
}

// COPY puts the connection into a mode of its own, in which libpq returns the same result again and again.
bool is_copy(const PGresult* result) {
  const ExecStatusType status = PQresultStatus(result);
  return status == PGRES_COPY_IN || status == PGRES_COPY_OUT || status == PGRES_COPY_BOTH;
}

} // namespace

bool postgres_succeeded(const PGresult* result) {
  const ExecStatusType status = PQresultStatus(result);
  return status != PGRES_BAD_RESPONSE && status != PGRES_FATAL_ERROR && status != PGRES_PIPELINE_ABORTED;
}

Fault postgres_fault(const PGresult* result, std::string_view sql) {
  const std::string_view state = sqlstate_of(result);
  const std::string message = trimmed_message(PQresultErrorMessage(result));
  const bool missing = state == "42P01" || state == "42883"; // a table, a function
  return {postgres_kind(state), fmt::format("Postgres: {} ({}) in: {}{}", message, state, sql.substr(0, 200),
                                            missing ? migrate_hint(message) : "")};
}

std::string PostgresStatements::key(Whose whose, std::string_view sql, std::span<const Oid> types) {
  std::string key;
  key.reserve(1 + sql.size() + types.size_bytes());
  key += whose == Whose::ours ? 'o' : 'a';
  key.append(reinterpret_cast<const char*>(types.data()), types.size_bytes());
  key += sql;
  return key;
}

const char* PostgresStatements::find(const std::string& key) const {
  const auto known = names_.find(key);
  return known == names_.end() ? nullptr : known->second.c_str();
}

bool PostgresStatements::worth_preparing(const std::string& key, Whose whose) {
  if (use_ == Use::never || names_.size() >= kPreparedMax) return false;
  if (whose == Whose::ours) return true;
  if (seen_once_.size() >= kSeenOnceMax) seen_once_.clear();
  return !seen_once_.insert(std::hash<std::string>{}(key)).second;
}

const char* PostgresStatements::add(const std::string& key, std::string_view sent) {
  Sha256 hash;
  hash.update(key);
  hash.update(sent);
  const HashBytes bytes = hash.finish();
  const std::string name =
      fmt::format("oncekey_{:02x}_{}", fmt::join(bytes.begin(), bytes.begin() + kNameBytes, ""), generation_);
  return names_.insert_or_assign(key, name).first->second.c_str();
}

bool PostgresStatements::forget_if_stale(std::string_view sqlstate, std::string_view source_function) {
  // Gone although remembered: the application has cleared the connection, or a pooler has exchanged it.
  const bool gone = sqlstate == "26000";
  // There although this session prepared nothing of that name: a pooler has exchanged the connection.
  const bool of_another_session = sqlstate == "42P05";
  // "cached plan must not change result type": the code alone means many other things.
  const bool outdated = sqlstate == "0A000" && source_function == "RevalidateCachedQuery";
  if (use_ == Use::never || (!gone && !of_another_session && !outdated)) return false;
  names_.clear();
  ++generation_; // statements under the old names stay on the server, unused, until the connection ends
  if (of_another_session || (gone && ++misses_ >= kMissesMax)) use_ = Use::never;
  return true;
}

// On the application's connection nothing counts as prepared: the application may have cleared it.
PostgresSession::PostgresSession(PGconn* handle, HandleOwner owner, const DatabaseOptions& options)
    : Session(options),
      owned_(owner == HandleOwner::library ? handle : nullptr, PQfinish),
      handle_(handle),
      statements_(owner == HandleOwner::library && options.prepare_statements ? PostgresStatements::Use::allowed
                                                                              : PostgresStatements::Use::never) {}

// Until the deadline of the exchange under way.
bool PostgresSession::wait_for_socket(short events) {
  for (;;) {
    const auto left = std::chrono::ceil<Millis>(deadline_ - std::chrono::steady_clock::now()).count();
    if (left <= 0) {
      timed_out_ = true;
      return false;
    }
    pollfd socket{PQsocket(handle_), events, 0};
    const int ready = ::poll(&socket, 1, static_cast<int>(std::min<std::int64_t>(left, 60'000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

bool PostgresSession::flush_in_time() {
  for (;;) {
    const int left = PQflush(handle_);
    if (left == 0) return true;
    if (left < 0) return false;
    // Reads as well: a server whose answers are not read stops reading.
    if (!wait_for_socket(POLLIN | POLLOUT)) return false;
    if (PQconsumeInput(handle_) != 1) return false;
  }
}

bool PostgresSession::result_in_time() {
  while (PQisBusy(handle_) != 0) {
    if (!wait_for_socket(POLLIN)) return false;
    if (PQconsumeInput(handle_) != 1) return PQisBusy(handle_) == 0; // what the server said at last is there to read
  }
  return true;
}

Status PostgresSession::simple(std::string_view sql) {
  if (!usable()) return unavailable("Postgres: the connection is gone");
  begin_exchange();
  observe(StatementMoment::before, sql);
  // PQsendQuery may flush, so that the connection must not block: otherwise the deadline could not be kept.
  if (PQsetnonblocking(handle_, 1) != 0 || PQsendQuery(handle_, std::string(sql).c_str()) != 1 || !flush_in_time()) {
    return lost("sending");
  }
  std::optional<Fault> failed;
  int results = 0;
  while (const PostgresResult result{next_result()}) {
    ++results;
    if (is_copy(result.get())) return refuse_copy(sql);
    if (!postgres_succeeded(result.get()) && !failed) failed = note(result.get(), sql);
  }
  if (timed_out_ || results == 0 || PQstatus(handle_) != CONNECTION_OK) return lost("waiting for an answer");
  if (PQsetnonblocking(handle_, nonblocking_before_) != 0) return lost("ending an exchange");
  observe(StatementMoment::after, sql);
  observe(StatementMoment::round_trip, {});
  if (failed) return std::move(*failed);
  return ok_status();
}

// The connection cannot be used any more: what it was asked may still happen, or its answers may still come.
Fault PostgresSession::lost(std::string_view doing) {
  broken_ = true;
  error_code_.clear();
  if (timed_out_) {
    return unavailable(fmt::format(
        "Postgres: no answer within {} ms (DatabaseOptions::answer_timeout) while {}; the connection is closed",
        options_.answer_timeout.count(), doing));
  }
  return unavailable(fmt::format("Postgres: {} while {}", trimmed_message(PQerrorMessage(handle_)), doing));
}

Fault PostgresSession::refuse_copy(std::string_view sql) {
  broken_ = true;
  error_code_.clear();
  return invalid(
      fmt::format("COPY is not for execute(): use INSERT or SELECT, or a connection of your own with libpq's functions "
                  "for COPY; this connection is closed. In: {}",
                  sql.substr(0, 200)));
}

// The fault of a failed result. A prepared statement that is gone becomes a conflict: the transaction is run again.
Fault PostgresSession::note(const PGresult* result, std::string_view sql) {
  error_code_ = sqlstate_of(result);
  const char* const function = PQresultErrorField(result, PG_DIAG_SOURCE_FUNCTION);
  stale_ = statements_.forget_if_stale(error_code_, function ? function : "");
  Fault fault = postgres_fault(result, sql);
  if (stale_) fault.kind = FaultKind::conflict;
  return fault;
}

// Puts a command into the pipeline. A statement that is worth preparing is prepared and run in the same round trip.
bool PostgresSession::send(const Command& command, Whose whose, std::vector<Sent>& sent) {
  const PostgresValues values(command.values);
  observe(StatementMoment::before, command.sql);
  std::string key = PostgresStatements::key(whose, command.sql, values.types());
  const char* name = statements_.find(key);
  if (!name) {
    const std::string sql = whose == Whose::ours ? in_dialect(command.sql, Dialect::postgres, options_.clock_ahead)
                                                 : std::string(command.sql);
    if (!statements_.worth_preparing(key, whose)) {
      sent.push_back({Sent::Kind::running, command.sql, {}});
      return PQsendQueryParams(handle_, sql.c_str(), values.count(), values.types().data(), values.pointers(),
                               values.lengths(), values.formats(), 0) == 1;
    }
    name = statements_.add(key, sql);
    sent.push_back({Sent::Kind::preparing, command.sql, std::move(key)});
    if (PQsendPrepare(handle_, name, sql.c_str(), values.count(), values.types().data()) != 1) return false;
  }
  sent.push_back({Sent::Kind::running, command.sql, {}});
  return PQsendQueryPrepared(handle_, name, values.count(), values.pointers(), values.lengths(), values.formats(), 0) ==
         1;
}

// Reads the answers of a pipeline: for each command its result and a null behind it, then the end of the pipeline. All
// are read, also behind a failure, so that the connection can be used again.
Result<std::vector<SqlRows>> PostgresSession::receive(const std::vector<Sent>& sent, Whose whose) {
  const ColumnNames names = whose == Whose::ours ? ColumnNames::not_wanted : ColumnNames::wanted;
  std::vector<SqlRows> all;
  std::optional<Fault> failed;
  for (const Sent& command : sent) {
    const PostgresResult result(next_result());
    if (!result) return lost("waiting for an answer");
    if (is_copy(result.get())) return refuse_copy(command.sql);
    if (!postgres_succeeded(result.get())) {
      if (command.kind == Sent::Kind::preparing) statements_.erase(command.key);
      // Commands behind the first failure were not executed; their errors say nothing.
      if (!failed) failed = note(result.get(), command.sql);
    } else if (command.kind == Sent::Kind::running) {
      all.push_back(postgres_rows(result.get(), names));
    }
    while (const PostgresResult rest{next_result()}) {
      if (is_copy(rest.get())) return refuse_copy(command.sql);
    }
    if (timed_out_ || PQstatus(handle_) != CONNECTION_OK) return lost("waiting for an answer");
    if (command.kind == Sent::Kind::running) observe(StatementMoment::after, command.sql);
  }
  const PostgresResult sync(next_result());
  if (!sync || PQresultStatus(sync.get()) != PGRES_PIPELINE_SYNC) return lost("waiting for the end of the answers");
  if (PQexitPipelineMode(handle_) != 1) return lost("leaving the pipeline");
  if (PQsetnonblocking(handle_, nonblocking_before_) != 0) return lost("ending an exchange");
  observe(StatementMoment::round_trip, {});
  if (failed) return std::move(*failed);
  return all;
}

Result<std::vector<SqlRows>> PostgresSession::exchange(std::span<const Command> commands, Whose whose) {
  if (!usable()) return unavailable("Postgres: the connection is gone");
  // libpq would send only the text before a NUL, and store something else than was meant.
  if (const Command* const bad = first_with_nul(commands)) {
    return invalid(fmt::format("a text with a zero byte was given to: {}", bad->sql.substr(0, 200)));
  }
  stale_ = false;
  begin_exchange();
  if (PQenterPipelineMode(handle_) != 1 || PQsetnonblocking(handle_, 1) != 0) return lost("entering the pipeline");
  std::vector<Sent> sent;
  sent.reserve(commands.size());
  for (const Command& command : commands) {
    if (!send(command, whose, sent)) return lost("sending");
  }
  if (PQpipelineSync(handle_) != 1 || !flush_in_time()) return lost("sending");
  return receive(sent, whose);
}

Result<std::vector<SqlRows>> PostgresSession::pipeline(std::span<const Command> commands) {
  std::vector<SqlRows> all;
  while (!commands.empty()) {
    const auto chunk = commands.first(std::min(commands.size(), kPipelineMax));
    commands = commands.subspan(chunk.size());
    auto rows = exchange(chunk, Whose::ours);
    if (!rows.ok()) return rows;
    for (SqlRows& some : rows.value()) all.push_back(std::move(some));
  }
  return all;
}

Result<std::vector<SqlRows>> PostgresSession::run(std::span<const Command> commands) {
  const bool begins = state() == TransactionState::none;
  auto rows = pipeline(commands);
  for (int tries = 1; begins && tries < kAfreshMax && !rows.ok() && stale_; ++tries) {
    rollback();
    rows = pipeline(commands);
  }
  return rows;
}

void PostgresSession::rollback() {
  if (PQpipelineStatus(handle_) != PQ_PIPELINE_OFF) broken_ = true;
  if (!usable() || state() == TransactionState::none) return;
  if (!simple("ROLLBACK").ok()) broken_ = true;
}

Result<SqlRows> PostgresSession::execute(std::string_view sql, std::span<const SqlValue> values) {
  const Command command{sql, {values.begin(), values.end()}};
  auto rows = exchange({&command, 1}, Whose::applications);
  if (!rows.ok()) return std::move(rows).fault();
  return std::move(rows.value()[0]);
}

// Whether an idle connection still looks alive, without a round trip. A server sends nothing on an idle connection,
// unless it closes it: then its reason or the end of the stream is there to be read.
bool PostgresSession::still_there() {
  constexpr int kReadsMax = 4;
  pollfd socket{PQsocket(handle_), POLLIN, 0};
  for (int reads = 0; reads < kReadsMax && usable() && ::poll(&socket, 1, 0) > 0; ++reads) {
    if (PQconsumeInput(handle_) != 1) broken_ = true;
  }
  return usable();
}

TransactionState PostgresSession::state() const {
  const PGTransactionStatusType status = PQtransactionStatus(handle_);
  if (status == PQTRANS_INERROR) return TransactionState::failed;
  if (status == PQTRANS_ACTIVE || status == PQTRANS_INTRANS) return TransactionState::open;
  return TransactionState::none; // or the connection is gone, and its transaction with it
}

} // namespace oncekey::phases
