// JobIndex: which jobs of an embedded store are due, in which order, and how many there are.
//
// Holds an entry for every job that is waiting, taken or dead. Jobs of one order stand in a queue, and only the first
// of a queue can be due: that is what makes them go one after another. Dead letters are in no queue; one that is tried
// again goes to the end.
#pragma once

#include "core/job_store.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>

namespace oncekey {

// Safe to use from several threads.
class JobIndex {
 public:
  JobIndex() = default;
  JobIndex& operator=(JobIndex&& other) noexcept {
    const std::scoped_lock lock(mutex_, other.mutex_);
    next_place_ = other.next_place_;
    entries_ = std::move(other.entries_);
    queues_ = std::move(other.queues_);
    due_ = std::move(other.due_);
    by_expiry_ = std::move(other.by_expiry_);
    counts_ = std::move(other.counts_);
    return *this;
  }

  // The job as it is from now on. New entries go to the end of their queue.
  void note(const StoredJob& job) {
    const std::lock_guard lock(mutex_);
    const auto at = entries_.find(job.id);
    // A job keeps its place, for the store's own entry of it; a dead letter that is tried again goes to the end.
    const bool stays = at != entries_.end() && (job.state == JobState::dead || at->second.state != JobState::dead);
    const std::uint64_t place = stays ? at->second.place : next_place_;
    remove(job.id);
    if (job.open() || job.state == JobState::dead) insert(place, job);
  }
  // The job is gone.
  void forget(const RecordId& id) {
    const std::lock_guard lock(mutex_);
    remove(id);
  }

  // The place of a job among all, growing in the order they were added; nothing if it is not here. It changes when a
  // dead letter is tried again.
  std::optional<std::uint64_t> place_of(const RecordId& id) const {
    const std::lock_guard lock(mutex_);
    const auto at = entries_.find(id);
    if (at == entries_.end()) return std::nullopt;
    return at->second.place;
  }
  // For filling the index at start, with places in growing order.
  void add_at(std::uint64_t place, const StoredJob& job) {
    const std::lock_guard lock(mutex_);
    remove(job.id); // an id has one place, the newest
    insert(place, job);
  }

  // Of one route, due longest first. Only those that have been due for `overdue`.
  std::vector<RecordId> due(const TakeRequest& request, Time now) const {
    const std::lock_guard lock(mutex_);
    std::vector<RecordId> ids;
    const auto waiting = due_.find(request.route);
    if (waiting == due_.end()) return ids;
    for (const auto& [when, id] : waiting->second) {
      if (when.first + request.overdue > now || ids.size() >= request.limit) break;
      ids.push_back(id);
    }
    return ids;
  }
  // Not due before then, whatever the job says.
  void postpone(const RecordId& id, Time due) {
    const std::lock_guard lock(mutex_);
    const auto at = entries_.find(id);
    if (at == entries_.end()) return;
    const bool first = can_be_due(id, at->second);
    if (first) stop_waiting(id, at->second);
    at->second.due = due;
    if (first) wait(id, at->second);
  }

  // Jobs that have expired, at most so many.
  std::vector<RecordId> expired(Time now, std::size_t limit) const {
    const std::lock_guard lock(mutex_);
    std::vector<RecordId> ids;
    for (auto at = by_expiry_.begin(); at != by_expiry_.end() && at->first <= now && ids.size() < limit; ++at) {
      ids.push_back(at->second);
    }
    return ids;
  }
  // Those that fit; state and route are looked at. Delivered and dropped jobs are not here.
  std::vector<RecordId> list(const JobListRequest& request, Time now) const {
    const std::lock_guard lock(mutex_);
    std::vector<RecordId> ids;
    std::size_t looked = 0;
    for (const auto& [id, entry] : entries_) {
      if (looked++ == request.look_max) break;
      const bool back = entry.state == JobState::taken && now >= entry.due; // see StoredJob::state_at
      if (request.state && (back ? JobState::waiting : entry.state) != *request.state) continue;
      if (request.route.empty() || entry.route == request.route) ids.push_back(id);
    }
    return ids;
  }
  std::vector<JobCount> count() const {
    const std::lock_guard lock(mutex_);
    std::vector<JobCount> counts;
    for (const auto& [what, count] : counts_) counts.push_back({what.first, what.second, count});
    return counts;
  }
  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return entries_.size();
  }

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
  void insert(std::uint64_t place, const StoredJob& job) {
    next_place_ = std::max(next_place_, place + 1);
    const Entry entry{place, job.state, job.ordered, job.due_at, job.expires_at, job.route};
    entries_[job.id] = entry;
    ++counts_[{job.route, job.state}];
    by_expiry_.insert({job.expires_at, job.id});
    if (entry.ordered && job.open()) {
      Queue& queue = queues_[order_of(job.id)];
      const auto next = std::next(queue.emplace(place, job.id).first);
      if (next != queue.end()) stop_waiting(next->second, entries_.at(next->second)); // it is not the first any more
    }
    if (can_be_due(job.id, entry)) wait(job.id, entry);
  }
  void remove(const RecordId& id) {
    const auto at = entries_.find(id);
    if (at == entries_.end()) return;
    const Entry entry = std::move(at->second);
    entries_.erase(at);
    by_expiry_.erase({entry.expires_at, id});
    if (const auto count = counts_.find({entry.route, entry.state}); --count->second == 0) counts_.erase(count);
    stop_waiting(id, entry);
    if (!entry.ordered || entry.state == JobState::dead) return;
    const auto queue = queues_.find(order_of(id));
    queue->second.erase(entry.place);
    if (queue->second.empty()) {
      queues_.erase(queue);
      return;
    }
    const RecordId& next = queue->second.begin()->second;
    wait(next, entries_.at(next));
  }
  bool can_be_due(const RecordId& id, const Entry& entry) const {
    if (entry.state == JobState::dead) return false;
    return !entry.ordered || queues_.at(order_of(id)).begin()->first == entry.place;
  }
  void wait(const RecordId& id, const Entry& entry) { due_[entry.route].insert({{entry.due, entry.place}, id}); }
  void stop_waiting(const RecordId& id, const Entry& entry) {
    const auto at = due_.find(entry.route);
    if (at == due_.end()) return;
    at->second.erase({{entry.due, entry.place}, id});
    if (at->second.empty()) due_.erase(at);
  }

  mutable std::mutex mutex_;
  std::uint64_t next_place_ = 1;
  std::unordered_map<RecordId, Entry> entries_;
  std::unordered_map<std::uint64_t, Queue> queues_; // by order: open jobs
  std::unordered_map<std::string, Due> due_;        // by route: open jobs that are first
  std::set<std::pair<Time, RecordId>> by_expiry_;
  std::map<std::pair<std::string, JobState>, std::uint64_t> counts_;
};

} // namespace oncekey
