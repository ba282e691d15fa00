#include <oncekey/transaction.h>

#include "base/utf8.h"
#include "phases/conflict_budget.h"
#include "phases/engine.h"
#include "phases/job_rows.h"
#include "phases/postgres_session.h"
#include "phases/sql_text.h"

#include <fmt/format.h>

#include <charconv>

namespace oncekey {
namespace {

// Postgres keeps no text with a zero byte or that is not UTF-8; SQLite is held to the same.
bool keepable(std::string_view text) { return is_utf8(text) && text.find('\0') == std::string_view::npos; }

} // namespace

void SqlRow::Cell::wrong(std::string_view wanted) const {
  const auto held = [this]() -> std::string {
    if (is_null()) return "NULL";
    if (const auto* const number = std::get_if<std::int64_t>(&value())) return fmt::format("the integer {}", *number);
    if (const auto* const number = std::get_if<double>(&value())) return fmt::format("the number {}", *number);
    return fmt::format("the text \"{}\"", as_utf8(std::get<std::string>(value())).substr(0, 100));
  };
  const std::string name = row_.names_ ? fmt::format(" ({})", (*row_.names_)[column_]) : "";
  throw ColumnError(fmt::format("column {}{} holds {}, not {}", column_, name, held(), wanted));
}

std::int64_t SqlRow::Cell::integer() const {
  if (const auto* const number = std::get_if<std::int64_t>(&value())) return *number;
  wrong("an integer");
}

double SqlRow::Cell::real() const {
  if (const auto* const number = std::get_if<double>(&value())) return *number;
  if (const auto* const number = std::get_if<std::int64_t>(&value())) return static_cast<double>(*number);
  // A Postgres numeric with a fraction comes as its text.
  if (const auto* const text = std::get_if<std::string>(&value())) {
    double number = 0;
    const char* const end = text->data() + text->size();
    const auto [read, error] = std::from_chars(text->data(), end, number);
    if (!text->empty() && error == std::errc{} && read == end) return number;
  }
  wrong("a number");
}

const std::string& SqlRow::Cell::text() const {
  if (const auto* const text = std::get_if<std::string>(&value())) return *text;
  wrong("a text");
}

SqlRow::Cell SqlRow::operator[](std::size_t column) const {
  if (column < columns_.size()) return {*this, column};
  throw ColumnError(fmt::format("there is no column {}: the row has {}, counted from 0", column, columns_.size()));
}

SqlRow::Cell SqlRow::operator[](std::string_view name) const {
  for (std::size_t i = 0; names_ && i < names_->size(); ++i) {
    if ((*names_)[i] == name) return {*this, i};
  }
  throw ColumnError(fmt::format("there is no column {}: the row has {}", name,
                                names_ ? fmt::format("{}", fmt::join(*names_, ", ")) : "no names"));
}

sqlite3* Transaction::sqlite() const { return session_.sqlite(); }
pg_conn* Transaction::postgres() const { return session_.postgres(); }
Dialect Transaction::dialect() const { return session_.dialect(); }

SqlRows Transaction::execute(std::string_view sql, std::initializer_list<SqlValue> values) {
  return execute(sql, std::span(values.begin(), values.size()));
}

SqlRows Transaction::execute(std::string_view sql, std::span<const SqlValue> values) {
  // Refused before it is sent: a COMMIT here would make the phase's rows durable without their recovery point.
  if (const std::string word = phases::transaction_word(sql); !word.empty()) {
    throw DatabaseError(fmt::format("{} is not for execute(): only the library begins and ends the transaction", word),
                        DatabaseError::Advice::give_up, "");
  }
  auto rows = session_.execute(sql, values);
  if (rows.ok()) return std::move(rows).value();
  throw phases::database_error(rows.fault(), session_.error_code());
}

void Transaction::stage_job(StagedJob job) {
  if (job.sink.empty()) throw std::invalid_argument("the sink of a staged job must not be empty");
  if (job.name.empty())
    throw std::invalid_argument(fmt::format("the name of a staged job must not be empty (sink {})", job.sink));
  if (!keepable(job.sink) || !keepable(job.name)) {
    throw std::invalid_argument("the sink and the name of a staged job are UTF-8 without zero bytes");
  }
  staged_.push_back(std::move(job)); // inserted in the round trip that commits
}

void Transaction::check(const pg_result* result) const {
  if (result && phases::postgres_succeeded(result)) return;
  if (!result) throw DatabaseError("Postgres: no result", DatabaseError::Advice::give_up, "");
  const char* const state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
  throw phases::database_error(phases::postgres_fault(result, "a statement of the application"), state ? state : "");
}

namespace phases {

// The other way round than run_code(): a fault of a session as the exception that application code sees.
DatabaseError database_error(const Fault& fault, const std::string& code) {
  const bool again = fault.kind == FaultKind::conflict;
  return {fault.message, again ? DatabaseError::Advice::try_again : DatabaseError::Advice::give_up, code};
}

Status with_retries(Engine& engine, Millis budget_length, const std::function<Status(Session&)>& attempt) {
  ConflictBudget budget(budget_length);
  for (;;) {
    auto session = engine.session();
    if (!session.ok()) return std::move(session).fault();
    auto done = attempt(**session);
    if (done.ok() || done.fault().kind != FaultKind::conflict || !budget.wait()) return done;
  }
}

Status end_with_jobs(Session& session, const Transaction& transaction, std::span<const Command> commands) {
  std::vector<Command> all = staging_commands(transaction.staged_jobs());
  all.insert(all.end(), commands.begin(), commands.end());
  return session.end(all);
}

Status run_code(Session& session, const std::function<void()>& code) {
  try {
    code();
    return ok_status();
  } catch (const RetryTransaction& retry) {
    session.rollback();
    return Fault{FaultKind::conflict, retry.what()};
  } catch (const DatabaseError& error) {
    session.rollback();
    if (error.advice() != DatabaseError::Advice::try_again) throw;
    return Fault{FaultKind::conflict, error.what()};
  } catch (...) {
    session.rollback();
    throw;
  }
}

} // namespace phases

Status run_transaction(Database& database, const std::function<void(Transaction&)>& code,
                       const TransactionOptions& options) {
  return phases::with_retries(database.engine(), options.conflict_budget, [&](phases::Session& session) -> Status {
    auto begun = session.begin(phases::Isolation::serializable, phases::Guard::session, {});
    if (!begun.ok()) return std::move(begun).fault();
    Transaction transaction(session);
    if (auto ran = phases::run_code(session, [&] { code(transaction); }); !ran.ok()) return ran;
    return phases::end_with_jobs(session, transaction, {});
  });
}

} // namespace oncekey
