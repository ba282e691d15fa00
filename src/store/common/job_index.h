// JobIndex: which jobs of an embedded store are due, in which order, and how many there are.
//
// Holds an entry for every job that is waiting, taken or dead. Jobs of one order stand in a queue, and only the first
// of a queue can be due: that is what makes them go one after another. Dead letters are in no queue; one that is tried
// again goes to the end.
//
// Memory: a job takes about 130 bytes (72 for its entry, 24 and 16 in the heaps by due time and by expiry, 11 to 21 in
// the table of ids), and 11 to 21 more if it is the first of an order: a million jobs take about 130 MB. Names of
// routes are kept once. Entries are numbered without gaps: when one goes, the last one gets its number, so that memory
// is given back.
#pragma once

#include "core/job_store.h"
#include "store/common/flat_table.h"
#include "store/common/placed_heap.h"

#include <array>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

namespace oncekey {

// Safe to use from several threads.
class JobIndex {
 public:
  JobIndex() = default;
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
    RecordId id;
    std::uint64_t place = 0;
    Time due{};
    std::uint32_t route = 0;
    // The neighbours in the queue of its order, which is a ring; kNoEntry for an entry that is in none.
    std::uint32_t next = kNoEntry;
    std::uint32_t previous = kNoEntry;
    std::uint32_t due_position = kNoEntry;
    std::uint32_t expiry_position = kNoEntry;
    JobState state = JobState::waiting;

    bool queued() const { return next != kNoEntry; }
  };
  static_assert(sizeof(Entry) == 72);
  // And the place: of jobs that are due at the same time, the earlier one comes first.
  using WhenDue = std::pair<Time, std::uint64_t>;
  struct DueRoute {
    PlacedHeap<WhenDue, &Entry::due_position> due; // open jobs that are first of their order
    std::array<std::uint64_t, 6> counts{};         // by state
  };

  // All of these need the lock.
  std::uint32_t find(const RecordId& id) const;
  std::uint32_t first_of_order(const RecordId& id) const;
  std::uint32_t route_number(const std::string& name);
  // `number` is kNoEntry for a job that is not here.
  void put(std::uint32_t number, std::uint64_t place, const StoredJob& job);
  void remove(std::uint32_t number);
  // Into the queue of its order, and out of it.
  void enter_queue(std::uint32_t number);
  void leave_queue(std::uint32_t number);
  // Among those that can be due, or out of them.
  void schedule(std::uint32_t number);
  std::uint64_t& count_of(const Entry& entry) {
    return routes_[entry.route].counts[static_cast<std::size_t>(entry.state)];
  }

  mutable std::mutex mutex_;
  std::uint64_t next_place_ = 1;
  std::deque<Entry> entries_; // by number; growing moves none
  FlatTable by_id_;
  FlatTable by_order_; // the first of each queue
  PlacedHeap<Time, &Entry::expiry_position> by_expiry_;
  std::map<std::string, std::uint32_t, std::less<>> route_numbers_;
  std::vector<DueRoute> routes_;
};

} // namespace oncekey
