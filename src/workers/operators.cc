// operators: what an operator looks at and does: dead letters and the backlog.
#include "base/enum_name.h"
#include "phases/job_rows.h"
#include "phases/operation_rows.h"
#include "workers/worker_loop.h"

namespace oncekey {
namespace {

// 0 and empty texts ask for all.
constexpr std::string_view kListJobs =
    "SELECT * FROM (SELECT id, sink, name, args, staged_at, attempts, coalesce(dead_at, 0), last_error, "
    "next_attempt_at,"
    " CASE WHEN state = 'dead' THEN 'dead' WHEN claimed_until > {now} THEN 'taken' ELSE 'waiting' END AS shown"
    " FROM oncekey_job) jobs"
    " WHERE (CAST($1 AS BIGINT) = 0 OR id = $1) AND (CAST($2 AS TEXT) = '' OR sink = $2)"
    " AND (CAST($3 AS TEXT) = '' OR shown = $3) ORDER BY id LIMIT $4";
constexpr std::string_view kRetryJob =
    "UPDATE oncekey_job SET attempts = CASE WHEN state = 'dead' THEN 0 ELSE attempts END, state = 'staged',"
    " dead_at = NULL, next_attempt_at = {now}, claimed_until = 0 WHERE id = $1 AND claimed_until <= {now}";
constexpr std::string_view kDropJob = "DELETE FROM oncekey_job WHERE id = $1 AND claimed_until <= {now}";
constexpr std::string_view kBacklog =
    "SELECT (SELECT count(*) FROM oncekey_operation WHERE dead_at IS NULL),"
    " (SELECT count(*) FROM oncekey_operation WHERE dead_at IS NOT NULL),"
    " (SELECT count(*) FROM oncekey_job WHERE state = 'staged'),"
    " (SELECT count(*) FROM oncekey_job WHERE state = 'dead'),"
    " {now} - (SELECT min(staged_at) FROM oncekey_job WHERE state = 'staged')";

constexpr std::string_view kBacklogBySink =
    "SELECT sink, count(*), {now} - min(staged_at) FROM oncekey_job WHERE state = 'staged' GROUP BY sink ORDER BY sink";

// Whether the command changed the one row that it is about.
Result<bool> changes_one(Database& database, const phases::Command& command) {
  auto rows = ask(database, command);
  if (!rows.ok()) return std::move(rows).fault();
  return rows->changed == 1;
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
  return changes_one(
      database, {looked ? phases::kRestartDeadLookedAt : phases::kRestartDead, {Bytes{phases::as_bytes(id.bytes)}}});
}

std::string_view to_string(TableJobState state) { return enum_name(state); }

Result<std::vector<TableJob>> list_jobs(Database& database, const TableJobQuery& query) {
  const std::string_view state = query.state ? to_string(*query.state) : std::string_view();
  auto rows = ask(database, {kListJobs,
                             {std::int64_t{query.id.value_or(0)}, std::string_view(query.sink), state,
                              static_cast<std::int64_t>(query.limit)}});
  if (!rows.ok()) return std::move(rows).fault();
  std::vector<TableJob> jobs;
  for (const SqlRow& row : rows->rows) {
    jobs.push_back({phases::job_of_row(row), enum_named<TableJobState>(row.text(9)).value_or(TableJobState::waiting),
                    Time{Millis{row.integer(8)}}, Time{Millis{row.integer(6)}}, row.text(7)});
  }
  return jobs;
}

Result<bool> retry_job(Database& database, JobId id) { return changes_one(database, {kRetryJob, {id}}); }
Result<bool> drop_job(Database& database, JobId id) { return changes_one(database, {kDropJob, {id}}); }

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
