#include <oncekey/transaction.h>

#include "phases/conflict_budget.h"
#include "phases/engine.h"
#include "phases/job_rows.h"
#include "phases/postgres_session.h"

namespace oncekey {

sqlite3* Transaction::sqlite() const { return session_.sqlite(); }
pg_conn* Transaction::postgres() const { return session_.postgres(); }
Dialect Transaction::dialect() const { return session_.dialect(); }

SqlRows Transaction::execute(std::string_view sql, std::initializer_list<SqlValue> values) {
  auto rows = session_.execute(sql, {values.begin(), values.size()});
  if (rows.ok()) return std::move(rows).value();
  throw phases::database_error(rows.fault(), session_.error_code());
}

void Transaction::check(const pg_result* result) const {
  if (result && phases::postgres_succeeded(result)) return;
  if (!result) throw DatabaseError("Postgres: no result", DatabaseError::Advice::give_up, "");
  const char* const state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
  throw phases::database_error(phases::postgres_fault(result, "a statement of the application"), state ? state : "");
}

namespace phases {

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
  const std::vector<Command> jobs = staging_commands(transaction.staged_jobs());
  std::vector<Command> all(jobs.begin(), jobs.end());
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
