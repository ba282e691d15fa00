// PostgresJobs: the jobs of a PostgresStore.
#pragma once

#include "core/job_store.h"
#include "store/common/calls.h"

#include <functional>
#include <utility>

namespace oncekey::postgres {

class Housekeeping;
class PostgresState;

class PostgresJobs final : public JobStore {
 public:
  using Submit = std::function<void(const RecordId& id, AnyCall call)>;
  PostgresJobs(PostgresState& state, Housekeeping& housekeeping, Submit submit)
      : state_(state), housekeeping_(housekeeping), submit_(std::move(submit)) {}

  void stage(StageRequest request, Done<StageAnswer> done) override;
  void take(const TakeRequest& request, Done<std::vector<TakenJob>> done) override;
  void end_attempt(const Ownership& owner, AttemptEnd end, Done<FenceAnswer> done) override;
  void find(const RecordId& id, Done<std::optional<FoundJob>> done) override;
  void operate(const RecordId& id, const std::string& route, JobAction action, Done<JobAnswer> done) override;
  void list(const JobListRequest& request, Done<JobPage> done) override;
  void count(Done<std::vector<JobCount>> done) override;

 private:
  PostgresState& state_;
  Housekeeping& housekeeping_;
  const Submit submit_;
};

} // namespace oncekey::postgres
