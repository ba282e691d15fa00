// JobIndex: which jobs of an embedded store are due, in which order, and how many there are.
//
// Holds an entry for every job that is waiting, taken or dead. Jobs of one order stand in a queue, and only the first
// of a queue can be due: that is what makes them go one after another. Dead letters are in no queue; one that is tried
// again goes to the end.
#pragma once

#include "core/job_store.h"

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace oncekey {

// Safe to use from several threads.
class JobIndex {
 public:
  JobIndex() = default;
  JobIndex(JobIndex&& other) noexcept;
  JobIndex& operator=(JobIndex&& other) noexcept;

  // The job as it is from now on. New entries go to the end of their queue.
  void note(const StoredJob& job);
  // The job is gone.
  void forget(const RecordId& id);

  // The place of a job among all, growing in the order they were added; nothing if it is not here. It changes when a
  // dead letter is tried again.
  std::optional<std::uint64_t> place_of(const RecordId& id) const;
  // For filling the index at start, with places in growing order.
  void add_at(std::uint64_t place, const StoredJob& job);

  // Of one route, due longest first. Only those that have been due for `overdue`.
  std::vector<RecordId> due(const TakeRequest& request, Time now) const;
  // Not due before then, whatever the job says.
  void postpone(const RecordId& id, Time due);

  // Jobs that have expired, at most so many.
  std::vector<RecordId> expired(Time now, std::size_t limit) const;
  // Those that fit; state and route are looked at. Delivered and dropped jobs are not here.
  std::vector<RecordId> list(const JobListRequest& request, Time now) const;
  std::vector<JobCount> count() const;
  std::size_t size() const;

 private:
  struct Entry {
    std::uint64_t place = 0;
    JobState state = JobState::waiting;
    bool ordered = false;
    Time due{};
    Time expires_at{};
    std::string route;
  };
  using Queue = std::map<std::uint64_t, RecordId>;                           // by place
  using Due = std::set<std::pair<std::pair<Time, std::uint64_t>, RecordId>>; // by when they are due

  // All of these need the lock.
  void insert(std::uint64_t place, const StoredJob& job);
  void remove(const RecordId& id);
  bool can_be_due(const RecordId& id, const Entry& entry) const;
  void wait(const RecordId& id, const Entry& entry);
  void stop_waiting(const RecordId& id, const Entry& entry);

  mutable std::mutex mutex_;
  std::uint64_t next_place_ = 1;
  std::unordered_map<RecordId, Entry> entries_;
  std::unordered_map<std::uint64_t, Queue> queues_; // by order: open jobs
  std::unordered_map<std::string, Due> due_;        // by route: open jobs that are first
  std::set<std::pair<Time, RecordId>> by_expiry_;
  std::map<std::pair<std::string, JobState>, std::uint64_t> counts_;
};

} // namespace oncekey
