// RedisJobs: the jobs of a RedisStore.
//
// A job lives in the partition of its id, with a queue of due jobs for each route there. A take goes to the partitions
// in which this gateway knows of jobs of the route, and to some others in turn.
#pragma once

#include "core/job_store.h"
#include "store/redis/script_call.h"
#include "store/redis/store_loop.h"

#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>

namespace oncekey::redis {

class RedisJobs final : public JobStore {
 public:
  using Submit = std::function<void(CallPtr call, AnyCall what)>;
  // The loop is used for as long as calls are submitted.
  RedisJobs(StoreLoop& store_loop, Submit submit) : loop_(store_loop), submit_(std::move(submit)) {}

  void stage(StageRequest request, Done<StageAnswer> done) override;
  void take(const TakeRequest& request, Done<std::vector<TakenJob>> done) override;
  void end_attempt(const Ownership& owner, AttemptEnd end, Done<FenceAnswer> done) override;
  void find(const RecordId& id, Done<std::optional<FoundJob>> done) override;
  void operate(const RecordId& id, const std::string& route, JobAction action, Done<JobAnswer> done) override;
  void list(const JobListRequest& request, Done<JobPage> done) override;
  void count(Done<std::vector<JobCount>> done) override;

 private:
  // Where a route has jobs, as far as is known here.
  struct Whereabouts {
    std::set<std::uint32_t> with_jobs;
    std::uint32_t last_asked = 0; // of those
    std::uint32_t turn = 0;       // of all
  };

  // Which partitions to take from, and how many from each. Some of all are only asked whether they have any, in turn:
  // another gateway may have staged jobs anywhere.
  std::map<std::uint32_t, std::size_t> where_to_take(const TakeRequest& request);
  void has_jobs(const std::string& route, std::uint32_t partition, bool any);

  StoreLoop& loop_;
  const Submit submit_;
  std::mutex mutex_;
  std::map<std::string, Whereabouts> whereabouts_; // by route
};

} // namespace oncekey::redis
