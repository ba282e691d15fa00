// MemoryJobs: the jobs of a MemoryStore. One lock for all: deliveries are few beside claims.
#pragma once

#include "core/job_store.h"
#include "store/common/job_index.h"

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>

namespace oncekey {

// What the records and the jobs of a store hold together, and the limits on it.
struct MemoryUse {
  const std::uint64_t records_max;
  const std::uint64_t bytes_max; // of headers and bodies
  std::atomic<std::uint64_t> records = 0;
  std::atomic<std::uint64_t> bytes = 0;

  bool has_room_for(std::uint64_t more_bytes) const { return bytes + more_bytes <= bytes_max; }
};

class MemoryJobs final : public JobStore {
 public:
  // Both outlive this. `next_fence` is the store's counter.
  MemoryJobs(MemoryUse& use, std::atomic<std::uint64_t>& next_fence, std::function<Time()> now)
      : use_(use), next_fence_(next_fence), now_(std::move(now)) {}

  void stage(StageRequest request, Done<StageAnswer> done) override;
  void take(const TakeRequest& request, Done<std::vector<TakenJob>> done) override;
  void end_attempt(const Ownership& owner, AttemptEnd end, Done<FenceAnswer> done) override;
  void find(const RecordId& id, Done<std::optional<FoundJob>> done) override;
  void operate(const RecordId& id, const std::string& route, JobAction action, Done<JobAnswer> done) override;
  void list(const JobListRequest& request, Done<JobPage> done) override;
  void count(Done<std::vector<JobCount>> done) override;

 private:
  struct Kept {
    StoredJob job;
    Message message; // empty once it was deleted
  };

  // All of these need the lock.
  std::optional<StoredJob> look_up(const RecordId& id) const;
  void write(const StoredJob& job);
  void erase(const RecordId& id);
  void drop_expired(Time now);

  MemoryUse& use_;
  std::atomic<std::uint64_t>& next_fence_;
  const std::function<Time()> now_;
  std::mutex mutex_;
  std::unordered_map<RecordId, Kept> jobs_;
  std::set<std::pair<Time, RecordId>> by_expiry_;
  JobIndex index_;
};

} // namespace oncekey
