// StagedIndex: which jobs of an embedded store are due, and in which order.
//
// Holds an entry for every job that is neither completed nor dead. Jobs of one order stand in a queue, and only the
// first of a queue can be due: that is what makes them go one after another.
#pragma once

#include <oncekey/record.h>
#include <oncekey/time.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace oncekey {

// Not safe to use from several threads.
class StagedIndex {
 public:
  // What became of an entry, for those who keep the index on disk as well.
  enum class Change { none, added, removed };

  // The record as it is from now on. New entries go to the end of their queue.
  Change note(const RecordId& id, const Record& record);
  // The record is gone.
  void forget(const RecordId& id) { remove(id); }

  // The place of a job among all, growing in the order they were added; nothing if it is not here.
  std::optional<std::uint64_t> place_of(const RecordId& id) const;
  // For filling the index at start, with places in growing order.
  void add_at(std::uint64_t place, const RecordId& id, const Record& record);

  // Of one route, due longest first.
  std::vector<RecordId> due(const std::string& route, Time now, std::size_t limit) const;
  // Not due before then, whatever its record says.
  void postpone(const RecordId& id, Time due);

  std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::uint64_t place = 0;
    Time due{};
    bool ordered = false;
    std::string route;
  };
  using Queue = std::map<std::uint64_t, RecordId>; // by place

  using Waiting = std::set<std::pair<std::pair<Time, std::uint64_t>, RecordId>>; // by when they are due

  bool is_first(const RecordId& id, const Entry& entry) const;
  void wait(const RecordId& id, const Entry& entry);
  void stop_waiting(const RecordId& id, const Entry& entry);
  bool remove(const RecordId& id);

  std::uint64_t next_place_ = 1;
  std::unordered_map<RecordId, Entry> entries_;
  std::unordered_map<std::uint64_t, Queue> queues_;
  std::unordered_map<std::string, Waiting> waiting_; // by route: those that are first
};

} // namespace oncekey
