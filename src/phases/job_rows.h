// job_rows: the statements about staged jobs. The enqueuer's claims and deletions are by id, never by range: a job that
// commits late with a small id is found by the next claim like any other.
#pragma once

#include "phases/session.h"

#include <oncekey/jobs.h>

namespace oncekey::phases {

inline constexpr std::string_view kStageJob =
    "INSERT INTO oncekey_job (sink, name, args, staged_at, next_attempt_at) "
    "VALUES ($1, $2, $3, {now}, {now} + $4)";

// The commands refer to the jobs' texts.
inline std::vector<Command> staging_commands(std::span<const StagedJob> jobs) {
  std::vector<Command> commands;
  commands.reserve(jobs.size());
  for (const StagedJob& job : jobs) {
    commands.push_back(
        {kStageJob,
         {std::string_view(job.sink), std::string_view(job.name), Bytes{job.args}, std::int64_t{job.delay.count()}}});
  }
  return commands;
}

// $1 sink, $2 how many, $3 claim's length, $4 the claim. Rows: see job_of_row.
// The clock is read in subselects, which run once: Postgres would otherwise call it again for every row.
inline constexpr std::string_view kClaimJobs =
    "WITH picked AS MATERIALIZED (SELECT id FROM oncekey_job WHERE sink = $1 AND state = 'staged'"
    " AND next_attempt_at <= (SELECT {now}) AND claimed_until <= (SELECT {now}) ORDER BY id LIMIT $2 {skip_locked})"
    " UPDATE oncekey_job SET claimed_until = (SELECT {now}) + $3, claim = $4 WHERE id IN (SELECT id FROM picked)"
    " RETURNING id, sink, name, args, staged_at, attempts";
inline Job job_of_row(const SqlRow& row) {
  return {.id = row.integer(0),
          .sink = row.text(1),
          .name = row.text(2),
          .args = row.text(3),
          .staged_at = Time{Millis{row.integer(4)}},
          .attempts = static_cast<int>(row.integer(5))};
}

// $1 ids.
inline constexpr std::string_view kDeleteJobs = "DELETE FROM oncekey_job WHERE id {in $1}";
// $1 ids, $2 the claim.
inline constexpr std::string_view kGiveJobsBack =
    "UPDATE oncekey_job SET claimed_until = 0 WHERE claim = $2 AND id {in $1}";
// $1 id, $2 the claim, $3 why, $4 wait, $5 the limit of attempts. Row: 'staged' or 'dead'.
inline constexpr std::string_view kRefuseJob =
    "UPDATE oncekey_job SET attempts = attempts + 1, last_error = $3, claimed_until = 0, next_attempt_at = {now} + $4,"
    " state = CASE WHEN attempts + 1 >= $5 THEN 'dead' ELSE 'staged' END,"
    " dead_at = CASE WHEN attempts + 1 >= $5 THEN {now} ELSE NULL END"
    " WHERE id = $1 AND claim = $2 RETURNING state";

} // namespace oncekey::phases
