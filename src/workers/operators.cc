// operators: what an operator looks at and does: dead letters and the backlog.
#include <oncekey/workers.h>

#include "phases/engine.h"
#include "phases/job_rows.h"
#include "phases/operation_rows.h"

namespace oncekey {
namespace {

using phases::Command;

constexpr std::string_view kListDeadJobs =
    "SELECT id, sink, name, args, staged_at, attempts, dead_at, last_error FROM oncekey_job WHERE state = 'dead'"
    " ORDER BY id LIMIT $1";
// With claimed_until = 0: a claim from before its death must not delay it.
constexpr std::string_view kRestartDeadJob =
    "UPDATE oncekey_job SET state = 'staged', dead_at = NULL, attempts = 0, next_attempt_at = {now}, claimed_until = 0"
    " WHERE id = $1 AND state = 'dead'";
constexpr std::string_view kBacklog =
    "SELECT (SELECT count(*) FROM oncekey_operation WHERE dead_at IS NULL),"
    " (SELECT count(*) FROM oncekey_operation WHERE dead_at IS NOT NULL),"
    " (SELECT count(*) FROM oncekey_job WHERE state = 'staged'),"
    " (SELECT count(*) FROM oncekey_job WHERE state = 'dead'),"
    " {now} - (SELECT min(staged_at) FROM oncekey_job WHERE state = 'staged')";

constexpr std::string_view kBacklogBySink =
    "SELECT sink, count(*), {now} - min(staged_at) FROM oncekey_job WHERE state = 'staged' GROUP BY sink ORDER BY sink";

Result<SqlRows> ask(Database& database, const Command& command) {
  auto session = database.engine().session();
  if (!session.ok()) return std::move(session).fault();
  auto rows = (*session)->transact(phases::Isolation::read_committed, {&command, 1});
  if (!rows.ok()) return std::move(rows).fault();
  return std::move(rows.value()[0]);
}

std::uint64_t count_at(const SqlRow& row, std::size_t column) {
  return static_cast<std::uint64_t>(row.integer(column));
}

} // namespace

Result<std::vector<DeadOperation>> list_dead_operations(Database& database, std::size_t limit) {
  auto rows = ask(database, {phases::kListDead, {static_cast<std::int64_t>(limit)}});
  if (!rows.ok()) return std::move(rows).fault();
  std::vector<DeadOperation> dead;
  for (const SqlRow& row : rows->rows) {
    auto operation = phases::operation_of_row(row);
    if (!operation.ok()) return std::move(operation).fault();
    dead.push_back({phases::unfinished_of(*operation), operation->dead_at.value_or(Time{}), operation->last_error});
  }
  return dead;
}

Result<bool> restart_dead_operation(Database& database, const RecordId& id, ForeignSide foreign_side) {
  const bool looked = foreign_side == ForeignSide::looked_at;
  auto rows = ask(database,
                  {looked ? phases::kRestartDeadLookedAt : phases::kRestartDead, {Bytes{phases::as_bytes(id.bytes)}}});
  if (!rows.ok()) return std::move(rows).fault();
  return rows->changed == 1;
}

Result<std::vector<DeadJob>> list_dead_jobs(Database& database, std::size_t limit) {
  auto rows = ask(database, {kListDeadJobs, {static_cast<std::int64_t>(limit)}});
  if (!rows.ok()) return std::move(rows).fault();
  std::vector<DeadJob> dead;
  for (const SqlRow& row : rows->rows)
    dead.push_back({phases::job_of_row(row), Time{Millis{row.integer(6)}}, row.text(7)});
  return dead;
}

Result<bool> restart_dead_job(Database& database, JobId id) {
  auto rows = ask(database, {kRestartDeadJob, {id}});
  if (!rows.ok()) return std::move(rows).fault();
  return rows->changed == 1;
}

Result<Backlog> count_backlog(Database& database) {
  auto rows = ask(database, {kBacklog, {}});
  if (!rows.ok()) return std::move(rows).fault();
  const SqlRow& row = rows->rows.at(0);
  Backlog backlog{count_at(row, 0), count_at(row, 1), count_at(row, 2), count_at(row, 3), std::nullopt, {}};
  if (!row.is_null(4)) backlog.oldest_job_age = Millis{row.integer(4)};
  auto sinks = ask(database, {kBacklogBySink, {}});
  if (!sinks.ok()) return std::move(sinks).fault();
  for (const SqlRow& sink : sinks->rows) {
    backlog.by_sink[sink.text(0)] = {count_at(sink, 1), Millis{sink.integer(2)}};
  }
  return backlog;
}

} // namespace oncekey
