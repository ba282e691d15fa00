#include "store/postgres/postgres_jobs.h"

#include "store/postgres/housekeeping.h"
#include "store/postgres/postgres_state.h"

#include <cstring>
#include <functional>
#include <string>

namespace oncekey::postgres {

void PostgresJobs::stage(StageRequest request, Done<StageAnswer> done) {
  if (const Status may_claim = state_.marker.may_claim(); !may_claim) return done(may_claim.fault());
  const RecordId id = request.id;
  submit_(id, StageCall{std::move(request), std::move(done)});
}

void PostgresJobs::take(const TakeRequest& request, Done<std::vector<TakenJob>> done) {
  if (const Status may_claim = state_.marker.may_claim(); !may_claim) return done(may_claim.fault());
  // Takes of one route go one after another.
  RecordId line;
  const std::size_t hash = std::hash<std::string>{}(request.route);
  std::memcpy(line.bytes.data(), &hash, sizeof hash);
  submit_(line, TakeCall{request, std::move(done)});
}

void PostgresJobs::end_attempt(const Ownership& owner, AttemptEnd end, Done<FenceAnswer> done) {
  submit_(owner.id, AttemptCall{owner, std::move(end), std::move(done)});
}

void PostgresJobs::find(const RecordId& id, Done<std::optional<FoundJob>> done) {
  submit_(id, FindJobCall{id, std::move(done)});
}

void PostgresJobs::operate(const RecordId& id, const std::string& /*route*/, JobAction action, Done<JobAnswer> done) {
  submit_(id, JobOperatorCall{id, action, std::move(done)});
}

void PostgresJobs::list(const JobListRequest& request, Done<JobPage> done) {
  housekeeping_.list_jobs(request, std::move(done));
}

void PostgresJobs::count(Done<std::vector<JobCount>> done) { housekeeping_.count_jobs(std::move(done)); }

} // namespace oncekey::postgres
