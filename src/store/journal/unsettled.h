// Unsettled: the keys that are in progress or indeterminate, so that those that wait for a person are found without
// looking at every record.
//
// Kept in memory. At a start the young records show their state themselves. Of the old ones those that are not settled
// have an entry, made when their segment is sealed and erased when they are settled: most executions are over by then,
// and cost nothing.
//
//   "unsettled/" id:32 bytes, with no value
//
// Holds about a hundred bytes for each.
#pragma once

#include "core/store.h"
#include "store/common/listing.h"
#include "store/journal/entries.h"

#include <oncekey/record.h>

#include <cstddef>
#include <mutex>
#include <unordered_map>

namespace oncekey {

inline constexpr std::string_view kUnsettledPrefix = "unsettled/";
inline constexpr std::size_t kUnsettledEntries = 1;
inline constexpr std::size_t kUnsettledBytes = kUnsettledPrefix.size() + sizeof(RecordId);

struct UnsettledKey {
  RecordState state = RecordState::in_progress;
  bool rerun = false;
  bool has_entry = false;
  Time first_received{};
  Time lease_until{};
  Time expires_at{};

  bool is_abandoned(Time now) const { return state == RecordState::in_progress && now >= lease_until && !rerun; }
  bool is_shown(KeysShown shown, Time now) const {
    const bool held = state == RecordState::indeterminate;
    if (shown == KeysShown::indeterminate) return held;
    return is_abandoned(now) || (held && shown != KeysShown::abandoned);
  }
  static UnsettledKey of(const Record& record, bool has_entry) {
    return {record.state, record.rerun, has_entry, record.first_received, record.lease_until, record.expires_at};
  }
};

// Any thread may call.
class Unsettled {
 public:
  void start_with(std::unordered_map<RecordId, UnsettledKey> found) {
    const std::lock_guard lock(mutex_);
    keys_ = std::move(found);
    in_progress_ = 0;
    for (const auto& [id, key] : keys_) count(key, +1);
  }
  // How many are in progress.
  std::size_t in_progress() const { return in_progress_.load(std::memory_order_relaxed); }

  // The record as it is from now on; null if it is gone. The step under way has room for kUnsettledEntries and
  // kUnsettledBytes.
  void note(const RecordId& id, const Record* record, SegmentedLog& journal) {
    const std::lock_guard lock(mutex_);
    if (record != nullptr && record->state != RecordState::completed) {
      const auto [at, added] = keys_.try_emplace(id);
      if (!added) count(at->second, -1);
      at->second = UnsettledKey::of(*record, at->second.has_entry);
      count(at->second, +1);
      return;
    }
    const auto at = keys_.find(id);
    if (at == keys_.end()) return;
    if (at->second.has_entry) journal.erase(kStoreFamily, key_with_id(kUnsettledPrefix, id));
    count(at->second, -1);
    keys_.erase(at);
  }

  // The segment with this record is being sealed: whether it needs an entry.
  bool needs_entry(const RecordId& id) {
    const std::lock_guard lock(mutex_);
    const auto at = keys_.find(id);
    if (at == keys_.end()) return false;
    at->second.has_entry = true;
    return true;
  }

  // Looks at kWaitingCountMax keys at most.
  WaitingKeys count(Time now) const {
    const std::lock_guard lock(mutex_);
    WaitingKeys counted;
    std::uint64_t looked = 0;
    for (auto at = keys_.begin(); at != keys_.end() && looked < kWaitingCountMax; ++looked, ++at) {
      const UnsettledKey& key = at->second;
      if (now >= key.expires_at) continue;
      if (key.state == RecordState::indeterminate) ++counted.indeterminate;
      if (key.is_abandoned(now)) ++counted.abandoned;
    }
    return counted;
  }
  // Takes keys that have expired out, some at a time; those with an entry. Called now and then.
  std::vector<RecordId> forget_expired(Time now, std::size_t at_most) {
    const std::lock_guard lock(mutex_);
    std::vector<RecordId> with_entry;
    for (auto at = keys_.begin(); at != keys_.end() && with_entry.size() < at_most;) {
      const bool over = now >= at->second.expires_at;
      if (over) count(at->second, -1);
      if (over && at->second.has_entry) with_entry.push_back(at->first);
      at = over ? keys_.erase(at) : std::next(at);
    }
    return with_entry;
  }

  struct Waiting {
    std::vector<BrowsePlace> places; // newest first
    bool all = true;                 // false if there were more keys than were looked at
  };
  Waiting waiting(const BrowseRequest& request, Time now) const {
    Waiting found;
    {
      const std::lock_guard lock(mutex_);
      std::size_t looked = 0;
      for (const auto& [id, key] : keys_) {
        if (looked++ == request.look_max) {
          found.all = false;
          break;
        }
        const BrowsePlace place{key.first_received, id};
        if (now < key.expires_at && key.is_shown(request.shown, now) && comes_after(request.after, place))
          found.places.push_back(place);
      }
    }
    std::sort(found.places.begin(), found.places.end(), newer);
    return found;
  }

 private:
  void count(const UnsettledKey& key, int by) {
    if (key.state == RecordState::in_progress) in_progress_ += static_cast<std::size_t>(by);
  }

  std::atomic<std::size_t> in_progress_ = 0;
  mutable std::mutex mutex_; // taken after the journal's
  std::unordered_map<RecordId, UnsettledKey> keys_;
};

} // namespace oncekey
