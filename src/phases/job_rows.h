// job_rows: the statements about staged jobs. The enqueuer's claims and deletions are by id, never by range: a job that
// commits late with a small id is found by the next claim like any other.
#pragma once

#include "phases/session.h"

#include <oncekey/jobs.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace oncekey::phases {

// The commands refer to the jobs' texts.
std::vector<Command> staging_commands(std::span<const StagedJob> jobs);

// $1 sink, $2 how many, $3 claim's length, $4 the claim. Rows: see job_of_row.
extern const std::string_view kClaimJobs;
Job job_of_row(const SqlRow& row);

// $1 ids.
extern const std::string_view kDeleteJobs;
// $1 ids, $2 the claim.
extern const std::string_view kGiveJobsBack;
// $1 id, $2 the claim, $3 why, $4 wait, $5 the limit of attempts. Row: 'staged' or 'dead'.
extern const std::string_view kRefuseJob;

} // namespace oncekey::phases
