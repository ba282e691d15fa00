// RocksdbJobs: the jobs of a RocksdbStore. Reads happen in the caller's thread, changes in the writer's.
#pragma once

#include "core/job_store.h"
#include "store/rocksdb/writer.h"

#include <functional>

namespace oncekey {

class RocksdbJobs final : public JobStore {
 public:
  // `may_stage` says why nothing new may be staged, as claims are refused. Both outlive this.
  RocksdbJobs(JobTable& table, Writer& writer, const StoreClock& clock, std::function<Status()> may_stage)
      : table_(table), writer_(writer), clock_(clock), may_stage_(std::move(may_stage)) {}

  void stage(StageRequest request, Done<StageAnswer> done) override;
  void take(const TakeRequest& request, Done<std::vector<TakenJob>> done) override;
  void end_attempt(const Ownership& owner, AttemptEnd end, Done<FenceAnswer> done) override;
  void find(const RecordId& id, Done<std::optional<FoundJob>> done) override;
  void operate(const RecordId& id, const std::string& route, JobAction action, Done<JobAnswer> done) override;
  void list(const JobListRequest& request, Done<JobPage> done) override;
  void count(Done<std::vector<JobCount>> done) override;

 private:
  // Has the writer do it. `bytes` are those of a message.
  template <class T, class Apply>
  void change(Done<T> done, Apply apply, std::size_t bytes = 0) {
    writer_.submit(Writer::JobCall<T>{std::move(apply), std::move(done), bytes});
  }

  JobTable& table_;
  Writer& writer_;
  const StoreClock& clock_;
  const std::function<Status()> may_stage_;
};

} // namespace oncekey
